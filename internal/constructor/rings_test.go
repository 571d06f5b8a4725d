package constructor

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/hostmem"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// sharedJob is a constructor of a job whose two TP ranks get the same bytes.
func sharedJob(t *testing.T, budget int64) (c *Constructor, stepOf func(number uint64, tokens int) *deliver.Step) {
	t.Helper()
	m, err := hostmem.Create(4096)
	if err != nil {
		t.Skip("no memory is shared here: ", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	job := &pb.ConstructorJob{Mesh: &pb.Mesh{Dp: 1, Cp: 1, Pp: 1, Tp: 2}, Buckets: []uint32{0}}
	layout := assemble.Layout{Format: assemble.Megatron, CPSlicing: assemble.Zigzag, CP: 1, PP: 1, Packed: true}
	c = &Constructor{steps: deliver.New(), sharing: &sharing{tickets: map[hostmem.Ticket]ticket{}, groups: map[sharer]*sharers{}}}
	c.job.set(job, layout)
	c.steps.Take(job, budget)
	return c, func(number uint64, tokens int) *deliver.Step {
		from := c.job.now()
		only := row{Row: batch.Row{Segments: [][]int32{slices.Repeat([]int32{int32(number)}, tokens)}}}
		return &deliver.Step{Number: number, Content: &step{number: number, length: tokens, total: 1, from: from, rows: []row{only}}}
	}
}

// read checks that a part holds what the rank gets otherwise, and returns whether it lies in a slot.
func read(t *testing.T, c *Constructor, got *deliver.Step, p *part) (inRing bool) {
	t.Helper()
	body := p.body
	if p.ring != nil {
		from := int(p.place.Offset)
		body = p.ring.memory.Bytes()[from : from+p.size]
	}
	_, want, err := c.partOf(got, deliver.Rank{}, false, nil)
	if err != nil || !bytes.Equal(body, want) {
		t.Errorf("step %d differs, %v", got.Number, err)
	}
	return p.ring != nil
}

func take(t *testing.T, g *sharers, got *deliver.Step, has uint64) *part {
	t.Helper()
	p, err := g.take(got, deliver.Rank{}, has)
	if err != nil {
		t.Fatal(err)
	}
	if p.fd >= 0 {
		if err := unix.Close(p.fd); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// TestSlots: no slot is written that a rank has, and none is waited for; TP ranks have one copy.
func TestSlots(t *testing.T) {
	c, step := sharedJob(t, 64<<20)
	g := c.sharing.enter(c, sharer{}, 4)
	if other := c.sharing.enter(c, sharer{rank: deliver.Rank{TP: 1}}, 4); other != g {
		t.Fatal("TP ranks have two groups")
	}
	if read(t, c, step(0, 10), take(t, g, step(0, 10), 0)) {
		t.Error("the first step lies in a ring whose size nobody knew")
	}
	held := map[uint64]*part{}
	steps := map[uint64]*deliver.Step{}
	for n := uint64(1); n <= 6; n++ {
		steps[n] = step(n, 10)
		held[n] = take(t, g, steps[n], 0)
		if inRing := read(t, c, steps[n], held[n]); inRing != (n <= 4) {
			t.Errorf("step %d of 4 slots lies in the ring: %v", n, inRing)
		}
	}
	again := take(t, g, steps[2], held[2].ring.number)
	if again.place != held[2].place || again.fd != -1 {
		t.Error("the second TP rank got another copy")
	}
	g.free(held[2].ring, held[2].slot)
	if read(t, c, step(7, 10), take(t, g, step(7, 10), 0)) {
		t.Error("a slot was written that a TP rank still has")
	}
	g.free(again.ring, again.slot)
	if p := take(t, g, step(8, 10), 0); p.ring == nil || p.place != held[2].place {
		t.Error("a slot that both ranks gave back was not used")
	}
	for _, n := range []uint64{1, 3, 4} {
		read(t, c, steps[n], held[n])
	}
}

// TestRings: a larger body goes beside the ring, and has it replaced; what a rank had when it left is never written
// again; and the budget has its part back.
func TestRings(t *testing.T) {
	c, step := sharedJob(t, 64<<20)
	g := c.sharing.enter(c, sharer{}, 4)
	take(t, g, step(0, 10), 0)
	first := take(t, g, step(1, 10), 0)
	large := step(2, 60_000)
	if read(t, c, large, take(t, g, large, 0)) {
		t.Error("a body that is larger than a slot lies in one")
	}
	second := take(t, g, step(3, 60_000), first.ring.number)
	if second.ring == nil || second.ring == first.ring || second.ring.size <= first.ring.size || first.ring.memory != nil {
		t.Errorf("the ring was not replaced: it is %d of %d bytes", second.ring.number, second.ring.size)
	}
	g.free(first.ring, first.slot) // of a ring that is gone
	if lent := c.steps.Usage().SharedBytes; lent != uint64(second.ring.bytes()) {
		t.Errorf("%d bytes are lent, the ring has %d", lent, second.ring.bytes())
	}
	g.leave(map[uint64]*part{3: second}, false)
	if third := take(t, g, step(4, 10), second.ring.number); third.ring == nil || third.ring == second.ring {
		t.Error("a rank left with a slot, and its ring is used again")
	}
	g.leave(nil, c.sharing.leave(g))
	if u := c.steps.Usage(); u.SharedBytes != 0 || len(c.sharing.groups) != 0 {
		t.Errorf("nobody is there, and %d bytes are lent, for %d groups", u.SharedBytes, len(c.sharing.groups))
	}
}

// TestSmallBudget: rings take half of the budget at most, with fewer slots, or none.
func TestSmallBudget(t *testing.T) {
	for budget, slots := range map[int64]int{10 * slotStep: 4, 4 * slotStep: 2, 2 * slotStep: 0} {
		c, step := sharedJob(t, budget)
		g := c.sharing.enter(c, sharer{}, 4)
		first := take(t, g, step(0, 10), 0)
		p := take(t, g, step(1, 10), 0)
		if first.why != "" || (p.why == noRoom) != (slots == 0) {
			t.Errorf("of %d bytes, %d slots: the first body is apart for %q, the next for %q", budget, slots, first.why, p.why)
		}
		if got := 0; p.ring != nil {
			if got = len(p.ring.slots); got != slots {
				t.Errorf("of %d bytes a ring has %d slots, want %d", budget, got, slots)
			}
		} else if slots != 0 {
			t.Errorf("of %d bytes there is no ring, want %d slots", budget, slots)
		}
	}
}

// TestNoRing: a rank whose bodies go through its socket for good has a reason, and one whose ring is yet to be made has none.
func TestNoRing(t *testing.T) {
	c, step := sharedJob(t, 10*slotStep)
	l := socketOf(t, c)
	for n, size := range []int{10, 10, slotStep, slotStep, 10} {
		if _, err := l.send(step(uint64(n), size), deliver.Rank{}); err != nil {
			t.Fatal(err)
		}
		want := deliver.Way{Name: deliver.Shared}
		if n == 3 { // the one before was the first of its size
			want = deliver.Way{Name: deliver.Socket, Reason: noRoom}
		}
		if got := l.way(); got != want {
			t.Errorf("a body of %d tokens goes by %v, want %v", size, got, want)
		}
	}
}

// TestNoMemory: where the system gives no memory, the reason is its error.
func TestNoMemory(t *testing.T) {
	c, step := sharedJob(t, 64<<20)
	c.opts.Log = slog.New(slog.DiscardHandler)
	l := socketOf(t, c)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)
	for n := range uint64(3) {
		if _, err := l.send(step(n, 10), deliver.Rank{}); err != nil {
			t.Fatal(err)
		}
		if w := l.way(); (w.Name == deliver.Socket && strings.HasSuffix(w.Reason, ": file too large")) != (n > 0) {
			t.Errorf("step %d goes by %v", n, w)
		}
	}
}

// socketOf is a line of the job's rank, which takes all that comes.
func socketOf(t *testing.T, c *Constructor) *socket {
	t.Helper()
	listener, err := hostmem.Listen(t.TempDir())
	if err != nil {
		t.Skip("no memory is shared here: ", err)
	}
	rank, err := hostmem.Dial(t.Context(), listener.Path)
	if err != nil {
		t.Fatal(err)
	}
	line, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var taking sync.WaitGroup
	taking.Go(func() {
		for {
			m, err := rank.Receive()
			if err != nil || rank.ReadBody(make([]byte, m.Body), func() {}) != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_, _ = line.Close(), listener.Close()
		taking.Wait()
		_ = rank.Close()
	})
	return &socket{c: c, conn: line, group: c.sharing.enter(c, sharer{}, 4), held: map[uint64]*part{}}
}

// TestTickets: a ticket is good once, for its rank and join, and for some seconds.
func TestTickets(t *testing.T) {
	c, _ := sharedJob(t, 1<<20)
	rank := &pb.Coordinates{Tp: 1}
	hello := func(r *pb.Coordinates, join uint64) []byte {
		raw, err := proto.Marshal(&pb.DeliverRequest{Rank: r, Join: join})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	issue := func(till time.Duration) []byte {
		k, err := c.sharing.issue(ticket{deliver.RankOf(rank), 7, time.Now().Add(till)})
		if err != nil {
			t.Fatal(err)
		}
		return k[:]
	}
	good := issue(time.Minute)
	for _, x := range []struct {
		name   string
		hello  []byte
		opened bool
	}{
		{"its own", append(good, hello(rank, 7)...), true},
		{"used", append(good, hello(rank, 7)...), false},
		{"of another rank", append(issue(time.Minute), hello(&pb.Coordinates{}, 7)...), false},
		{"of another join", append(issue(time.Minute), hello(rank, 8)...), false},
		{"too old", append(issue(-time.Second), hello(rank, 7)...), false},
		{"made up", append(make([]byte, hostmem.TicketSize), hello(rank, 7)...), false},
		{"none", nil, false},
	} {
		if _, err := c.sharing.admit(x.hello); (err == nil) != x.opened {
			t.Errorf("a ticket that is %s: %v", x.name, err)
		}
	}
}
