package logtest

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// checkForks: a job goes back, forward again to a step that it left, and back from there: each branch has
// all that leads to it, as far as the log has it.
func checkForks(t *testing.T, f *Fixture) {
	log := f.open(t)
	goOn := func(from, to int64, before byte, text string) { // before is the word of the step before
		t.Helper()
		ops, err := checkpoint.GoOn(log, from, [32]byte{before, byte(from - 1)})
		if err == nil {
			err = log.Write(ops...)
		}
		if err != nil {
			t.Fatal(err)
		}
		for step := from; step < to; step++ {
			a := checkpoint.Append{Step: step, Record: fmt.Appendf(nil, "%s %d", text, step)}
			if checkpoint.Begins(log) || step%4 == 0 {
				a.Frame = fmt.Appendf(nil, "%s before %d", text, step)
			}
			if err := log.Write(a, checkpoint.SetDigest{Step: step, Digest: [32]byte{text[0], byte(step)}}); err != nil {
				t.Fatal(err)
			}
		}
		log = f.again(t, log)
	}
	want := func(branches ...string) {
		t.Helper()
		for _, b := range log.Branches() {
			if got := branchText(t, log, b.Number); got != branches[b.Number] {
				t.Errorf("branch %d is %q, want %q", b.Number, got, branches[b.Number])
			}
		}
	}
	goOn(0, 30, 0, "a")
	goOn(10, 20, 'a', "b") // back
	goOn(25, 28, 'a', "c") // forward
	goOn(15, 18, 'b', "d") // back in what was left
	goOn(27, 27, 'c', "-") // forward, and nothing is written
	goOn(12, 14, 'b', "e")
	goOn(30, 32, 'a', "g") // to the end of what was left
	want("a0-30", "a0-10 b10-20", "a0-25 c25-28", "a0-10 b10-15 d15-18", "a0-10 b10-12 e12-14", "a0-30 g30-32")
	if err := log.Trim(9); err != nil {
		t.Fatal(err)
	}
	goOn(20, 21, 'b', "h")
	want("a8-30", "a8-10 b10-20", "a8-25 c25-28", "a8-10 b10-15 d15-18", "a8-10 b10-12 e12-14", "a8-30 g30-32", "a8-10 b10-20 h20-21")
	if err := log.Trim(17); err != nil {
		t.Fatal(err)
	}
	goOn(25, 27, 'a', "i") // the log was cut after the branches parted
	if b := log.Branches(); b[len(b)-1] != (checkpoint.Branch{Number: 7, Parent: 7, From: 25, Next: 27}) {
		t.Errorf("the log goes on in %v", b[len(b)-1])
	}
	if got := branchText(t, log, 6); got != "b16-20 h20-21" {
		t.Errorf("branch 6 is %q", got)
	}
}
