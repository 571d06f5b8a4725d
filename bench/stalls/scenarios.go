package main

import (
	"fmt"
	"syscall"

	"github.com/millrace-data/millrace/internal/faultproxy"
)

// at is the step after which a scenario does its harm, where it does it once: in the middle of a run,
// as in the paper that the figures are compared with.
const at = 35

// scenario is what is done to a service.
type scenario struct {
	name, title string
	// allowed is how many steps may be stalled at prefetch 4, less than 0: any number.
	allowed int
	cut     []string // roles that it cuts off
	harm    func(h *harmer, step int64)
}

// scenarios in the order of the table.
var scenarios = []scenario{
	{"calm", "nothing happens", 0, nil, func(*harmer, int64) {}},
	{"planner", "the planner is killed every 15 steps", 0, nil, func(h *harmer, step int64) {
		if step%15 == 14 {
			h.kill("planner")
		}
	}},
	{"loaders-5", "5 loaders are killed at once", 0, nil, once(func(h *harmer) { h.kill(h.loaders(5)...) })},
	{"loaders-10", "10 loaders are killed at once", 0, nil, once(func(h *harmer) { h.kill(h.loaders(10)...) })},
	{"loaders-40%", "40 % of the loaders are killed at once", -1, nil, once(func(h *harmer) { h.kill(h.loaders(h.opts.loaders * 2 / 5)...) })},
	{"constructor", "a constructor is killed", 1, nil, once(func(h *harmer) { h.kill("constructor-0") })},
	{"loader-stopped", "a loader is stopped (SIGSTOP) for good", 1, nil, once(func(h *harmer) { h.signal(syscall.SIGSTOP, "loader-0") })},
	{"constructor-stopped", "a constructor is stopped (SIGSTOP) for good", 1, nil, once(func(h *harmer) { h.signal(syscall.SIGSTOP, "constructor-0") })},
	{"planner-stopped", "the planner is stopped (SIGSTOP) for 5 s", -1, nil, func(h *harmer, step int64) {
		if step == at {
			h.signal(syscall.SIGSTOP, "planner")
			h.later(5, func() { h.rig.Signal("planner", syscall.SIGCONT) })
		}
	}},
	{"loader-cut", "a loader is cut off: nothing passes, no connection ends", 1, []string{"loader-0"}, once(func(h *harmer) { h.cut("loader-0", faultproxy.Stall) })},
	{"loader-trickle", "a loader's network carries a byte a second", 1, []string{"loader-0"}, once(func(h *harmer) { h.cut("loader-0", faultproxy.Trickle) })},
	{"constructor-cut", "a constructor is cut off", 1, []string{"constructor-0"}, once(func(h *harmer) { h.cut("constructor-0", faultproxy.Stall) })},
	{"everything", "all roles are killed at once", -1, nil, once(func(h *harmer) {
		ids := append(h.loaders(h.opts.loaders), "planner")
		for i := range h.opts.constructors {
			ids = append(ids, fmt.Sprintf("constructor-%d", i))
		}
		h.kill(ids...)
	})},
}

// once does its harm after one step.
func once(harm func(*harmer)) func(*harmer, int64) {
	return func(h *harmer, step int64) {
		if step == at {
			harm(h)
		}
	}
}

func names() (all []string) {
	for _, s := range scenarios {
		all = append(all, s.name)
	}
	return all
}
