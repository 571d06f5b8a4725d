package service_test

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/planner/status"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// slow is a store whose reads take a while.
type slow struct {
	store.Store
	pause atomic.Int64 // ns of each read
}

func (s *slow) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	h, err := s.Store.Open(ctx, obj)
	if err != nil {
		return nil, err
	}
	return &slowHandle{h, s}, nil
}

type slowHandle struct {
	store.Handle
	of *slow
}

func (h *slowHandle) ReadAt(p []byte, off int64) (int, error) {
	time.Sleep(time.Duration(h.of.pause.Load()))
	return h.Handle.ReadAt(p, off)
}

// TestStall: the status says that trainers wait on data, and on which source, while its files are slow; that they wait
// for the rank that is slow; and that data waits on trainers, when all of them are.
func TestStall(t *testing.T) {
	t.Parallel()
	disk := &slow{Store: store.Local{}}
	r := recipe{"stalls", "sources:" + books + "\nmix: {weights: {books: 1}, epochs: 100000}\nbatch: {sequence_length: 256, sequences: 4, microbatch_size: 1}\ntopology: {dp: 2}\n", 0, ""}
	s := startProxiedOn(t, writeSources(t), r, 1, 1, disk)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	var ranks sync.WaitGroup
	defer ranks.Wait()
	defer cancel()
	var pace [2]atomic.Int64 // ns that each rank works for a step
	for dp := range pace {
		ranks.Go(func() {
			c, err := client.Open(ctx, s.address, client.Options{Rank: client.Rank{DP: dp}, Security: s.security})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for ctx.Err() == nil {
				if _, err := c.Next(ctx); err != nil {
					if ctx.Err() == nil || err == io.EOF {
						t.Error(err)
					}
					return
				}
				time.Sleep(time.Duration(pace[dp].Load()))
			}
		})
	}
	const work = 40 * time.Millisecond
	for _, c := range []struct {
		name, cause, who     string
		pause, first, second time.Duration
	}{
		{"its files are slow", "source", "books", 5 * work, 0, 0},
		{"a rank is slow", "rank", "rank dp=1 cp=0 pp=0 tp=0", 0, 0, 5 * work},
		{"trainers are", "trainers", "", 0, 5 * work, 5 * work},
	} {
		disk.pause.Store(int64(c.pause))
		pace[0].Store(int64(c.first))
		pace[1].Store(int64(c.second))
		var x status.Service
		for x.Stall.Cause != c.cause || x.Stall.Name != c.who {
			select {
			case <-ctx.Done():
				t.Fatalf("%s: the status says %+v, with %+v and %+v", c.name, x.Stall, x.Trainers, x.Holdups)
			case <-time.After(50 * time.Millisecond):
			}
			x = statusBy(t, s.address, s.security)
		}
		t.Log(x.Stall.Line)
	}
}

// statusBy asks a service for its status, as somebody who has its key.
func statusBy(t *testing.T, address string, security rpc.Security) (s status.Service) {
	t.Helper()
	conn, err := rpc.Dial(address, security)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reply, err := pb.NewPlannerClient(conn).Status(t.Context(), &pb.StatusRequest{})
	if err == nil {
		err = json.Unmarshal(reply.Json, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}
