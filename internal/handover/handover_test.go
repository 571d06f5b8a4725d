package handover_test

import (
	"context"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/handover"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/samples"
)

// served is a loader behind the wire. It answers block 9 when it may.
type served struct {
	pb.UnimplementedLoaderServer
	asked, may chan struct{}
}

func (s *served) Fetch(req *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	if req.Blocks[0].Seq == 9 {
		s.asked <- struct{}{}
		<-s.may
	}
	sets, _ := loader{}.Samples(stream.Context(), req)
	body, err := samples.Encode(sets)
	if err != nil {
		return err
	}
	return rpc.SendBody(stream, &pb.FetchHeader{BodySize: uint64(len(body))}, body, nil)
}

// serve serves a loader on a unix socket for the time of a test.
func serve(t *testing.T) (*served, string) {
	t.Helper()
	address := "unix:" + filepath.Join(t.TempDir(), "l")
	listener, err := rpc.Listen(address, rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	s := &served{asked: make(chan struct{}), may: make(chan struct{})}
	pb.RegisterLoaderServer(server, s)
	done := make(chan error, 1)
	life, stop := context.WithCancel(context.Background())
	go func() { done <- rpc.Serve(life, server, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, address
}

func ask(seq uint64) *pb.FetchRequest {
	return &pb.FetchRequest{Blocks: []*pb.BlockSamples{{Seq: seq}, {Seq: seq + 1}}}
}

// TestSameEitherWay: a loader of this process and one of another give the same samples.
func TestSameEitherWay(t *testing.T) {
	_, far := serve(t)
	exchange := new(handover.Exchange)
	defer exchange.Offer("unix:/near", loader{})()
	d := handover.NewDirectory(exchange, rpc.Security{})
	defer d.Close()
	var got [][]samples.Set
	for _, s := range d.Place([]string{"unix:/near", far}) {
		sets, err := s.Samples(t.Context(), ask(3))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, sets)
	}
	for k := range got[0] {
		if near, far := got[0][k], got[1][k]; !reflect.DeepEqual(near.Tokens, far.Tokens) || !reflect.DeepEqual(near.Offsets, far.Offsets) {
			t.Errorf("block %d: %v from near, %v from far", k, near, far)
		}
	}
}

// TestLeaving: a call that is under way when its loader leaves the placement is answered; a
// later one hears that another loader is to be asked, until the loader is back.
func TestLeaving(t *testing.T) {
	s, far := serve(t)
	d := handover.NewDirectory(nil, rpc.Security{})
	defer d.Close()
	before := d.Place([]string{"unix:/nobody", far})[1]
	answered := make(chan error, 1)
	go func() {
		_, err := before.Samples(t.Context(), ask(9))
		answered <- err
	}()
	<-s.asked
	if same := d.Place([]string{far})[0]; same != before {
		t.Error("a loader that stays is connected to once more")
	}
	d.Place(nil)
	if _, err := before.Samples(t.Context(), ask(1)); fault.ClassOf(err) != fault.Lost {
		t.Errorf("a loader that left: %v", err)
	}
	close(s.may)
	if err := <-answered; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if _, err := d.Place([]string{far})[0].Samples(t.Context(), ask(1)); err != nil {
		t.Errorf("the loader is back: %v", err)
	}
}

// TestNoLoader: an address where nobody is says that another loader is to be asked, one that
// cannot be says what to change.
func TestNoLoader(t *testing.T) {
	d := handover.NewDirectory(nil, rpc.Security{})
	defer d.Close()
	for i, want := range []fault.Class{fault.Lost, fault.User} {
		if _, err := d.Place([]string{"unix:/nobody", "nobody"})[i].Samples(t.Context(), ask(1)); fault.ClassOf(err) != want {
			t.Errorf("%v is of class %v", err, fault.ClassOf(err))
		}
	}
}
