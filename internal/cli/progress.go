package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

// progress prints a run: on a terminal one line that is drawn again and again,
// elsewhere a line now and then, and in both a summary at the end; or JSON.
type progress struct {
	out      io.Writer
	json     bool
	width    int           // of the terminal; 0 is none
	every    time.Duration // between lines
	job      *jobspec.Job
	schedule mix.Schedule
	steps    int64 // to run; 0 is all

	// The rest is written by step and read by watch.
	mu        sync.Mutex
	status    status.Service // the latest
	begin     time.Time      // the first step was asked for
	last      time.Time      // the last one was there
	printed   time.Time
	next      int64
	digest    [32]byte
	done      int64
	tokens    int64
	room      int64
	bytes     int64
	wait      time.Duration
	longest   time.Duration
	drawn     map[string]int64   // tokens by source
	scheduled map[string]float64 // tokens by source, by the job spec's schedule
}

// Lines come often enough to look alive on a terminal, rarely enough to leave a
// log readable. After ten times as long without one, the reason is printed.
const (
	drawEvery    = 100 * time.Millisecond
	logEvery     = time.Second
	watchEvery   = time.Second
	defaultWidth = 100
)

// newProgress prints to out, a terminal of a number of columns or, with 0, none.
func newProgress(out io.Writer, width int, job *jobspec.Job, steps int64, asJSON bool) *progress {
	p := &progress{
		out: out, json: asJSON, every: logEvery, job: job, schedule: compile.Schedule(job), steps: steps,
		printed: time.Now(), drawn: map[string]int64{}, scheduled: map[string]float64{},
	}
	if width > 0 && !asJSON {
		p.width, p.every = width, drawEvery
	}
	return p
}

// step takes note of a step and prints what is due.
func (p *progress) step(s trainer.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(s, time.Now())
	switch {
	case p.json:
		p.encode(stepJSON{s.Step, s.Tokens, ratio(s.Tokens, s.Room), s.Bytes, s.Wait.Seconds(), s.Sources, fmt.Sprintf("%x", s.Digest)})
	case p.last.Sub(p.printed) >= p.every:
		p.print(p.line())
	}
}

func (p *progress) count(s trainer.Step, now time.Time) {
	if p.done == 0 {
		// Start-up is over when the first step was asked for.
		p.begin = now.Add(-s.Wait)
		p.printed = p.begin // the first line is worth reading after one interval
	}
	p.last, p.next, p.digest = now, s.Step+1, s.Digest
	p.done++
	p.tokens += s.Tokens
	p.room += s.Room
	p.bytes += s.Bytes
	p.wait += s.Wait
	p.longest = max(p.longest, s.Wait)
	shares := p.schedule.Shares(s.Step)
	for name, n := range s.Sources {
		p.drawn[name] += n
	}
	for i, src := range p.job.Sources {
		p.scheduled[src.Name] += float64(shares[i]) / (1 << mix.Bits) * float64(s.Tokens)
	}
}

// shares are a source's part of the tokens and the part that it should have: over
// the run by the schedule or, once changes were made to the job, at the last step
// that the service told of.
func (p *progress) shares(name string) (has, should float64) {
	has, should = ratio(p.drawn[name], p.tokens), p.scheduled[name]/float64(max(p.tokens, 1))
	for _, s := range p.status.Sources {
		if s.Name == name && len(p.status.Changes) > 0 {
			should = s.Scheduled
		}
	}
	return has, should
}

// sources are the names of those of the spec, then those that joined.
func (p *progress) sources() (names []string) {
	for _, s := range p.job.Sources {
		names = append(names, s.Name)
	}
	for _, s := range p.status.Sources[min(len(names), len(p.status.Sources)):] {
		names = append(names, s.Name)
	}
	return names
}

// took is the time of the steps, without the service's start and stop.
func (p *progress) took() time.Duration { return p.last.Sub(p.begin) }

// line sums the run up so far, with as many sources as fit.
func (p *progress) line() string {
	step := fmt.Sprintf("step %d", p.next)
	switch {
	case p.steps > 0 && p.next == p.done:
		step = fmt.Sprintf("step %d of %d", p.next, p.steps)
	case p.steps > 0: // resumed
		step = fmt.Sprintf("step %d (%d of %d)", p.next, p.done, p.steps)
	}
	text := fmt.Sprintf("%s  %s tokens/s  %.1f %% full", step, short(p.rate()), 100*ratio(p.tokens, p.room))
	var shares []string
	for _, name := range p.sources() {
		has, should := p.shares(name)
		shares = append(shares, fmt.Sprintf("%s %.1f/%.1f %%", name, 100*has, 100*should))
	}
	return fit(text, shares, p.columns())
}

func (p *progress) columns() int {
	if p.width == 0 {
		return defaultWidth
	}
	return p.width - 1 // a cursor behind the last column would wrap
}

// fit appends as many parts to text as a line of width columns holds, and says
// how many it leaves out.
func fit(text string, parts []string, width int) string {
	for i, part := range parts {
		more := ""
		if left := len(parts) - i - 1; left > 0 {
			more = fmt.Sprintf("  +%d more", left)
		}
		if columns(text)+2+columns(part)+len(more) > width {
			return cut(fmt.Sprintf("%s  +%d more", text, len(parts)-i), width)
		}
		text += "  " + part
	}
	return cut(text, width)
}

// columns counts characters: good enough for the names of sources.
func columns(s string) int { return len([]rune(s)) }

func cut(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:max(width, 0)])
	}
	return s
}

// print shows a line in place of the last one, or below it.
func (p *progress) print(line string) {
	p.printed = time.Now()
	if p.width > 0 {
		fmt.Fprintf(p.out, "\r\x1b[K%s", cut(line, p.columns()))
		return
	}
	fmt.Fprintln(p.out, line)
}

// stalled shows a line as print does, but whole: in lines of its own where it does not fit into one.
func (p *progress) stalled(line string) {
	if p.width > 0 && columns(line) > p.columns() {
		p.printed = time.Now()
		fmt.Fprintf(p.out, "\r\x1b[K%s\n", line)
		return
	}
	p.print(line)
}

// watch asks for the service's status now and then. It says what the service
// waits for when no step came for a while, and calls failed when the job has
// failed for good. stop ends it and waits for it.
func (p *progress) watch(ctx context.Context, ask func(context.Context) (status.Service, error), failed func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			s, err := ask(ctx)
			if err != nil {
				continue // the service is ending, and says why itself
			}
			if s.Error != "" {
				failed()
				return
			}
			p.told(s)
		}
	})
	return func() { cancel(); done.Wait() }
}

func (p *progress) note(s status.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = s
}

// told takes note of a status, and prints what the service waits for if nothing
// was printed for a while.
func (p *progress) told(s status.Service) {
	p.note(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.json && time.Since(p.printed) >= 10*p.every {
		p.stalled(fmt.Sprintf("step %d  waiting for %s", p.next, s.WaitingFor))
	}
}

// stepJSON is one line of `run --json`.
type stepJSON struct {
	Step    int64            `json:"step"`
	Tokens  int64            `json:"tokens"`
	Fill    float64          `json:"fill"`
	Bytes   int64            `json:"bytes"`
	WaitSec float64          `json:"wait_sec"`
	Sources map[string]int64 `json:"sources"`
	Digest  string           `json:"digest"`
}

func (p *progress) encode(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs of numbers and strings always encode
	}
	fmt.Fprintf(p.out, "%s\n", data)
}

// short writes a number with three digits and a unit: 1.23 M.
func short(v float64) string {
	units := []string{"", " k", " M", " G", " T"}
	i := 0
	for ; v >= 999.5 && i < len(units)-1; i++ {
		v /= 1000
	}
	digits := 0
	if i > 0 && v < 99.95 {
		digits = 1
		if v < 9.995 {
			digits = 2
		}
	}
	return fmt.Sprintf("%.*f%s", digits, v, units[i])
}

// grouped writes a number with commas, for people.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	var parts []string
	for ; len(s) > 3; s = s[:len(s)-3] {
		parts = append([]string{s[len(s)-3:]}, parts...)
	}
	return strings.Join(append([]string{s}, parts...), ",")
}

// elapsed rounds a duration for people.
func elapsed(d time.Duration) time.Duration {
	switch {
	case d > time.Minute:
		return d.Round(time.Second)
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
