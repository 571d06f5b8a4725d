package steplog

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/memlog"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// replan is a log whose records are given as text: "a" is a step with plan a, "a+c" one at which the
// change c applies.
type replan struct {
	log   memlog.Log
	again replanned
}

func recordAs(text string) []byte {
	plan, ch, changed := strings.Cut(text, "+")
	r := &token.Record{Plan: [32]byte([]byte(fmt.Sprintf("%-32s", plan)))}
	if changed {
		r.Changes = [][]byte{[]byte(ch)}
	}
	return r.Encode()
}

// write appends steps as the writer of the log does.
func (r *replan) write(from int64, texts ...string) error {
	for i, text := range texts {
		step, data := from+int64(i), recordAs(text)
		if checkpoint.Begins(r.log) {
			if err := r.again.begin(r.log, step); err != nil {
				return err
			}
		}
		if err := errors.Join(r.again.step(step, data), r.log.Append(step, data, nil)); err != nil {
			return err
		}
		digest := [32]byte([]byte(fmt.Sprintf("%-32s", text)))
		if err := errors.Join(r.again.digest(step, digest), r.log.SetDigest(step, digest)); err != nil {
			return err
		}
	}
	return nil
}

// TestReplanned compares what is planned again with the branches that were left, up to where other
// changes were made, also by a planner that starts in between.
func TestReplanned(t *testing.T) {
	for _, c := range []struct {
		what  string
		lines []string // branches: the step that each begins at, and its records
		wrong string   // of the last line's error; "" for none
	}{
		{"the same again", []string{"0 a b c d", "2 c d e f"}, ""},
		{"another plan", []string{"0 a b c d", "2 c x"}, "step 3 .* record is not that of branch 0"},
		{"another plan from the first step on", []string{"0 a b c d", "0 x"}, "step 0 .* record is not that of branch 0"},
		{"another plan at the first step of a branch", []string{"0 a b c d", "2 x"}, "step 2 .* record is not that of branch 0"},
		{"a change, and what follows", []string{"0 a b c d", "2 c+m x y z"}, ""},
		{"a change that is not made again", []string{"0 a b c+m d", "2 c x"}, ""},
		{"the same change", []string{"0 a b c+m d", "2 c+m d e"}, ""},
		{"the same change, and another plan", []string{"0 a b c+m d", "2 c+m x"}, "step 3 .* record is not that of branch 0"},
		{"a branch of a branch", []string{"0 a b c d e", "2 c+m x y", "4 z"}, "step 4 .* record is not that of branch 1"},
		{"a branch below another", []string{"0 a b c d e", "2 c+m x y", "1 b c+m x w"}, "step 4 .* record is not that of branch 1"},
		{"the branch before the last", []string{"0 a b c d e", "2 c d", "2 c d x"}, "step 4 .* record is not that of branch 0"},
		{"a log that begins late", []string{"7 a b c", "7 x y"}, ""},
	} {
		for _, restarts := range []bool{false, true} {
			var store memlog.Store
			var err error
			r := &replan{again: replanned{dir: "/log"}}
			if r.log, err = store.Open(checkpoint.Options{}); err != nil {
				t.Fatal(err)
			}
			for i, line := range c.lines {
				var from int64
				fields := strings.Fields(line)
				fmt.Sscan(fields[0], &from)
				if err := r.log.Truncate(from); err != nil {
					t.Fatal(err)
				}
				for k, text := range fields[1:] {
					if restarts {
						r.again = replanned{dir: "/log"}
						if err := r.again.resume(r.log); err != nil {
							t.Fatal(err)
						}
					}
					if err = r.write(from+int64(k), text); err != nil {
						break
					}
				}
				if err != nil && i+1 < len(c.lines) {
					t.Fatalf("%s: branch %d: %v", c.what, i, err)
				}
			}
			wantWrong(t, fmt.Sprintf("%s, restarts %v", c.what, restarts), err, c.wrong)
		}
	}
}

func wantWrong(t *testing.T, what string, err error, wrong string) {
	t.Helper()
	switch {
	case wrong == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case wrong == "":
	case !errors.Is(err, checkpoint.ErrDiverged):
		t.Errorf("%s: got %v, want one that wraps ErrDiverged", what, err)
	default:
		step, branch, _ := strings.Cut(wrong, " .* ")
		if !strings.HasPrefix(err.Error(), step+" ") || !strings.Contains(err.Error(), branch) {
			t.Errorf("%s: %v, want %q", what, err, wrong)
		}
	}
}

// TestReplannedForward: what is planned again after the job went forward to a step that it had left is compared, too.
func TestReplannedForward(t *testing.T) {
	for text, wrong := range map[string]string{"e": "", "x": "step 4 .* record is not that of branch 0"} {
		log, err := new(memlog.Store).Open(checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := &replan{log: log, again: replanned{dir: "/log"}}
		goOn := func(step int64, before string) {
			t.Helper()
			ops, err := checkpoint.GoOn(log, step, [32]byte([]byte(fmt.Sprintf("%-32s", before))))
			if err := errors.Join(err, log.Write(ops...)); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.write(0, "a", "b", "c", "d", "e"); err != nil {
			t.Fatal(err)
		}
		goOn(2, "b")
		if err := r.write(2, "c+m"); err != nil {
			t.Fatal(err)
		}
		goOn(4, "d")
		wantWrong(t, "forward with "+text, r.write(4, text), wrong)
	}
}

// TestLeft: the writer knows of a position that a branch has which the job left.
func TestLeft(t *testing.T) {
	log, err := new(memlog.Store).Open(checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &replan{log: log}
	err = errors.Join(r.write(2, "a", "b", "c"), log.Truncate(0), r.write(40, "x", "y"))
	if err != nil {
		t.Fatal(err)
	}
	w := &Writer{log: log}
	for step, want := range map[int64]bool{1: false, 2: true, 5: true, 6: false, 39: false, 40: false, 42: false, 43: false} {
		if got := w.left(step); got != want {
			t.Errorf("the position before step %d is of a branch that was left: %v", step, got)
		}
	}
}

// TestReplannedDigest: steps that are planned as before, and delivered otherwise, are an error too.
func TestReplannedDigest(t *testing.T) {
	var store memlog.Store
	log, err := store.Open(checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &replan{log: log, again: replanned{dir: "/log"}}
	if err := errors.Join(r.write(0, "a", "b", "c"), log.Truncate(1), r.write(1, "b")); err != nil {
		t.Fatal(err)
	}
	wantWrong(t, "another digest", r.again.digest(1, [32]byte{1}), "step 1 .* digest is not that of branch 0")
	if err := r.again.digest(2, [32]byte{1}); err != nil {
		t.Errorf("a step that was not planned again: %v", err)
	}
}
