package control

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/jobspec"
)

// runOf is a block with as many records, of which some are bad.
func runOf(seq int64, r run) *BlockRead {
	return &BlockRead{Block: plan.BlockRead{Seq: seq}, Records: uint64(r.records), Skips: make([]Skip, r.bad)}
}

// TestDensity: whatever the order in which blocks are read, the job stops if and only if a run
// of them that fits into the window has more bad records than the policy allows.
func TestDensity(t *testing.T) {
	policy := jobspec.BadRecords{Policy: "skip", Window: 100, WindowLimit: 10}
	rng := rand.New(rand.NewPCG(1, 2))
	stopped := 0
	for range 2000 {
		blocks := make([]run, 1+rng.IntN(5)) // so few that none is forgotten
		for i := range blocks {
			blocks[i].records = 1 + rng.Int64N(80)
			if rng.IntN(2) == 0 {
				blocks[i].bad = rng.Int64N(min(blocks[i].records, 9) + 1)
			}
		}
		want := false
		for first := range blocks {
			var sum run
			for _, b := range blocks[first:] {
				sum = run{sum.records + b.records, sum.bad + b.bad}
				want = want || sum.records <= 100 && sum.bad > 10
			}
		}
		var d density
		got := false
		for _, i := range rng.Perm(len(blocks)) {
			found := d.add(runOf(int64(i), blocks[i]), policy)
			got = got || found.bad > 0
		}
		if want {
			stopped++
		}
		if got != want {
			t.Fatalf("%v: stops: %v, want %v", blocks, got, want)
		}
	}
	if stopped < 100 {
		t.Errorf("only %d of the sources are too bad", stopped)
	}
}

// TestDensityForgets: it remembers a few windows, however long a job lives, and counts a block
// that is read again once.
func TestDensityForgets(t *testing.T) {
	policy := jobspec.BadRecords{Policy: "skip", Window: 1000, WindowLimit: 10}
	var d density
	for seq := range int64(10_000) {
		for range 2 {
			if found := d.add(runOf(seq, run{50, seq % 5 / 4}), policy); found.bad > 0 {
				t.Fatalf("block %d: %v", seq, found)
			}
		}
		if len(d.blocks) > 4*1000/50+1 {
			t.Fatalf("it remembers %d blocks", len(d.blocks))
		}
	}
	if found := d.add(runOf(10_000, run{50, 9}), policy); found.bad <= 10 || found.records > 1000 {
		t.Errorf("too many bad records: %v", found)
	}
	large := density{}
	if found := large.add(runOf(0, run{10_000, 100}), policy); found.bad > 0 {
		t.Errorf("a block of ten windows with ten times as many bad records: %v", found)
	}
	if found := large.add(runOf(1, run{10_000, 101}), policy); found.bad != 101 {
		t.Errorf("one more: %v", found)
	}
}
