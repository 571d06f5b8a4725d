package constructor

import (
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

// TestOpenFiles counts those of this process.
func TestOpenFiles(t *testing.T) {
	if f := openFiles(1); !f.uncounted || f.limit == 0 {
		t.Errorf("%+v, though one is enough", f)
	}
	if f := openFiles(1 << 40); !f.uncounted && (f.free <= 0 || uint64(f.free) >= f.limit) {
		t.Errorf("%+v", f)
	}
}
