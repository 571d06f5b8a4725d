package service_test

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/trainer"
)

// split cuts long samples over 2 or 4 of a pool of 4 ranks: books has texts of up to
// ten times the tokens of a row.
var split = recipe{"context split", mixed + `
batch: {sequence_length: 256, sequences: 16, context_split: 4}
topology: {dp: 2, cp: 2, pp: 2}
output: {format: megatron-thd}
strategy:
  - distribute: cp
  - cost: quadratic
  - balance: auto
`, 30, ""}

// costly is split with widths that follow costs, too.
var costly = recipe{"context split by cost", strings.NewReplacer("context_split: 4", "context_split: 4, fill: 900", "balance: auto", "balance: {level: interleaved}").Replace(split.spec), 30, ""}

// filled leaves room in rows, so that they can cost alike.
var filled = recipe{"rows with room to cost alike", mixed + `
batch: {sequence_length: 512, sequences: 16, microbatch_size: 2, fill: 850}
topology: {dp: 2, cp: 2}
strategy: [{distribute: dp}, {cost: quadratic}, {balance: {level: interleaved}}]
`, 30, ""}

// TestSplitTopologies is G6 for rows of several widths: what is in them depends on
// neither the number of ranks in the pool nor on which axis they are.
func TestSplitTopologies(t *testing.T) {
	dir := writeSources(t)
	for _, topology := range []string{
		"dp: 4", "cp: 4", "dp: 1, cp: 8", "dp: 8, cp: 2", "dp: 2, cp: 4, pp: 2, vpp: 2", "dp: 2, cp: 2, tp: 2",
	} {
		if testing.Short() && topology != "cp: 4" {
			continue
		}
		t.Run(topology, func(t *testing.T) { checkSplit(t, dir, split, topology, 95) })
		if topology == "cp: 4" || topology == "dp: 8, cp: 2" {
			t.Run(topology+", by cost", func(t *testing.T) { checkSplit(t, dir, costly, topology, 88) })
		}
	}
}

// checkSplit runs a job of wide rows on a mesh, and checks the part of the room that is filled.
func checkSplit(t *testing.T, dir string, r recipe, topology string, percent int64) {
	want := solve(t, dir, r)
	steps := r.steps
	r.spec = strings.Replace(r.spec, "{dp: 2, cp: 2, pp: 2}", "{"+topology+"}", 1)
	r.spec = strings.Replace(r.spec, "{format: megatron-thd}", "{format: megatron-thd, document_multiple: 8}", 1)
	wide, tokens, room := [2]int{}, int64(0), int64(0)
	res := setting{}.run(t, dir, r, func(s trainer.Step) {
		tokens, room = tokens+s.Tokens, room+s.Room
		for _, row := range s.Rows {
			if n := row.Tokens(); n > 2*256 {
				wide[1]++
			} else if n > 256 {
				wide[0]++
			}
		}
	})
	if res.Digest != want.digests[steps] {
		t.Errorf("digest step=%d %x, want %x", res.Next, res.Digest, want.digests[steps])
	}
	t.Logf("%d and %d rows of width 2 and 4, %d of %d tokens", wide[0], wide[1], tokens, room)
	if min(wide[0], wide[1]) < 20 || tokens*100 < room*percent {
		t.Errorf("too few wide rows (%d, %d) or tokens (%d of %d)", wide[0], wide[1], tokens, room)
	}
}
