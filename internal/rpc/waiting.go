package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// A call for data may have no answer for long, and be in order. So a server that has nothing
// to send yet says so, with what it waits for itself: when that changes, and otherwise five times
// a second at first and less and less often, down to once a second; less often still where
// thousands of callers each wait longer. A caller that hears nothing at all for as long as three of
// those takes the server for stopped, or cut off, and gives the attempt up. It is tried again,
// there or elsewhere: that is for whoever called.

const (
	// waitingEvery is the time between two frames that say Waiting, and waitingMost what
	// it grows to: a tenth of how long the call has waited.
	waitingEvery = 200 * time.Millisecond
	waitingMost  = time.Second
	waitingShare = 10
	// quietRounds, of waitingEvery each, is how long a caller waits for a frame at first. A link
	// too slow for a whole frame in that time gets longer at the next attempt, up to mostRounds.
	quietRounds = 3
	mostRounds  = 60
	// callersPerRound is how many callers of one server have each wait a round longer: they may all
	// ask at once, and the last one hears nothing until the answers of the others are sent.
	callersPerRound = 128
)

// pauseAfter is the time between two frames on a call that has waited for some time.
func pauseAfter(waited time.Duration) time.Duration {
	return min(max(waited/waitingShare, waitingEvery), waitingMost)
}

// roundsAfter is how many rounds without a frame are too many on a call that has waited for
// some time, if limit are at its beginning.
func roundsAfter(limit int, waited time.Duration) int {
	return limit * int(pauseAfter(waited)/waitingEvery)
}

// waitsKey is the header of answers of servers that say Waiting: of others no caller expects it. It
// is the least number of rounds without a frame after which a caller may give up.
const waitsKey = "millrace-waits"

// RoundsAmong is the least number of rounds that each of some callers waits for a frame.
func RoundsAmong(callers int) int { return min(quietRounds+callers/callersPerRound, mostRounds) }

// Rounds is for how many rounds without a frame a caller waits at the least that the other side told of some; 0: it did not.
func Rounds(said uint32) int { return int(min(max(said, quietRounds), mostRounds)) }

// Hold calls wait, which finds the answer to a call, and tells a caller that hears, as long as
// that takes, what reason says. An answer that is there at once costs a header. callers may ask
// the server at once.
func Hold(stream grpc.ServerStream, hears bool, callers int, reason func() *pb.Waiting, wait func() error) error {
	if !hears {
		return wait()
	}
	if err := SaysWaiting(stream, callers); err != nil {
		return err
	}
	return HoldPart(stream, callers, reason, wait)
}

// SaysWaiting has the header of a stream say that the server says Waiting on it, and how long
// each of some callers has to listen for that.
func SaysWaiting(stream grpc.ServerStream, callers int) error {
	return stream.SetHeader(metadata.Pairs(waitsKey, strconv.Itoa(RoundsAmong(callers))))
}

// HoldPart is Hold for one of several answers on a stream of SaysWaiting, whose caller hears.
func HoldPart(stream grpc.ServerStream, callers int, reason func() *pb.Waiting, wait func() error) error {
	say := func(w *pb.Waiting) error { return stream.SendMsg(&pb.Frame{Waiting: w}) }
	return Holding(RoundsAmong(callers), reason, say, wait)
}

// Holding calls wait, and as long as that takes say with the reason, as often as whoever waits for some rounds without a
// word has to hear something, and when it changes.
func Holding(rounds int, reason func() *pb.Waiting, say func(*pb.Waiting) error, wait func() error) error {
	h := &hold{rounds: rounds, reason: reason, say: say}
	h.begin()
	defer h.end()
	return wait()
}

// Saying is Hold for a call within a process: it tells whoever Telling made ctx for, as if
// address had said it, until end is called.
func Saying(ctx context.Context, address string, reason func() *pb.Waiting) (end func()) {
	tell, _ := ctx.Value(tellKey{}).(func(string, *pb.Waiting))
	if tell == nil {
		return func() {}
	}
	h := &hold{rounds: quietRounds, reason: reason, say: func(w *pb.Waiting) error { tell(address, w); return nil }}
	h.begin()
	return h.end
}

// Tell tells whoever Telling made ctx for, as if address had said it.
func Tell(ctx context.Context, address string, w *pb.Waiting) {
	if tell, _ := ctx.Value(tellKey{}).(func(string, *pb.Waiting)); tell != nil {
		tell(address, w)
	}
}

// hold says Waiting until it ends. A stream takes one message at a time: end waits for the
// one under way.
type hold struct {
	rounds int // that who hears it waits for a word
	reason func() *pb.Waiting
	say    func(*pb.Waiting) error
	since  time.Time

	mu    sync.Mutex // held while it says so
	over  bool
	timer *time.Timer
	said  *pb.Waiting // last, and when
	last  time.Time
}

func (h *hold) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = time.Now()
	h.timer = time.AfterFunc(h.pause(0), h.again)
}

func (h *hold) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.timer.Stop()
}

// third is the time within which who hears has to hear something: of three words two may be late.
func (h *hold) third() time.Duration { return time.Duration(h.rounds) * waitingEvery / 3 }

// pause is the time before the next look at the reason, of a call that has waited for some time: of those that wait longer for
// a word, that change comes later, too.
func (h *hold) pause(waited time.Duration) time.Duration {
	return max(pauseAfter(waited), h.third()/3)
}

func (h *hold) again() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	now, w := time.Now(), h.reason()
	pause := h.pause(now.Sub(h.since))
	if h.said == nil || w.GetReason() != h.said.Reason || w.GetRanks() != h.said.Ranks || now.Add(pause).Sub(h.last) > h.third() {
		if h.say(w) != nil {
			return // the call's own context tells that its stream broke
		}
		h.said, h.last = w, now
	}
	h.timer.Reset(pause)
}

// listener watches the calls for data of one connection.
type listener struct {
	address string
	waits   atomic.Bool  // the server says Waiting
	least   atomic.Int32 // rounds, as it says
	rounds  atomic.Int32 // see quietRounds; 0 is that many
}

// hear takes the header of an answer.
func (l *listener) hear(header metadata.MD) {
	said := header.Get(waitsKey)
	if len(said) == 0 {
		return
	}
	least, _ := strconv.Atoi(said[0]) // without a number it asks for no more than the usual
	l.least.Store(int32(min(max(least, 0), mostRounds)))
	l.waits.Store(true)
}

func (l *listener) limit() int { return int(max(l.rounds.Load(), quietRounds)) }

// dataCalls are those that listeners watch.
var dataCalls = []string{pb.Constructor_Deliver_FullMethodName, pb.Constructor_Batch_FullMethodName, pb.Constructor_Peek_FullMethodName, pb.Loader_Fetch_FullMethodName}

// stream opens a call for data on a connection.
func (l *link) stream(ctx context.Context, w *wire, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := w.NewStream(ctx, desc, method, opts...)
	if err != nil {
		cancel(nil)
		return nil, l.listener.explain(w, err)
	}
	h := &heardStream{ClientStream: stream, ctx: ctx, cancel: cancel, listener: l.listener, since: time.Now(), limit: l.listener.limit(), wire: w}
	h.silent = func() { l.silent(w, h.heard.Load()) }
	h.heard.Store(w.heard.Load())
	h.tell, _ = ctx.Value(tellKey{}).(func(string, *pb.Waiting))
	h.owed, _ = ctx.Value(owedKey{}).(func() bool)
	h.coming, _ = ctx.Value(comingKey{}).(func(int, uint64))
	h.attend()
	return h, nil
}

// attend begins to count rounds of a server that is known to say Waiting.
func (h *heardStream) attend() {
	if h.attention != nil || !h.listener.waits.Load() {
		return
	}
	h.attention = attend(waitingEvery, h.allowed(0), h.owed, func(rounds int) {
		h.listener.rounds.Store(int32(min(2*h.allowed(0), mostRounds)))
		h.cancel(&silentError{h.listener.address, time.Duration(rounds) * waitingEvery})
		h.silent()
	})
	context.AfterFunc(h.ctx, h.attention.End) // nobody may receive any more who would meet the end
}

// allowed is how many rounds without a frame are too many when the call has waited for some time.
func (h *heardStream) allowed(waited time.Duration) int {
	return max(int(h.listener.least.Load()), roundsAfter(h.limit, waited))
}

// heardStream is a call for data.
type heardStream struct {
	grpc.ClientStream
	ctx       context.Context
	cancel    context.CancelCauseFunc
	listener  *listener
	wire      *wire
	heard     atomic.Uint64 // of wire, when this call heard something last, or began
	silent    func()        // tells the link that it is
	attention *Attention    // nil: of a server that does not say Waiting, as far as is known
	begun     bool
	since     time.Time
	limit     int                                 // of rounds without a frame, at the beginning
	tell      func(address string, _ *pb.Waiting) // may be nil
	owed      func() bool                         // of a stream with several answers; nil: one is always owed
	coming    func(have int, of uint64)           // may be nil
}

type tellKey struct{}

// Telling returns a context for calls for data: tell is called with what a server says that it
// waits for, and its address. It may be called by several goroutines, and keeps what it gets.
func Telling(ctx context.Context, tell func(address string, w *pb.Waiting)) context.Context {
	return context.WithValue(ctx, tellKey{}, tell)
}

type owedKey struct{}

// Owing returns a context for a stream with several answers: the server has to say something
// while owed says so. It may be called by several goroutines.
func Owing(ctx context.Context, owed func() bool) context.Context {
	return context.WithValue(ctx, owedKey{}, owed)
}

type comingKey struct{}

// Coming returns a context for a call for data: with each piece of a body it is said how much of it is there, by the
// goroutine that receives.
func Coming(ctx context.Context, coming func(have int, of uint64)) context.Context {
	return context.WithValue(ctx, comingKey{}, coming)
}

// RecvMsg receives a frame.
func (h *heardStream) RecvMsg(m any) error {
	in, data := m.(*incoming)
	fresh := data && in.waiting == nil && in.header == nil
	err := h.ClientStream.RecvMsg(m)
	if err == nil {
		h.heard.Store(h.wire.heard.Add(1))
	}
	if h.owed != nil && fresh { // the wait for this answer may not have begun with the call
		h.since = time.Now()
	}
	if h.attention != nil {
		h.attention.Heard()
		h.attention.Allow(h.allowed(time.Since(h.since)))
	}
	if err == nil && !h.begun {
		h.begun = true
		if header, err := h.Header(); err == nil {
			h.listener.hear(header)
		}
	}
	if err != nil {
		return h.end(err)
	}
	if data && in.waiting != nil && in.header == nil && h.tell != nil {
		h.tell(h.listener.address, in.waiting)
	}
	if data && in.header != nil && h.coming != nil {
		h.coming(len(in.body), in.size)
	}
	if h.owed != nil && data && in.whole() {
		h.attend()
		h.relax()
	}
	return nil
}

// relax has a connection whose answers come whole wait less for the next one: twice what was
// needed, if more than usual.
func (h *heardStream) relax() {
	if h.attention != nil {
		h.listener.rounds.Store(min(h.listener.rounds.Load(), 2*h.attention.most.Swap(0)))
		h.limit = h.listener.limit()
		h.attention.Allow(h.allowed(0))
	}
}

// end is the error of a call that ended with err.
func (h *heardStream) end(err error) error {
	silent, ok := errors.AsType[*silentError](context.Cause(h.ctx))
	if h.attention != nil {
		h.attention.End()
		if errors.Is(err, io.EOF) {
			h.relax()
		}
	}
	h.cancel(nil)
	if ok && !errors.Is(err, io.EOF) {
		return silent
	}
	return h.listener.explain(h.wire, err)
}

// silentError is the end of an attempt whose server said nothing at all. It is a status, as
// other errors of calls are.
type silentError struct {
	address string
	silence time.Duration
}

func (e *silentError) Error() string {
	return fmt.Sprintf("%s has said nothing for %v: it is stopped, or the network between does not carry what it says", e.address, e.silence)
}

// GRPCStatus makes it an error of a server that is not there.
func (e *silentError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// Silent says whether err is that of an attempt whose server said nothing at all, and what its
// address is: to ask the same one again is of little use.
func Silent(err error) (address string, ok bool) {
	silent, ok := errors.AsType[*silentError](err)
	if !ok {
		return "", false
	}
	return silent.address, true
}
