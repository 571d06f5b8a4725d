package rpc_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestEpochs: what a planner of a lower epoch says is refused and counted, whoever named the
// higher one; a planner hears of each refusal once.
func TestEpochs(t *testing.T) {
	var e rpc.Epochs
	for _, epoch := range []uint64{0, 0, 3, 3, 4} {
		if err := e.Check(epoch); err != nil {
			t.Fatalf("epoch %d: %v", epoch, err)
		}
	}
	e.Hear(2)
	e.Hear(7)
	for epoch, says := range map[uint64]string{0: "it keeps no log, has not opened it, or failed", 4: "took over with epoch 7", 6: "took over with epoch 7"} {
		if err := e.Check(epoch); fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "epoch 7") {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	highest, refused, told := e.Tell()
	if highest != 7 || refused != 3 || e.Refused() != 3 {
		t.Errorf("it knows of epoch %d, and refused %d of %d", highest, refused, e.Refused())
	}
	_, again, _ := e.Tell()
	told()
	if _, none, _ := e.Tell(); again != 3 || none != 0 {
		t.Errorf("told of %d, and after the answer of %d", again, none)
	}
}

// zombie is a planner of an epoch whose place another one took meanwhile: it gives an order
// when it is let to.
type zombie struct {
	pb.UnimplementedPlannerServer
	epoch  uint64
	orders chan *pb.LoaderOrder
	hellos chan uint64
}

func (z *zombie) Load(stream grpc.BidiStreamingServer[pb.LoaderReport, pb.LoaderOrder]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	z.hellos <- first.GetHello().GetEpoch()
	if err := stream.Send(&pb.LoaderOrder{Order: &pb.LoaderOrder_Epoch{Epoch: z.epoch}}); err != nil {
		return err
	}
	for {
		select {
		case o := <-z.orders:
			if err := stream.Send(o); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// TestZombieInSession: a role in a session with a planner, whom somebody else tells of a higher
// epoch, takes no further order and no beat of that planner, and looks for the next one, which
// it tells of that epoch.
func TestZombieInSession(t *testing.T) {
	for _, name := range []string{"order", "beat"} {
		t.Run(name, func(t *testing.T) {
			planner := &zombie{epoch: 2, orders: make(chan *pb.LoaderOrder), hellos: make(chan uint64, 8)}
			at, end := serve(t, "127.0.0.1:0", planner)
			defer end()
			late := map[string]*pb.LoaderOrder{
				"order": {Order: &pb.LoaderOrder_Read{Read: &pb.ReadBlock{Seq: 8}}},
				"beat":  {Order: &pb.LoaderOrder_Beat{Beat: &pb.Beat{}}},
			}[name]
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			r := role(at, slog.New(slog.DiscardHandler))
			greet := func(epoch uint64) *pb.LoaderReport {
				return &pb.LoaderReport{Report: &pb.LoaderReport_Hello{Hello: &pb.LoaderHello{Epoch: epoch}}}
			}
			var taken []uint64
			ended := make(chan error, 1)
			go func() {
				ended <- rpc.Talk(ctx, r, pb.PlannerClient.Load, greet, func(ctx context.Context, s *session) error {
					return s.Each(ctx, func(o *pb.LoaderOrder) error {
						taken = append(taken, o.GetRead().GetSeq())
						r.Epochs.Hear(3) // as a constructor says that fetches a block
						return nil
					})
				})
			}()
			first := <-planner.hellos
			planner.orders <- &pb.LoaderOrder{Order: &pb.LoaderOrder_Read{Read: &pb.ReadBlock{Seq: 7}}}
			planner.orders <- late
			if again := <-planner.hellos; first != 0 || again != 3 {
				t.Errorf("it said that it heard of epoch %d, then of %d, want 0 and 3", first, again)
			}
			stop()
			if err := <-ended; err != nil || len(taken) != 1 || taken[0] != 7 {
				t.Errorf("orders %v were taken, want that of block 7; %v", taken, err)
			}
			if r.Epochs.Refused() == 0 {
				t.Error("no refusal was counted")
			}
		})
	}
}
