package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// memoryPeak is the most memory that a process has had, in MiB.
func memoryPeak(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Skipf("this system does not say what memory a process has: %v", err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Skip("this system does not say what memory a process had")
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

// same sends one message again and again, from where it lies.
type same struct{ message []byte }

func (s same) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(s.message)}, nil
}
func (same) Unmarshal(mem.BufferSlice, any) error { return nil }
func (same) Name() string                         { return "proto" }

func dial(t testing.TB, address, planner string) rpc.Conn {
	t.Helper()
	conn, err := rpc.Dial(address, rpc.Security{}.Of(planner))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestLargeRequests: requests of 250 MB take no memory of any role, from whoever they come, and
// are refused with the limit's name; the job goes on.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, folder(t))
	c, err := open(t, s, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	message := protowire.AppendTag(nil, 5, protowire.BytesType) // a token, or what is not known
	const large = 250_000_000
	message = append(protowire.AppendVarint(message, large), make([]byte, large)...)
	before := memoryPeak(t, s.cmd.Process.Pid)
	for method, limit := range map[string]string{pb.Planner_Join_FullMethodName: "max_control", pb.Planner_Change_FullMethodName: "max_control", pb.Constructor_Batch_FullMethodName: "max_ask"} {
		address := s.address
		if method == pb.Constructor_Batch_FullMethodName {
			address = joined(t, s).Constructor
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				conn := dial(t, address, s.address)
				err := rpc.FromStatus(conn.Invoke(t.Context(), method, message, nil, grpc.ForceCodecV2(same{message})))
				if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "limit "+limit) {
					t.Errorf("%s with 250 MB: %v", method, err)
				}
			})
		}
		all.Wait()
	}
	if after := memoryPeak(t, s.cmd.Process.Pid); after > before+200 {
		t.Errorf("twelve requests of 250 MB brought the service from %d to %d MiB", before, after)
	}
	if _, err := c.Next(t.Context()); err != nil {
		t.Errorf("the job does not go on: %v", err)
	}
}

// joined is the answer to a rank that joins.
func joined(t testing.TB, s *server) *pb.JoinReply {
	t.Helper()
	reply, err := pb.NewPlannerClient(dial(t, s.address, s.address)).Join(t.Context(), &pb.JoinRequest{Rank: &pb.Coordinates{Dp: 1}, Protocol: rpc.Protocol})
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestManyRequests: 20,000 requests for a step that never comes, and as many for one that waits
// for other ranks, take little memory and are refused with the limit's name; the job goes on.
func TestManyRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, folder(t))
	place := joined(t, s)
	before := memoryPeak(t, s.cmd.Process.Pid)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var told sync.Map
	for i := range 100 {
		batches := pb.NewConstructorClient(dial(t, place.Constructor, s.address))
		for k := range 200 {
			all.Go(func() {
				step := uint64(1) << 40
				if (i+k)%2 == 0 {
					step = 9 // rank 0 asks for none: it is not planned
				}
				stream, err := batches.Batch(ctx, &pb.BatchRequest{Rank: &pb.Coordinates{Dp: 1}, Step: step, Generation: place.Generation, Join: place.Join})
				if err == nil {
					_, err = stream.Recv()
				}
				if err = rpc.FromStatus(err); fault.ClassOf(err) == fault.User {
					told.Store(fmt.Sprint(step), err.Error())
				}
			})
		}
	}
	for step, limit := range map[string]string{fmt.Sprint(uint64(1) << 40): "furthest_step", "9": "max_waiting_of_rank"} {
		for end := time.Now().Add(hangs); ; time.Sleep(10 * time.Millisecond) {
			if text, ok := told.Load(step); ok && strings.Contains(text.(string), "limit "+limit) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("nobody who asks for step %s hears of the limit %s", step, limit)
			}
		}
	}
	cancel()
	all.Wait()
	if after := memoryPeak(t, s.cmd.Process.Pid); after > before+200 {
		t.Errorf("20,000 requests brought the service from %d to %d MiB", before, after)
	}
	millrace(t, s.cmd.Dir, "status", s.address).expect(t, 0)
}
