// Command streaming prints how the engine's scheduler does on the microbenchmark of Ray Data's
// paper and its relatives, in virtual time, beside baselines and the solver.
//
//	go run ./bench/streaming              # a few minutes, most of them the solver's
//	go run ./bench/streaming -width 2000  # a wider search of the solver
//	go run ./bench/streaming -trace 10    # each event of a run with 1 GB, as text
//	go run ./bench/streaming -real        # the same through the real executor, at 1/20 of the size
//
// docs/engine.md says what is simulated.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/engine/simulate"
	"github.com/millrace-data/millrace/internal/engine/solve"
)

// limits of the store, in partitions of 100 MB.
var limits = []int64{5, 6, 8, 9, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320}

// contender is a policy of the tables. Some keep state, so each run takes a new one.
type contender struct {
	name   string
	policy func() schedule.Policy
	ours   bool
}

func contenders() []contender {
	seconds, perSource, gives := []float64{5, 0.5, 0.5}, []float64{1, 5, 5}, []int64{5 * simulate.Partition, simulate.Partition, 0}
	all := []contender{
		{"conservative", func() schedule.Policy { return simulate.Conservative(gives...) }, false},
		{"Algorithms 1+2, source by budget", func() schedule.Policy { return simulate.Literal(false, seconds, perSource, gives) }, false},
		{"Algorithms 1+2, source by both rules", func() schedule.Policy { return simulate.Literal(true, seconds, perSource, gives) }, false},
		{"greedy", func() schedule.Policy { return simulate.Greedy }, false},
	}
	for k := 3; k <= 6; k++ {
		all = append(all, contender{fmt.Sprintf("static %d+%d", k, 8-k), func() schedule.Policy { return simulate.Static(k, 8-k, 4) }, false})
	}
	return append(all, contender{"Millrace", func() schedule.Policy { return schedule.Decide }, true})
}

func main() {
	width := flag.Int("width", 200, "`states` that the solver keeps of a tick")
	trace := flag.Int64("trace", 0, "print each event of a run with this many `partitions` of store, and nothing else")
	inTime := flag.Bool("real", false, "run the microbenchmark through the engine's executor in real time, at 1/20 of its size, and nothing else (two minutes)")
	flag.Parse()
	if *inTime {
		if err := inRealTime(); err != nil {
			fmt.Fprintln(os.Stderr, "streaming:", err)
			os.Exit(1)
		}
		return
	}
	if *trace > 0 {
		simulate.Run(simulate.Microbenchmark(), simulate.Config{Limit: *trace * simulate.Partition, Pinned: true, Policy: schedule.Decide, Credits: true, Trace: simulate.Transcript(os.Stdout)})
		return
	}
	for _, pinned := range []bool{true, false} {
		fmt.Printf("\n## Seconds by limit, %s\n\n", accounting(pinned))
		table(func(w *tabwriter.Writer) { exact(w, pinned, *width) })
		fmt.Printf("\n## The same, task times with lognormal noise of sigma 0.3: medians of 20 seeds, %s\n\n", accounting(pinned))
		table(func(w *tabwriter.Writer) { noisy(w, pinned) })
	}
	fmt.Printf("\n## Without streaming repartition (a load's output is one partition of 500 MB), %s\n\n", accounting(true))
	table(whole)
	fmt.Printf("\n## A workload that changes in the middle, and fractional parallelism, %s\n\n", accounting(true))
	table(changes)
	overhead()
}

func accounting(pinned bool) string {
	if pinned {
		return "a task's input counts until it ends"
	}
	return "a task's input counts until it begins"
}

func table(rows func(*tabwriter.Writer)) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.AlignRight)
	rows(w)
	w.Flush()
}

func header(w *tabwriter.Writer, first string) {
	fmt.Fprintf(w, "%s\t", first)
	for _, b := range limits {
		fmt.Fprintf(w, "%.1f\t", float64(b)/10)
	}
	fmt.Fprintln(w)
}

func exact(w *tabwriter.Writer, pinned bool, width int) {
	header(w, "GB")
	for _, c := range contenders() {
		row, held := c.name+"\t", "with outputs held, GB\t"
		for _, b := range limits {
			res := run(simulate.Microbenchmark(), b, pinned, c)
			row += cell(res)
			held += fmt.Sprintf("%.1f\t", float64(res.PeakAll)/1e9)
		}
		fmt.Fprintln(w, row)
		if c.ours {
			fmt.Fprintln(w, held)
		}
	}
	row := "solver: a schedule\t"
	for _, b := range limits {
		p := problem(int(b), pinned, width)
		row += fmt.Sprintf("%.1f\t", float64(p.Solve().Ticks)/2)
	}
	fmt.Fprintln(w, row)
	p := problem(1, pinned, 1)
	p.Ticks = 1
	fmt.Fprintf(w, "solver: no schedule is shorter than %.1f\t\n", float64(p.Solve().Bound)/2)
}

// problem is the microbenchmark in ticks of half a second.
func problem(buffer int, pinned bool, width int) *solve.Problem {
	return &solve.Problem{
		Operators: []solve.Operator{{Ticks: 10, Gives: 5}, {Ticks: 1, Gives: 1}, {Ticks: 1, Resource: 1}},
		Sources:   160, Slots: []int{8, 4}, Buffer: buffer, Pinned: pinned, Width: width, Ticks: 1000,
	}
}

func run(w simulate.Workload, partitions int64, pinned bool, c contender) simulate.Result {
	limit := partitions * simulate.Partition
	res := simulate.Run(w, simulate.Config{Limit: limit, Pinned: pinned, Policy: c.policy(), Credits: c.ours})
	if res.PeakStore > limit {
		panic("streaming: a run went over its limit")
	}
	return res
}

func cell(res simulate.Result) string {
	if res.Stuck {
		return "stuck\t"
	}
	return fmt.Sprintf("%.1f\t", res.Time.Seconds())
}

// noisy prints medians, and ours over the best baseline's.
func noisy(w *tabwriter.Writer, pinned bool) {
	header(w, "GB")
	best := make([]float64, len(limits))
	for _, c := range contenders() {
		row, ratio := c.name+"\t", "over the best baseline\t"
		for i, b := range limits {
			median, ok := medianOf(b, pinned, c)
			switch {
			case !ok:
				row += "stuck\t"
			default:
				row += fmt.Sprintf("%.1f\t", median)
			}
			if ok && !c.ours && (best[i] == 0 || median < best[i]) {
				best[i] = median
			}
			ratio += fmt.Sprintf("%.2f\t", median/best[i])
		}
		fmt.Fprintln(w, row)
		if c.ours {
			fmt.Fprintln(w, ratio)
		}
	}
}

// medianOf is the median of 20 seeds, if at least half of them end.
func medianOf(b int64, pinned bool, c contender) (float64, bool) {
	var times []float64
	for seed := range uint64(20) {
		if res := run(simulate.Microbenchmark().Noisy(0.3, seed), b, pinned, c); !res.Stuck {
			times = append(times, res.Time.Seconds())
		} else if c.ours {
			panic("streaming: our policy got stuck")
		}
	}
	if len(times) < 20 {
		return 0, false
	}
	slices.Sort(times)
	return (times[9] + times[10]) / 2, true
}

func whole(w *tabwriter.Writer) {
	header(w, "GB")
	for _, c := range []contender{{"conservative", func() schedule.Policy { return simulate.Conservative(5*simulate.Partition, 5*simulate.Partition, 0) }, false},
		{"Millrace", func() schedule.Policy { return schedule.Decide }, true}} {
		row := c.name + "\t"
		for _, b := range limits {
			row += cell(run(simulate.Whole(), b, true, c))
		}
		fmt.Fprintln(w, row)
	}
}

func changes(w *tabwriter.Writer) {
	own := contender{"Millrace", func() schedule.Policy { return schedule.Decide }, true}
	fmt.Fprintln(w, "GB\tMillrace\tgreedy\tbest static\twhich\ttime saved\t")
	for _, b := range []int64{8, 12, 20, 40, 100} {
		var best simulate.Result
		which := 0
		for k := 1; k < 8; k++ {
			res := run(simulate.Changing(400), b, true, contender{policy: func() schedule.Policy { return simulate.Static(k, 1, 8-k) }})
			if !res.Stuck && (which == 0 || res.Time < best.Time) {
				best, which = res, k
			}
		}
		res := run(simulate.Changing(400), b, true, own)
		greedy := run(simulate.Changing(400), b, true, contender{policy: func() schedule.Policy { return simulate.Greedy }})
		fmt.Fprintf(w, "%.1f\t%s%s%s%d+%d\t%.0f %%\t\n", float64(b)/10, cell(res), cell(greedy), cell(best), which, 8-which, 100*(1-res.Time.Seconds()/best.Time.Seconds()))
	}
	for _, b := range []int64{8, 16, 40} {
		res := run(simulate.Fractional(512), b, true, own)
		fixed := run(simulate.Fractional(512), b, true, contender{policy: func() schedule.Policy { return simulate.Static(4, 4) }})
		greedy := run(simulate.Fractional(512), b, true, contender{policy: func() schedule.Policy { return simulate.Greedy }})
		fmt.Fprintf(w, "fractional %.1f\t%s%s%s4+4\t%.0f %%\t\n", float64(b)/10, cell(res), cell(greedy), cell(fixed), 100*(1-res.Time.Seconds()/fixed.Time.Seconds()))
	}
}

// overhead measures the policy itself, in real time, on the snapshots of a whole run.
func overhead() {
	var took time.Duration
	calls, measured := 0, 0
	var before, after runtime.MemStats
	cfg := simulate.Config{Limit: 10 * simulate.Partition, Pinned: true, Credits: true}
	cfg.Policy = func(s *schedule.Snapshot) schedule.Decision {
		if calls++; calls%20 == 0 {
			runtime.ReadMemStats(&before)
			began := time.Now()
			for range 100 {
				schedule.Decide(s)
			}
			took += time.Since(began)
			runtime.ReadMemStats(&after)
			measured += 100
		}
		return schedule.Decide(s)
	}
	simulate.Run(simulate.Microbenchmark(), cfg)
	fmt.Printf("\na decision takes %d ns and %d allocations (%d decisions for 1760 tasks)\n", took.Nanoseconds()/int64(measured), after.Mallocs-before.Mallocs, calls)
}
