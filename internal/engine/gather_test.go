package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// sums gathers rows of source tasks and gives their sum; gives is what each source task gives.
func sums(t *testing.T, limit int64, gather int, gives []rows) (got []string, u Usage, err error) {
	t.Helper()
	e, stop := start(t, limit, 2)
	defer stop()
	p, err := e.Pipeline([]Stage{{Name: "read", Needs: oneCPU, Partition: 100}, {Name: "sum", Needs: oneCPU, Partition: 100, Keeps: true, Gather: gather,
		Process: func(_ context.Context, in []Partition, out *Output) error {
			sum := uint64(0)
			for _, part := range in {
				for _, x := range part.(rows) {
					sum += x
				}
			}
			return out.Emit(rows{sum})
		}}})
	if err != nil {
		t.Fatal(err)
	}
	w := Work{}
	for _, all := range gives {
		w.Sources = append(w.Sources, Source{Expect: all.Bytes(), Read: func(_ context.Context, out *Output) error {
			for _, x := range all {
				if err := out.Emit(rows{x}); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	err = p.Run(t.Context(), w, func(source int, part Partition) error {
		got = append(got, fmt.Sprint(source, " ", part.(rows)[0]))
		return nil
	})
	return got, e.Usage(), err
}

// TestGather: a task takes what its source tasks gave and nothing else, named after the first of them.
func TestGather(t *testing.T) {
	gives := []rows{{1, 2}, {}, {3}, {}, {}, {4}, {5, 6, 7}}
	for gather, want := range map[int][]string{
		1:   {"0 3", "2 3", "5 4", "6 18"},
		2:   {"0 3", "2 3", "4 4", "6 18"},
		3:   {"0 6", "3 4", "6 18"},
		100: {"0 28"},
		All: {"0 28"},
	} {
		if got, _, err := sums(t, 1<<20, gather, gives); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d: %q, %v, want %q", gather, got, err, want)
		}
	}
	if got, _, err := sums(t, 1<<20, All, nil); err != nil || len(got) > 0 {
		t.Errorf("of nothing: %q, %v", got, err)
	}
}

// TestGatherTooMuch: what does not fit the limit ends the run with an error that says so, and with the ledger within it.
func TestGatherTooMuch(t *testing.T) {
	large := make(rows, 200)
	for i := range large {
		large[i] = uint64(i)
	}
	gives := []rows{large, large, large, large}
	limit := 3 * large.Bytes()
	got, u, err := sums(t, limit, All, gives)
	if want := "stage \"sum\" gathers source tasks 0 to 3: what they gave ("; fault.ClassOf(err) != fault.User || err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("the limit of %d bytes: gather fewer", limit)) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if u.Peak > limit {
		t.Errorf("%+v of %d", u, limit)
	}
	if got, u, err = sums(t, limit, 2, gives); err != nil || len(got) != 2 || u.Peak > limit {
		t.Errorf("in twos: %q, %v, %+v", got, err, u)
	}
}

// TestGatherChecks: a pipeline that could not gather is refused before any work.
func TestGatherChecks(t *testing.T) {
	e, stop := start(t, 1000, 1)
	defer stop()
	nothing := func(context.Context, []Partition, *Output) error { return nil }
	for want, stages := range map[string][]Stage{
		`"read" gathers 2 source tasks: give`:   {{Name: "read", Needs: oneCPU, Partition: 1, Gather: 2}},
		`"a" gathers -2 source tasks: give`:     {{Name: "read", Needs: oneCPU, Partition: 1}, {Name: "a", Partition: 1, Gather: -2, Process: nothing}},
		`"a" gathers 3 source tasks: give`:      {{Name: "read", Needs: oneCPU, Partition: 1}, {Name: "a", Partition: 1, Gather: 3, Merge: 2, Process: nothing}},
		`"b" gathers what was gathered already`: {{Name: "read", Needs: oneCPU, Partition: 1}, {Name: "a", Partition: 1, Gather: 3, Process: nothing}, {Name: "b", Partition: 1, Gather: All, Process: nothing}},
	} {
		if _, err := e.Pipeline(stages); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestGatherTight: groups that the limit hardly holds one of are gathered one after the other, and with more room at the same
// time; no source task begins twice.
func TestGatherTight(t *testing.T) {
	const parts, each, group, sources = 10, 100, 4, 40
	var took []time.Duration
	for _, limit := range []int64{parts*each*group + 200, 5 * parts * each * group} {
		synctest.Test(t, func(t *testing.T) {
			e, stop := start(t, limit, 8)
			defer stop()
			after := func(d time.Duration, size int64, keeps bool) func(context.Context, []Partition, *Output) error {
				return func(_ context.Context, _ []Partition, out *Output) error {
					time.Sleep(d)
					if !keeps {
						if err := out.Release(); err != nil {
							return err
						}
					}
					return out.Emit(block(size))
				}
			}
			p, err := e.Pipeline([]Stage{{Name: "read", Needs: oneCPU, Partition: each},
				{Name: "change", Needs: oneCPU, Partition: each, Process: after(10*time.Millisecond, each, false)},
				{Name: "sum", Needs: oneCPU, Partition: each, Keeps: true, Ratio: 100, Gather: group, Process: after(100*time.Millisecond, 10, true)}})
			if err != nil {
				t.Fatal(err)
			}
			var begun atomic.Int64
			read := Source{Expect: parts * each, Read: func(_ context.Context, out *Output) error {
				begun.Add(1)
				for range parts {
					time.Sleep(10 * time.Millisecond)
					if err := out.Emit(block(each)); err != nil {
						return err
					}
				}
				return nil
			}}
			began, given := time.Now(), 0
			err = p.Run(t.Context(), Work{Sources: slices.Repeat([]Source{read}, sources)}, func(int, Partition) error { given++; return nil })
			took = append(took, time.Since(began))
			if u := e.Usage(); err != nil || given != sources/group || begun.Load() != sources || u.Peak > limit {
				t.Errorf("limit %d: %v, %d given, %d source tasks begun, %+v", limit, err, given, begun.Load(), u)
			}
		})
	}
	t.Log(took)
	if took[0] < 3*took[1]/2 || took[0] > 2500*time.Millisecond {
		t.Errorf("%v: with room for several groups at the same time it takes less", took)
	}
}

// block is a partition of a size.
type block int64

func (b block) Bytes() int64 { return int64(b) }
