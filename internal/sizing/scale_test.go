package sizing_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sizing"
)

// scalerPlayer does the lines of a transcript about a scaler.
type scalerPlayer struct {
	s       *sizing.Scaler
	opts    sizing.Scaling
	names   []string
	costs   []float64 // ms for a unit
	shares  []float64
	ahead   []float64 // nil: no schedule
	rate    float64
	workers int
	there   []string // by place; "": nobody
	blocks  []int
	reads   [][]int // nil: all that are to
	last    sizing.Scaled
}

func (p *scalerPlayer) do(t *testing.T, line string) string {
	t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "options": // most, up, down, intervals, idle, cool-down
		scan(t, rest, "%d %g %g %d %d %d", &p.opts.Most, &p.opts.Up, &p.opts.Down, &p.opts.Intervals, &p.opts.Idle, &p.opts.CoolDown)
	case "least":
		scan(t, rest, "%d", &p.opts.Least)
	case "source": // name, ms for a unit, share
		var name string
		var cost, share float64
		scan(t, rest, "%s %g %g", &name, &cost, &share)
		p.names, p.costs, p.shares = append(p.names, name), append(p.costs, cost/1e3), append(p.shares, share)
	case "begin": // workers of a loader, then the places of each source, divided by /
		var workers int
		var table string
		scan(t, rest, "%d %s", &workers, &table)
		p.workers = workers
		places := tableOf(t, table)
		for _, of := range places {
			for _, n := range of {
				for len(p.there) <= n {
					p.there, p.blocks = append(p.there, fmt.Sprintf("loader-%d", len(p.there))), append(p.blocks, 1)
				}
			}
		}
		p.s = sizing.NewScaler(p.opts, places)
	case "rate":
		scan(t, rest, "%g", &p.rate)
	case "shares", "ahead":
		if rest == "unknown" {
			p.ahead = nil
			break
		}
		values := make([]float64, len(p.names))
		for i, word := range strings.Fields(rest) {
			scan(t, word, "%g", &values[i])
		}
		if verb == "shares" {
			p.shares = values
		} else {
			p.ahead = values
		}
	case "reads": // the places of each source, as far as they have it open
		p.reads = tableOf(t, rest)
	case "lead":
		return fmt.Sprintf("  %d intervals\n", p.s.Lead())
	case "join":
		at := slices.Index(p.there, "")
		if at < 0 {
			at = len(p.there)
			p.there, p.blocks = append(p.there, ""), append(p.blocks, 0)
		}
		p.there[at], p.blocks[at] = rest, 1
	case "leave":
		p.there[slices.Index(p.there, rest)] = ""
	case "released": // all that a loader held
		p.blocks[slices.Index(p.there, rest)] = 0
	case "intervals":
		var n int
		scan(t, rest, "%d", &n)
		var b strings.Builder
		for range n {
			b.WriteString(p.interval())
		}
		return b.String()
	default:
		t.Fatalf("no such line: %s", line)
	}
	return ""
}

// tableOf is a table whose rows are divided by /.
func tableOf(t *testing.T, text string) (table [][]int) {
	t.Helper()
	for of := range strings.SplitSeq(text, "/") {
		var all []int
		for at := range strings.SplitSeq(of, ",") {
			var n int
			scan(t, at, "%d", &n)
			all = append(all, n)
		}
		table = append(table, all)
	}
	return table
}

// interval is what the scaler says of one more, if that is news.
func (p *scalerPlayer) interval() string {
	x := sizing.Interval{Rate: p.rate, Reads: p.reads}
	for i, name := range p.names {
		l := sizing.Load{Name: name, Share: p.shares[i], Cost: p.costs[i]}
		if p.ahead != nil {
			l.Ahead = []float64{p.ahead[i]}
		}
		x.Sources = append(x.Sources, l)
	}
	for at, name := range p.there {
		x.Places = append(x.Places, sizing.PlaceStatus{Loader: name, Workers: p.workers, Blocks: p.blocks[at]})
	}
	d := p.s.Next(x)
	defer func() { p.last = d }()
	text := ""
	if d.Did != "" {
		text += "  " + d.Did + "\n"
	}
	if d.Want != p.last.Want || !slices.EqualFunc(d.Table, p.last.Table, slices.Equal) || !slices.Equal(d.Drained, p.last.Drained) {
		text += fmt.Sprintf("  %d loaders, places by source %v", d.Want, d.Table)
		if len(d.Drained) > 0 {
			text += fmt.Sprintf(", drained %v", d.Drained)
		}
		text += "\n"
	}
	return text
}

// TestScalerLaws: whatever happens, each source is read by a place, bounds hold, no more than one decision is made in a
// cool-down, a place is never both read from and drained, and when nothing changes any more, neither do decisions.
func TestScalerLaws(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		sources, base := 1+rng.IntN(6), 1+rng.IntN(4)
		table := make([][]int, sources)
		for i := range table {
			table[i] = []int{i % base}
		}
		for at := range base { // every place is of some source
			if i := rng.IntN(sources); !slices.Contains(table[i], at) {
				table[i] = append(table[i], at)
				slices.Sort(table[i])
			}
		}
		opts := sizing.Scaling{Least: base, Most: base + rng.IntN(5), Intervals: 1 + rng.IntN(3), CoolDown: 1 + rng.IntN(3), Idle: 1 + rng.IntN(4)}
		there := base
		if seed%2 == 1 { // some came for an earlier planner
			for ; there < base+rng.IntN(4); there++ {
				i := rng.IntN(sources)
				if table[i] = append(table[i], there); rng.IntN(2) == 0 {
					table[i] = table[i][1:] // and it alone reads the source
				}
			}
		}
		s, again := sizing.NewScaler(opts, table), sizing.NewScaler(opts, table)
		var x sizing.Interval
		for i := range sources {
			x.Sources = append(x.Sources, sizing.Load{Name: fmt.Sprint("s", i), Cost: rng.Float64()})
		}
		for at := range there {
			x.Places = append(x.Places, sizing.PlaceStatus{Loader: fmt.Sprint("l", at), Workers: 2, Blocks: 3})
		}
		joined, since := there, opts.CoolDown
		for n := range 120 {
			if n < 60 { // then nothing changes any more
				x.Rate = rng.Float64() * 20
				for i := range x.Sources {
					x.Sources[i].Share, x.Sources[i].Ahead = rng.Float64(), []float64{rng.Float64(), rng.Float64()}[:2*(n/30)%4]
				}
			}
			d := s.Next(x)
			if other := again.Next(x); !reflect.DeepEqual(d, other) {
				t.Fatalf("seed %d, interval %d: %+v, and from the same %+v", seed, n, d, other)
			}
			if d.Did != "" {
				if since < opts.CoolDown {
					t.Fatalf("seed %d, interval %d: a decision %d intervals after the last one: %s", seed, n, since, d.Did)
				}
				if n > 100 {
					t.Fatalf("seed %d, interval %d: though nothing changed: %s", seed, n, d.Did)
				}
				since = 0
			}
			since++
			for i, of := range d.Table {
				if len(of) == 0 || !slices.IsSorted(of) || len(slices.Compact(slices.Clone(of))) != len(of) {
					t.Fatalf("seed %d, interval %d: source %d is read by %v", seed, n, i, of)
				}
				for _, at := range of {
					if at >= len(x.Places) || slices.Contains(d.Drained, x.Places[at].Loader) {
						t.Fatalf("seed %d, interval %d: source %d is read by place %d, drained %v", seed, n, i, at, d.Drained)
					}
				}
			}
			if d.Want < base || d.Want > opts.Most+len(x.Places)-base {
				t.Fatalf("seed %d, interval %d: %d loaders, of %d to %d", seed, n, d.Want, base, opts.Most)
			}
			alive := 0
			for at := range x.Places { // those that drained leave, and others forget what they held
				p := &x.Places[at]
				if slices.Contains(d.Drained, p.Loader) && rng.IntN(2) == 0 {
					p.Loader, p.Blocks = "", 0
				}
				if at >= base {
					p.Blocks = max(p.Blocks-1, 0)
				}
				if p.Loader != "" {
					alive++
				}
			}
			if alive < d.Want {
				at := slices.IndexFunc(x.Places, func(p sizing.PlaceStatus) bool { return p.Loader == "" })
				if at < 0 {
					at = len(x.Places)
					x.Places = append(x.Places, sizing.PlaceStatus{})
				}
				x.Places[at] = sizing.PlaceStatus{Loader: fmt.Sprint("l", joined), Workers: 2, Blocks: rng.IntN(4)}
				joined++
			}
		}
	}
}

// TestPace: a pace follows what trainers do, and not what loaders do while these hold them up.
func TestPace(t *testing.T) {
	t.Parallel()
	var p sizing.Pace
	for i, x := range []struct {
		steps   float64
		starved bool
		want    float64
	}{
		{8, false, 4}, {4, false, 3}, {4, false, 8. / 3}, {4, false, 2.5}, {4, false, 2.375},
		{1, true, 2.375}, {0, true, 2.375}, {9.5, true, 2.96875}, {2, false, 2.4765625},
	} {
		if got := p.Next(x.steps, 2, x.starved); got != x.want {
			t.Errorf("interval %d: %v steps a second, want %v", i, got, x.want)
		}
	}
}

// TestSourceRefused: a source that was to join when the scaler began, and was refused since, is forgotten, and with it the
// loader that only it got.
func TestSourceRefused(t *testing.T) {
	both := []sizing.Load{{Name: "web", Share: 0.5, Cost: 0.1}, {Name: "joining", Share: 0.5, Cost: 1.8}}
	places := []sizing.PlaceStatus{{Loader: "loader-0", Workers: 1, Blocks: 1}}
	s := sizing.NewScaler(sizing.Scaling{Most: 2, Intervals: 1, CoolDown: 1}, [][]int{{0}, {0}})
	for range 4 {
		s.Next(sizing.Interval{Sources: both, Rate: 1, Places: places, Reads: [][]int{{0}, {0}}})
	}
	places = append(places, sizing.PlaceStatus{Loader: "loader-1", Workers: 1, Blocks: 1})
	d := s.Next(sizing.Interval{Sources: both, Rate: 1, Places: places, Reads: [][]int{{0}, {0}}})
	if want := [][]int{{0}, {0, 1}}; !reflect.DeepEqual(d.Table, want) {
		t.Fatalf("before, sources are read by %v, want %v", d.Table, want)
	}
	places[1].Blocks = 0
	d = s.Next(sizing.Interval{Sources: both[:1], Rate: 1, Places: places, Reads: [][]int{{0}}})
	if want := [][]int{{0}}; !reflect.DeepEqual(d.Table, want) || d.Want != 1 || !slices.Equal(d.Drained, []string{"loader-1"}) {
		t.Errorf("then they are read by %v of %d loaders, and %v drained; want %v of one, and loader-1", d.Table, d.Want, d.Drained, want)
	}
}
