package sim

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// message is what one side of a call puts on the way at once.
type message struct {
	header metadata.MD     // of the answer; with its first message
	data   mem.BufferSlice // encoded
	holds  bool            // data, which may have no bytes
	last   bool            // of its side
	status *status.Status  // of the call; with the last message of the answer
	due    time.Time
}

// window is how much of one direction of a call may be under way: gRPC's own. A message of
// any size may begin while there is room.
const window = 64 << 10

// never is longer than any run.
const never = 1000 * time.Hour

// flow is one direction of a call: messages in their order. One goroutine receives.
type flow struct {
	wake  chan struct{} // nudges the receiver
	room  chan struct{} // nudges senders
	timer *time.Timer   // goes off when the first message is due

	mu    sync.Mutex // guards the fields below, never held while waiting
	queue []message
	size  int   // bytes in queue
	err   error // for both sides, at once
	shut  bool  // nobody sends any more; what is under way arrives
}

func newFlow() *flow {
	return &flow{wake: make(chan struct{}, 1), room: make(chan struct{}, 1), timer: time.NewTimer(never)}
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// fail ends the flow: what is under way is lost. The first error counts.
func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	f.err, f.queue = err, nil
	f.timer.Stop()
	nudge(f.wake)
	nudge(f.room)
}

// finish ends the sending side.
func (f *flow) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shut = true
	nudge(f.room)
}

func (f *flow) put(m message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.shut {
		return
	}
	f.size += m.data.Len()
	if f.queue = append(f.queue, m); len(f.queue) == 1 {
		f.timer.Reset(time.Until(m.due))
	}
}

// hurry has all that is under way arrive by a time.
func (f *flow) hurry(by time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.queue {
		if f.queue[i].due.After(by) {
			f.queue[i].due = by
		}
	}
	if len(f.queue) > 0 {
		f.timer.Reset(time.Until(f.queue[0].due))
	}
}

// take takes the first message that is due, or leaves it there. It waits for one.
func (f *flow) take(ctx context.Context, leave bool) (message, error) {
	for {
		m, ok, err := f.tryTake(leave)
		if ok || err != nil {
			return m, err
		}
		select {
		case <-f.timer.C:
		case <-f.wake:
		case <-ctx.Done():
			return message{}, status.FromContextError(ctx.Err()).Err()
		}
	}
}

func (f *flow) tryTake(leave bool) (m message, ok bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || len(f.queue) == 0 {
		return message{}, false, f.err
	}
	m = f.queue[0]
	if wait := time.Until(m.due); wait > 0 {
		f.timer.Reset(wait)
		return message{}, false, nil
	}
	if leave {
		return m, true, nil
	}
	f.queue[0] = message{}
	f.queue = f.queue[1:]
	f.size -= m.data.Len()
	nudge(f.room)
	return m, true, nil
}

// await waits until a message may begin.
func (f *flow) await(ctx context.Context) error {
	for {
		f.mu.Lock()
		err, full := f.err, f.size >= window
		if f.shut {
			err = io.EOF
		}
		f.mu.Unlock()
		if err != nil || !full {
			return err
		}
		select {
		case <-f.room:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// errBroken is the end of calls whose connection broke.
func errBroken(why error) error {
	return status.Errorf(codes.Unavailable, "error reading from server: %v", why)
}
