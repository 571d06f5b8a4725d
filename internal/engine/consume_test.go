package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// numbers are source tasks that give partitions of one row each: tens and ones of its number.
func numbers(sources, parts int) (w Work) {
	for s := range sources {
		w.Sources = append(w.Sources, Source{Read: func(_ context.Context, out *Output) error {
			for i := range parts {
				if err := out.Emit(rows{uint64(10*s + i)}); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	return w
}

func same(_ context.Context, in []Partition, out *Output) error { return out.Emit(in[0]) }

// TestIter: a loop gets what a run gives, the error last, and one that ends early leaves no task.
func TestIter(t *testing.T) {
	e, stop := start(t, 1000, 2)
	defer stop()
	p := two(t, e, same)
	var got []string
	for part, err := range p.Iter(t.Context(), numbers(2, 3)) {
		got = append(got, fmt.Sprint(part, err))
	}
	if want := "[0] <nil> [1] <nil> [2] <nil> [10] <nil> [11] <nil> [12] <nil>"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	for part, err := range p.Iter(t.Context(), numbers(1000, 9)) {
		if err != nil || part.(rows)[0] == 12 {
			break
		}
	}
	for end := time.Now().Add(time.Minute); e.Usage().Tasks != 0 || e.Usage().Stored != 0; time.Sleep(time.Millisecond) { // the loop says it a moment later
		if time.Now().After(end) {
			t.Fatalf("after a loop that ended early: %+v", e.Usage())
		}
	}
	failing := two(t, e, func(_ context.Context, in []Partition, out *Output) error {
		if in[0].(rows)[0] == 1 {
			return fault.Userf("no")
		}
		return out.Emit(in[0])
	})
	var last error
	for part, err := range failing.Iter(t.Context(), numbers(1, 3)) {
		if last != nil || err != nil && part != nil {
			t.Errorf("%v, %v after an error", part, err)
		}
		last = err
	}
	if fault.ClassOf(last) != fault.User {
		t.Errorf("it ends with %v", last)
	}
}

// TestSplit: consumers get the same partitions whatever each takes its time for.
func TestSplit(t *testing.T) {
	e, stop := start(t, 1000, 3)
	defer stop()
	p := two(t, e, same)
	want := [][]uint64{{0, 3, 12, 21}, {1, 10, 13, 22}, {2, 11, 20, 23}}
	for slow := range 4 {
		got := make([][]uint64, 3)
		err := p.Split(t.Context(), numbers(3, 4), 3, func(consumer int, part Partition) error {
			if consumer == slow {
				time.Sleep(time.Millisecond)
			}
			got[consumer] = append(got[consumer], part.(rows)[0])
			return nil
		})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	for _, at := range []uint64{0, 22, 23} { // the last partition as well
		err := p.Split(t.Context(), numbers(3, 4), 3, func(_ int, part Partition) error {
			if part.(rows)[0] == at {
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			t.Errorf("a consumer that fails at %d: %v", at, err)
		}
	}
	if err := p.Split(t.Context(), numbers(1, 1), 0, nil); err == nil {
		t.Error("it is split into nothing")
	}
}

// TestMaterialize: what was materialized is read again, and no more of it than was allowed.
func TestMaterialize(t *testing.T) {
	e, stop := start(t, 1000, 2)
	defer stop()
	p := two(t, e, same)
	m, err := p.Materialize(t.Context(), numbers(3, 2), 1<<20)
	if err != nil || len(m.Parts) != 3 || m.Bytes == 0 {
		t.Fatal(m, err)
	}
	for range 2 {
		again, err := p.Materialize(t.Context(), m.Work(), m.Bytes)
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%v, %v, want %v", again, err, m)
		}
	}
	if _, err := p.Materialize(t.Context(), m.Work(), m.Bytes-1); fault.ClassOf(err) != fault.User {
		t.Errorf("one byte less: %v", err)
	}
}
