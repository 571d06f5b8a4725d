package rpc

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// logWaitEvery is how often a role logs that it waits for the planner: a night without one
// is a page of log.
const logWaitEvery = 30 * time.Second

// lookEvery is about how often a role looks for a planner. One that takes over waits for all
// roles that were there, and ranks wait for it: the last role to find it is what they wait for.
const lookEvery = 200 * time.Millisecond

// vainEvery is that while there is one which is refused as it has no epoch: someone has to mend that. It is less than a planner
// that takes over waits for roles.
const vainEvery = time.Second

// answerTime is how long one of several addresses may take to answer before the next one is
// tried: a machine that is gone does not refuse.
const (
	answerRounds = 2
	answerTime   = answerRounds * listenEvery
)

// Role is a role that talks to the planner for as long as it lives. All fields but Patience
// and Alone are required.
type Role struct {
	Kind     string        // loader or constructor, in messages
	ID       string        // unique in the job
	Address  string        // where others reach it
	Callers  string        // who these are, in messages
	Planner  string        // its address, or several, separated by commas: each is tried in turn
	Patience time.Duration // without a planner, after which the role ends; 0: it waits for ever
	Security Security
	Epochs   *Epochs // of the process: it may hear of planners from others, too
	Log      *slog.Logger
	Alone    func(why error) // called each time that no planner answers; may be nil
}

// Open opens a stream with the planner: a method of pb.PlannerClient.
type Open[Q, R any] = func(pb.PlannerClient, context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[Q, R], error)

// Hello makes the first message of a session. epoch is the highest that was heard of.
type Hello[Q any] = func(epoch uint64) *Q

// Talk holds sessions of a role with its planner, one after the other: it waits until there is
// a planner, says hello and calls work, which calls Each. When the planner ends the session,
// in order or not, or the way to it breaks, it waits for the next one.
//
// Talk returns nil if ctx ended, and work's error if that failed by itself. An error of class
// fault.User is the planner's refusal; one of fault.Lost says that there was no planner for
// Role.Patience.
func Talk[Q, R any](ctx context.Context, r Role, open Open[Q, R], hello Hello[Q], work func(context.Context, *Session[Q, R]) error) error {
	t := &talk{role: &r, pause: Backoff{Name: r.Kind + " " + r.ID}}
	defer t.close()
	if err := t.dial(); err != nil {
		return err
	}
	for t.alone(); ; {
		s, err := openSession(ctx, t, open)
		if err == nil {
			if err = s.Send(hello(r.Epochs.Highest())); err == nil {
				err = work(ctx, s)
			}
			s.cut()
			if s.quiet.Load() {
				renew(s.conn)
			}
			if s.heard {
				t.alone()
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if !again(err) {
			return err
		}
		if errors.Is(err, context.Canceled) {
			err = fault.Lostf("the planner ended the session")
			t.logged = time.Now() // it knows what it does
			r.Log.Info("the planner ended the session: looking for the next one", "planner", r.Planner)
		}
		if err := t.wait(ctx, err); err != nil {
			return err
		}
	}
}

// NewInstance draws the number by which a planner tells a process of a role from another one with the
// same id.
func NewInstance() uint64 { return rand.Uint64() | 1 }

// again says whether a role goes on after a session that ended so.
func again(err error) bool {
	var e *ended
	return errors.Is(err, context.Canceled) || errors.As(err, &e) && fault.ClassOf(err) == fault.Lost
}

// talk is what a role knows of its planners, beside the session. It belongs to the goroutine of
// Talk, or to that which calls Each while there is a session.
type talk struct {
	role     *Role
	planners []candidate
	next     int       // of planners, to be tried
	met      bool      // one of them has answered
	since    time.Time // without a planner
	logged   time.Time // last line about that
	vain     bool      // in this round there was one without an epoch, which is refused
	pause    Backoff
}

// candidate is a planner that there may be.
type candidate struct {
	address string
	conn    Conn
}

func (t *talk) dial() error {
	addresses, err := Addresses(t.role.Planner)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		conn, err := Dial(a, t.role.Security)
		if err != nil {
			return err
		}
		t.planners = append(t.planners, candidate{a, conn})
	}
	return nil
}

func (t *talk) close() {
	for _, p := range t.planners {
		p.conn.Close()
	}
}

// alone notes the loss of the planner.
func (t *talk) alone() {
	t.since, t.logged = time.Now(), time.Time{}
	t.pause.Reset()
}

// connected notes a planner that answers.
func (t *talk) connected(to string) {
	t.met = true
	t.role.Log.Info("connected to the planner", "planner", to, "address", t.role.Address, "epoch", t.role.Epochs.Highest())
	if OnlyHere(t.role.Address, to) {
		t.role.Log.Warn(t.role.Callers+" on other machines cannot reach this address: give --listen HOST:PORT, or --advertise", "address", t.role.Address)
	}
}

// check refuses what a planner says whose epoch is over.
func (t *talk) check(epoch uint64) error {
	err := t.role.Epochs.Check(epoch)
	t.vain = t.vain || err != nil && epoch == 0
	if n := t.role.Epochs.Refused(); err != nil && n&(n-1) == 0 { // less and less often
		t.role.Log.Warn("a planner is refused", "err", err)
	}
	return err
}

// wait waits before the next attempt; after a round over all planners it does so for longer.
// While there is none it logs why, at once and then now and then.
func (t *talk) wait(ctx context.Context, err error) error {
	t.next++
	r := t.role
	if r.Alone != nil {
		r.Alone(err)
	}
	alone := time.Since(t.since)
	if r.Patience > 0 && alone >= r.Patience {
		return fault.As(fault.Lost, fault.Lostf("%s %s was without a planner for %.0f s, the limit that it was given: %w", r.Kind, r.ID, alone.Seconds(), err))
	}
	if time.Since(t.logged) > logWaitEvery {
		t.logged = time.Now()
		r.Log.Warn("waiting for the planner: is it running there, and with the same --tls-* flags?", "planner", r.Planner, "seconds", int(alone.Seconds()), "err", err)
	}
	if t.next%len(t.planners) == 0 {
		t.pause.Longest = lookEvery
		if t.vain {
			t.pause.Longest, t.vain = vainEvery, false
		}
		_ = t.pause.Wait(ctx) // if ctx ends, so does the next attempt
	}
	return nil
}

// openSession opens a stream with the planner whose turn it is.
func openSession[Q, R any](ctx context.Context, t *talk, open Open[Q, R]) (*Session[Q, R], error) {
	p := t.planners[t.next%len(t.planners)]
	life, cut := context.WithCancel(context.WithoutCancel(ctx))
	early := context.AfterFunc(ctx, cut)
	late := func() bool { return true }
	if len(t.planners) > 1 {
		late = time.AfterFunc(answerTime, cut).Stop
	}
	p.conn.ResetConnectBackoff() // the pause between attempts is Talk's
	stream, err := open(pb.NewPlannerClient(p.conn), life)
	if !early() || !late() || err != nil {
		cut()
		if err == nil || status.Code(err) == codes.Canceled {
			err = fault.Lostf("it did not answer within %v", answerTime)
		}
		return nil, &ended{t.lost(p.address, err)}
	}
	return &Session[Q, R]{talk: t, to: p.address, conn: p.conn, sender: NewSender(stream.Send), stream: stream, cut: cut}, nil
}

// Addresses are those of a list that commas separate: of a planner, and of those that may take
// its place.
func Addresses(list string) (all []string, err error) {
	for _, a := range strings.Split(list, ",") {
		a = strings.TrimSpace(a)
		if err := checkAddress(a); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}
