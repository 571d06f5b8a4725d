package worker

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

// TestSpikes: which rows take more memory than a step allows does not depend on when it is looked at, be it of a function or of
// a class, whose worker is at the first row when its setup is answered.
func TestSpikes(t *testing.T) {
	opt := options(t)
	opt.Memory, opt.MemoryDecides = 160<<20, true
	var rows, want []string
	for i := range 24 {
		spike := 10 * (i*7%24 + 1) // MiB, beside some 30 of the worker
		rows = append(rows, fmt.Sprintf("spike %d", spike))
		if spike > 180 || spike < 60 {
			want = append(want, fmt.Sprintf("%d %t", i, spike > 180))
		}
	}
	for _, name := range []string{"dies", "Spiky", "dies", "Spiky"} {
		var got []string
		for i, line := range called(t, function(t, open(t, opt), name), texts(rows...)) {
			if spike, _ := strconv.Atoi(rows[i][6:]); spike > 180 || spike < 60 {
				got = append(got, fmt.Sprintf("%d %t", i, strings.HasSuffix(line, "it held more memory than its limit of 160 MiB")))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: rows beyond the limit: %q, want %q", name, got, want)
		}
	}
}

// TestFirstSpike: the first row of a class counts as a row, and what the class takes to be set up does not.
func TestFirstSpike(t *testing.T) {
	opt := options(t)
	opt.Memory, opt.MemoryDecides = 160<<20, true
	for range 6 {
		for row, want := range map[string]string{"spike 200": "2:20 user it held more memory than its limit of 160 MiB", "spike 60": `2:20 "spike 60"`} {
			if got := called(t, function(t, open(t, opt), "Spiky"), texts("", "", row))[2]; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}

// TestNoRoom: a step that allows less than a worker holds, or than its class takes to be set up, stops the job, whatever the rows are.
func TestNoRoom(t *testing.T) {
	for _, test := range []struct {
		name   string
		memory int64 // MiB
		want   string
	}{
		{"dies", 1, " MiB before its first row, and its step allows 1 MiB: give the step more `memory`"},
		{"SpikySetup", 100, "its setup: it held more memory than its limit of 100 MiB: give the step more `memory`"},
	} {
		opt := options(t)
		opt.Memory, opt.MemoryDecides = test.memory<<20, true
		for range 3 {
			_, _, err := function(t, open(t, opt), test.name).Call(t.Context(), texts("a"))
			if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %s", test.name, err, test.want)
			}
		}
	}
	opt := options(t)
	opt.Memory, opt.MemoryDecides = 400<<20, true
	expect(t, called(t, function(t, open(t, opt), "SpikySetup"), texts("a")), `0:0 "a"`)
}

// TestNeighbours: what other functions hold in the same workers, however busy they are, leaves no row out.
func TestNeighbours(t *testing.T) {
	opt := options(t)
	opt.Workers = 1
	opt.Memory, opt.MemoryDecides = 200<<20, true
	e := open(t, opt)
	light, heavy := function(t, e, "dies"), function(t, e, "Heavy") // together they have more than 200 MiB
	var stop atomic.Bool
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop.Store(true)
	for range 4 {
		beside.Go(func() {
			for !stop.Load() {
				if _, _, err := heavy.Call(t.Context(), texts("x")); err != nil {
					t.Errorf("beside: %v", err)
					return
				}
			}
		})
	}
	for i := range 6 {
		row := fmt.Sprintf("spike %d", 120+i)
		expect(t, called(t, light, texts(row)), fmt.Sprintf("0:0 %q", row))
	}
}

// TestTooLarge: a worker that was beyond its limit is so whatever else it is ended for.
func TestTooLarge(t *testing.T) {
	p := &process{server: &server{opt: Options{Memory: 1 << 20, MemoryDecides: true}}, pid: os.Getpid(), calls: 1, killed: true, earlier: true, cause: "other"}
	if !p.tooLarge(&job{}, &Reply{}) {
		t.Error("an answer of a worker beyond its limit counts")
	}
}
