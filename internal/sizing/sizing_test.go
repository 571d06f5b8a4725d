package sizing_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sizing"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata")

// TestTranscripts plays the files in testdata: lines that begin with > are done, and what follows them is what
// came of it.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts: ", err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			p := &player{s: sizing.Snapshot{}, scaler: &scalerPlayer{}}
			for line := range strings.Lines(string(want)) {
				switch {
				case strings.HasPrefix(line, "#"), line == "\n" && b.Len() == 0:
					b.WriteString(line)
				case strings.HasPrefix(line, "> "):
					do := p.do
					if strings.HasPrefix(filepath.Base(path), "scale-") {
						do = p.scaler.do
					}
					fmt.Fprintf(&b, "%s%s", line, do(t, strings.TrimSpace(line[2:])))
				}
			}
			if *rewrite {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if b.String() != string(want) {
				t.Errorf("%s differs; run with -rewrite and look at the difference:\n%s", path, b.String())
			}
		})
	}
}

// player does the lines of a transcript.
type player struct {
	s      sizing.Snapshot
	scaler *scalerPlayer
}

func (p *player) do(t *testing.T, line string) string {
	t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "machine": // cores and memory in MiB
		scan(t, rest, "%g %d", &p.s.Cores, &p.s.Memory)
		p.s.Memory <<= 20
		p.s.LoaderMemory, p.s.Buffer = 40<<20, 512<<20
	case "constructors": // number, cores of all, MiB of each
		scan(t, rest, "%d %g %d", &p.s.Constructors, &p.s.ConstructorCores, &p.s.ConstructorMemory)
		p.s.ConstructorMemory <<= 20
	case "planner":
		scan(t, rest, "%g %d", &p.s.PlannerCores, &p.s.PlannerMemory)
		p.s.PlannerMemory <<= 20
	case "step":
		scan(t, rest, "%g", &p.s.Step)
	case "bounds": // of a source, of a loader
		scan(t, rest, "%d %d", &p.s.PerSource, &p.s.PerLoader)
	case "source": // name, ms of work a step, KiB of state, blocks, static or not
		var x sizing.Source
		var kind string
		scan(t, rest, "%s %g %d %d %s", &x.Name, &x.Work, &x.State, &x.Blocks, &kind)
		x.Work, x.State, x.Static, x.Block, x.Reader = x.Work/1e3, x.State<<10, kind == "static", 4<<20, 1<<20
		p.s.Sources = append(p.s.Sources, x)
	case "buffer": // MiB of samples of a loader
		scan(t, rest, "%d", &p.s.Buffer)
		p.s.Buffer <<= 20
	case "block": // of the last source, MiB
		last := &p.s.Sources[len(p.s.Sources)-1]
		scan(t, rest, "%d", &last.Block)
		last.Block <<= 20
	case "busy": // of the last source, the part of its time in which a worker computes
		scan(t, rest, "%g", &p.s.Sources[len(p.s.Sources)-1].Busy)
	case "phases": // of the last source, ms of work
		last := &p.s.Sources[len(p.s.Sources)-1]
		for _, ms := range strings.Fields(rest) {
			last.Phases = append(last.Phases, 0)
			scan(t, ms, "%g", &last.Phases[len(last.Phases)-1])
			last.Phases[len(last.Phases)-1] /= 1e3
		}
	case "sources": // number, ms of the first, factor from one to the next
		var n int
		var ms, factor float64
		scan(t, rest, "%d %g %g", &n, &ms, &factor)
		for i := range n {
			p.s.Sources = append(p.s.Sources, sizing.Source{Name: fmt.Sprintf("s%d", i), Work: ms / 1e3 * math.Pow(factor, float64(i)), Static: true, State: 1 << 20, Block: 1 << 20, Reader: 1 << 20})
		}
	case "decide":
		return sizing.Decide(p.s).String()
	case "yaml":
		return strings.ReplaceAll(string(sizing.Decide(p.s).Layout().YAML("job")), "# ", "  ")
	default:
		t.Fatalf("no such line: %s", line)
	}
	return ""
}

func scan(t *testing.T, text, format string, into ...any) {
	t.Helper()
	if _, err := fmt.Sscanf(text, format, into...); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

// random is a snapshot of any size.
func random(rng *rand.Rand) sizing.Snapshot {
	s := sizing.Snapshot{
		Cores: 0.5 + rng.Float64()*float64(int(1)<<rng.IntN(9)), Memory: 1 << (28 + rng.IntN(12)), Constructors: 1 + rng.IntN(4), ConstructorCores: rng.Float64() * 3, ConstructorMemory: rng.Int64N(1 << 29),
		PlannerCores: rng.Float64(), PlannerMemory: rng.Int64N(1 << 28), LoaderMemory: rng.Int64N(1 << 27), Buffer: 1 << (10 + rng.IntN(22)),
		Options: sizing.Options{Clusters: rng.IntN(6), PerSource: rng.IntN(20), PerLoader: rng.IntN(10), MostLoader: rng.IntN(50), Headroom: rng.Float64() * 3},
	}
	if rng.IntN(2) == 0 {
		s.Step = rng.Float64() * 3
	}
	for i := range 1 + rng.IntN(50) {
		s.Sources = append(s.Sources, sizing.Source{
			Name: fmt.Sprintf("s%d", i), Work: max(0, math.Pow(10, 4*rng.NormFloat64()-2)-1e-7), Static: rng.IntN(2) == 0,
			State: rng.Int64N(1 << 22), Reader: rng.Int64N(1 << 22), Block: rng.Int64N(1 << 25), Blocks: rng.Int64N(100),
		})
	}
	return s
}

// TestLaws: every source is read, bounds hold, memory is not promised twice, dearer sources get no smaller part,
// and the same snapshot gives the same decision.
func TestLaws(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		s := random(rand.New(rand.NewPCG(seed, 5)))
		d := sizing.Decide(s)
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d: %s\n%v", seed, fmt.Sprintf(format, args...), d)
		}
		if !reflect.DeepEqual(d, sizing.Decide(s)) {
			fail("another decision the second time")
		}
		perLoader := s.PerLoader
		if perLoader == 0 {
			perLoader = 8
		}
		if n := len(d.Loaders); n == 0 || s.MostLoader > 0 && n > s.MostLoader || n > 1 && float64(n) > d.Cores+1 {
			fail("%d loaders for %.1f cores, most %d", n, d.Cores, s.MostLoader)
		}
		read := map[string]int{}
		for _, l := range d.Loaders {
			if l.Workers < 1 || l.Workers > perLoader || l.Buffer < 1 || l.Buffer > s.Buffer || len(l.Sources) == 0 {
				fail("loader %+v", l)
			}
			for _, name := range l.Sources {
				read[name]++
			}
		}
		if len(d.Loaders) > 1 && d.Taken > d.Memory {
			fail("%d bytes taken of %d", d.Taken, d.Memory)
		}
		cores := 0.0
		for i, r := range d.Rows {
			if r.Source != s.Sources[i].Name || read[r.Source] != len(r.Loaders) || len(r.Loaders) == 0 || !slices.IsSorted(r.Loaders) {
				fail("row %+v, read by %d loaders", r, read[r.Source])
			}
			cores += r.Cores
			for k, other := range d.Rows {
				if s.Sources[i].Work > s.Sources[k].Work && (r.Cluster < other.Cluster || r.Cores < other.Cores*(1-1e-9) && !strings.Contains(r.Why, "at most")) {
					fail("%s costs more than %s and gets less", r.Source, other.Source)
				}
			}
		}
		if cores > d.Cores*(1+1e-9) {
			fail("%v cores dealt of %v", cores, d.Cores)
		}
		names := make([]string, len(s.Sources))
		for i := range names {
			names[i] = s.Sources[i].Name
		}
		back, err := sizing.ParseLayout(d.Layout().YAML("a \"job\""), names)
		if err != nil || !reflect.DeepEqual(back, d.Layout()) {
			fail("as YAML and back: %+v, %v", back, err)
		}
	}
}

// TestParseLayout: what is wrong with a layout is said.
func TestParseLayout(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"loaders: [{workers: 1, sources: [a]}]":                 "no loader reads b",
		"loaders: [{workers: 1, sources: [a, b, c]}]":           `has no source "c"`,
		"loaders: [{workers: -1, sources: [a, b]}]":             "workers is -1",
		"loaders: [{workers: 1, sources: [a, b]}, {buffer: 3}]": "loaders[1].sources is empty",
		"loaders: [{worker: 1, sources: [a, b]}]":               "not a list of loaders",
		"loader: 3": "not a list of loaders",
		"loaders: [{workers: 1, buffer: -2, sources: [a, b]}]": "buffer is -2",
	} {
		if _, err := sizing.ParseLayout([]byte(text), []string{"a", "b"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	l, err := sizing.ParseLayout([]byte("loaders: [{workers: 2, sources: [b]}, {buffer: 5, sources: [b, a]}]"), []string{"a", "b"})
	if err != nil || !reflect.DeepEqual(l.Deal([]string{"a", "b", "new"}), [][]int{{1}, {0, 1}, nil}) || l.Buffer(10) != 15 {
		t.Errorf("%+v, %v", l, err)
	}
}
