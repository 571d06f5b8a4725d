package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Local runs members by a function: in this process, or as processes of this machine. Its zero value is not usable.
type Local struct {
	start func(ctx context.Context, role Role, number int) error
	name  func(role Role, number int) string
	most  int

	mu      sync.Mutex // guards the fields below
	life    context.Context
	running map[Role]map[int]*running
	spare   map[Role][]string
	watch   []chan struct{} // of one token each: something changed
	work    sync.WaitGroup
	fail    context.CancelCauseFunc
}

// running is a member that was started and has not ended.
type running struct {
	end      context.CancelFunc
	draining bool
}

// NewLocal returns a fleet whose members are numbered from 0. start runs one until it ends or ctx does: an error of it
// that comes before is the fleet's (Run). name names it as the job does. Of a role there are most members at most, so that
// a mistake does not fill the machine.
func NewLocal(most int, name func(Role, int) string, start func(ctx context.Context, role Role, number int) error) *Local {
	return &Local{start: start, name: name, most: most, running: map[Role]map[int]*running{}, spare: map[Role][]string{}}
}

// Run lets members live until ctx ends, or one of them fails: it returns that error, when all have ended. Scale before
// it starts nothing yet.
func (l *Local) Run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	l.mu.Lock()
	l.life, l.fail = ctx, fail
	for role, all := range l.running {
		for number, m := range all {
			l.begin(role, number, m)
		}
	}
	l.mu.Unlock()
	<-ctx.Done()
	l.mu.Lock()
	l.life = nil // Scale starts nothing any more
	l.running = map[Role]map[int]*running{}
	l.mu.Unlock()
	l.work.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Scale implements Fleet.
func (l *Local) Scale(_ context.Context, role Role, n int) error {
	if n < 0 || n > l.most {
		return fmt.Errorf("%d members of role %s: valid are 0 to %d", n, role, l.most)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[role] == nil {
		l.running[role] = map[int]*running{}
	}
	all := l.running[role]
	for number := 0; l.live(role) < n; number++ {
		if all[number] == nil {
			m := &running{}
			all[number] = m
			l.begin(role, number, m)
		}
	}
	for _, number := range l.victims(role) {
		if l.live(role) <= n {
			break
		}
		m := all[number]
		m.draining = true
		if m.end != nil {
			m.end()
		} else {
			delete(all, number)
		}
	}
	l.changed()
	return nil
}

// begin starts a member, if members live.
func (l *Local) begin(role Role, number int, m *running) {
	if l.life == nil {
		return
	}
	ctx, end := context.WithCancel(l.life)
	m.end = end
	fail := l.fail
	l.work.Go(func() {
		defer end()
		err := l.start(ctx, role, number)
		if err != nil && ctx.Err() == nil {
			fail(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.running[role][number] == m {
			delete(l.running[role], number)
		}
		l.changed()
	})
}

// live counts the members that are to stay.
func (l *Local) live(role Role) (n int) {
	for _, m := range l.running[role] {
		if !m.draining {
			n++
		}
	}
	return n
}

// victims are the members of a role in the order in which they are ended: those that drained, then the last ones.
func (l *Local) victims(role Role) (numbers []int) {
	for number, m := range l.running[role] {
		if !m.draining {
			numbers = append(numbers, number)
		}
	}
	spare := func(number int) bool { return slices.Contains(l.spare[role], l.name(role, number)) }
	slices.SortFunc(numbers, func(a, b int) int {
		if spare(a) != spare(b) {
			if spare(a) {
				return -1
			}
			return 1
		}
		return b - a
	})
	return numbers
}

// Draining implements Fleet.
func (l *Local) Draining(role Role, names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare[role] = slices.Clone(names)
}

// Members implements Fleet.
func (l *Local) Members(ctx context.Context, changed func([]Member)) {
	token := make(chan struct{}, 1)
	token <- struct{}{}
	l.mu.Lock()
	l.watch = append(l.watch, token)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watch = slices.DeleteFunc(l.watch, func(c chan struct{}) bool { return c == token })
	}()
	for {
		select {
		case <-token:
			changed(l.members())
		case <-ctx.Done():
			return
		}
	}
}

// members are those that run, by role and number.
func (l *Local) members() (all []Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for role, of := range l.running {
		for number, m := range of {
			name := l.name(role, number)
			all = append(all, Member{role, name, m.draining || slices.Contains(l.spare[role], name)})
		}
	}
	slices.SortFunc(all, func(a, b Member) int {
		if a.Role != b.Role {
			return compare(string(a.Role), string(b.Role))
		}
		return compare(a.Name, b.Name)
	})
	return all
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// changed tells those who watch.
func (l *Local) changed() {
	for _, token := range l.watch {
		select {
		case token <- struct{}{}:
		default:
		}
	}
}

// Joined implements Fleet: a local fleet sees its members, and starts one again that ended.
func (*Local) Joined(Role, int) {}

// Problem implements Fleet: what a local fleet is asked for it does, or ends.
func (l *Local) Problem() string { return "" }
