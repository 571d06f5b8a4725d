package constructor

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/hostmem"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestShortOfDescriptors: no line is promised that would take the descriptors of ranks that have not come yet, or of other
// lines that were promised, and the log says so once.
func TestShortOfDescriptors(t *testing.T) {
	left, log := files{}, &strings.Builder{}
	s := &sharing{machine: "here", socket: &hostmem.Listener{Path: "s"}, tickets: map[hostmem.Ticket]ticket{}, files: func(int) files { return left }}
	c := &Constructor{sharing: s, steps: deliver.New()}
	c.opts.Log = slog.New(slog.NewTextHandler(log, nil))
	why := func() string {
		t.Helper()
		reply, err := c.Share(t.Context(), &pb.ShareRequest{Rank: &pb.Coordinates{}, Join: 1, Machine: "here"})
		if err != nil || (reply.Reason == "") != (reply.Socket == "s") {
			t.Fatal(reply, err)
		}
		return reply.Reason
	}
	const text = "the constructor has too few file descriptors left (its limit is 40): raise the limit (ulimit -n)"
	left = files{limit: 40, free: spareFiles + 1}
	if why() != "" || why() != text || why() != text {
		t.Error("a line is to be promised for what is free, and no second one")
	}
	if s.short(files{limit: 40, free: spareFiles + 3}, 0) != "" || s.short(files{limit: 40, free: spareFiles + 3}, 1) == "" {
		t.Error("a rank that has not come yet is to have its connection")
	}
	s.void(deliver.Rank{}, 1)
	if why() != "" {
		t.Error("the line of a rank that has come by a stream is still promised")
	}
	left.uncounted = true
	if why() != "" {
		t.Error("descriptors that are not counted are too few")
	}
	for range 3 {
		c.notTaken(syscall.EMFILE)
	}
	if why() != text {
		t.Error("lines are promised though none can be taken")
	}
	s.shortTill = time.Now()
	if why() != "" {
		t.Error("lines are promised no more, once one could not be taken")
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines of log: %s", n, log)
	}
}

// TestDescriptorsOfRanksThatComeAgain: a rank whose line has ended is to have its connection when it is started again, whether
// it has joined again or not.
func TestDescriptorsOfRanksThatComeAgain(t *testing.T) {
	left := files{limit: 40}
	steps := deliver.New()
	steps.Take(&pb.ConstructorJob{Mesh: &pb.Mesh{Dp: 3, Cp: 1, Pp: 1, Tp: 1}, Buckets: []uint32{0, 1, 2}, Ahead: 8}, 100)
	steps.Restart(&pb.Restart{Generation: 1})
	s := &sharing{machine: "here", socket: &hostmem.Listener{Path: "s"}, tickets: map[hostmem.Ticket]ticket{}, files: func(int) files { return left }}
	c := &Constructor{sharing: s, steps: steps}
	c.opts.Log = slog.New(slog.DiscardHandler)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var leaves []func()
	for dp := range uint32(3) {
		rank := deliver.Rank{DP: dp}
		_, leave, err := steps.Attend(t.Context(), rank, deliver.Way{Name: deliver.Shared})
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
		if _, _, err := steps.Get(ended, deliver.Caller{Rank: rank, Generation: 1}, 0); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	check := func(when string, away int) {
		t.Helper()
		for free, given := range map[int]bool{spareFiles + away: false, spareFiles + away + 1: true} {
			left.free = free
			if why := c.crowded(); (why == "") != given {
				t.Errorf("%s, with %d descriptors beside the spare ones: %q", when, free-spareFiles, why)
			}
		}
	}
	check("while all ranks are there", 0)
	for i, leave := range leaves {
		leave()
		check("after ranks have ended", i+1)
	}
	_, leave, err := steps.Attend(t.Context(), deliver.Rank{}, deliver.Way{Name: deliver.Stream})
	if err != nil {
		t.Fatal(err)
	}
	check("after one has come again", 2)
	leave()
}

// TestOpenFiles counts those of this process.
func TestOpenFiles(t *testing.T) {
	if f := openFiles(1); !f.uncounted || f.limit == 0 {
		t.Errorf("%+v, though one is enough", f)
	}
	if f := openFiles(1 << 40); !f.uncounted && (f.free <= 0 || uint64(f.free) >= f.limit) {
		t.Errorf("%+v", f)
	}
}
