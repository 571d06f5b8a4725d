package main

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/faultproxy"
)

// at is the step after which a scenario does its harm, where it does it once, in the middle of a run
// as in the paper that the figures are compared with; a shorter run has it in its own middle.
const at = 35

// every is how many steps a planner lives that is killed again and again.
const every = 15

// scenario is what is done to a service.
type scenario struct {
	name, title string
	// allowed is how many steps may be stalled at prefetch 4, less than 0: any number.
	allowed  int
	cut      []string // roles that it cuts off
	standbys int      // planners beside the first
	mirror   bool     // they have a disk of their own
	// Beside the run with Go ranks, the shortest pace and the largest prefetch:
	deep   bool // with all other prefetches, too
	slow   bool // at all other paces, too
	python bool // with ranks in Python, too
	harm   func(h *harmer, step int64)
}

// scenarios in the order of the table.
var scenarios = []scenario{
	{name: "calm", title: "nothing happens", deep: true, slow: true, python: true, harm: func(*harmer, int64) {}},
	{name: "planner", title: "the planner is killed every 15 steps", deep: true, slow: true, python: true, harm: again},
	{name: "planner-standby", title: "the planner is killed every 15 steps, and another one stands by on its disk", standbys: 1, deep: true, harm: again},
	{name: "planner-elsewhere", title: "the planner is killed every 15 steps, and another one takes over by the mirror", allowed: -1, standbys: 1, mirror: true, harm: again},
	{name: "loaders-5", title: "5 loaders are killed at once", harm: once(func(h *harmer) { h.kill(h.loaders(5)...) })},
	{name: "loaders-10", title: "10 loaders are killed at once", deep: true, slow: true, python: true, harm: once(func(h *harmer) { h.kill(h.loaders(10)...) })},
	{name: "loaders-40%", title: "40 % of the loaders are killed at once", allowed: -1, harm: once(func(h *harmer) { h.kill(h.loaders(h.opts.loaders * 2 / 5)...) })},
	{name: "constructor", title: "a constructor is killed", allowed: 1, harm: once(func(h *harmer) { h.kill("constructor-0") })},
	{name: "loader-stopped", title: "a loader is stopped (SIGSTOP) for good", allowed: 1, slow: true, harm: once(func(h *harmer) { h.signal(syscall.SIGSTOP, "loader-0") })},
	{name: "constructor-stopped", title: "a constructor is stopped (SIGSTOP) for good", allowed: 1, slow: true, harm: once(func(h *harmer) { h.signal(syscall.SIGSTOP, "constructor-0") })},
	{name: "planner-stopped", title: "the planner is stopped (SIGSTOP) for 5 s", allowed: -1, harm: once(func(h *harmer) {
		h.signal(syscall.SIGSTOP, "planner")
		h.later(5, func() { h.rig.Signal("planner", syscall.SIGCONT) })
	})},
	{name: "loader-cut", title: "a loader is cut off: nothing passes, no connection ends", allowed: 1, cut: []string{"loader-0"}, harm: once(func(h *harmer) { h.cut("loader-0", faultproxy.Stall) })},
	{name: "loader-trickle", title: "a loader's network carries a byte a second", allowed: 1, cut: []string{"loader-0"}, harm: once(func(h *harmer) { h.cut("loader-0", faultproxy.Trickle) })},
	{name: "constructor-cut", title: "a constructor is cut off", allowed: 1, cut: []string{"constructor-0"}, harm: once(func(h *harmer) { h.cut("constructor-0", faultproxy.Stall) })},
	{name: "everything", title: "all roles are killed at once", allowed: -1, harm: once(func(h *harmer) {
		ids := append(h.loaders(h.opts.loaders), h.rig.Leader())
		for i := range h.opts.constructors {
			ids = append(ids, fmt.Sprintf("constructor-%d", i))
		}
		h.kill(ids...)
	})},
}

// again kills the planner that serves, again and again.
func again(h *harmer, step int64) {
	if step%every == every-1 {
		h.kill(h.rig.Leader())
	}
}

// once does its harm after one step.
func once(harm func(*harmer)) func(*harmer, int64) {
	return func(h *harmer, step int64) {
		if step == min(at, h.steps/2) {
			harm(h)
		}
	}
}

// trial is a scenario with one kind of ranks.
type trial struct {
	scenario
	pace     time.Duration
	prefetch int
	python   bool
	steps    int64
}

// trials are those of the command line: of all combinations those that the scenarios ask for, or all.
func (o *options) trials() (all []trial) {
	pace, prefetch := slices.Min(o.paces), slices.Max(o.prefetches)
	for _, s := range scenarios {
		if !slices.Contains(o.only, s.name) {
			continue
		}
		for _, p := range o.paces {
			for _, n := range o.prefetches {
				for _, python := range []bool{false, true} {
					if python && o.python == "" || !o.all && (p != pace && !s.slow || n != prefetch && !s.deep || python && !s.python || p != pace && (n != prefetch || python)) {
						continue
					}
					r := trial{s, p, n, python, o.steps}
					if p > pace {
						r.steps = o.slowSteps
					}
					all = append(all, r)
				}
			}
		}
	}
	return all
}

func names() (all []string) {
	for _, s := range scenarios {
		all = append(all, s.name)
	}
	return all
}
