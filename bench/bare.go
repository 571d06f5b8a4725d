package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// bareArgs are the arguments of the roles bare-serve and bare-consume: gRPC that
// moves bodies of the same sizes as the service's batches, and nothing else.
type bareArgs struct {
	Address string
	Server  int   // its process id
	Sizes   []int // bytes of a batch, by rank
	Steps   int
}

// bareServer sends each rank a body of its size, always the same memory.
type bareServer struct {
	pb.UnimplementedConstructorServer
	bodies [][]byte
}

func (s *bareServer) Batch(req *pb.BatchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	body := s.bodies[req.Rank.GetDp()]
	return rpc.SendBody(stream, &pb.BatchHeader{Step: req.Step, BodySize: uint64(len(body))}, body, nil)
}

func bareServe(ctx context.Context, arg string) error {
	var a bareArgs
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		return err
	}
	s := &bareServer{}
	for _, n := range a.Sizes {
		body := make([]byte, n)
		for i := range body {
			body[i] = byte(i)
		}
		s.bodies = append(s.bodies, body)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server, err := rpc.NewServer(rpc.Security{})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	pb.RegisterConstructorServer(server, s)
	if err := emit(listener.Addr().String()); err != nil {
		return err
	}
	return rpc.Serve(ctx, server, listener)
}

// bareConsume gets all steps of all ranks, each on its own connection and
// into its own buffer, and reports time and CPU.
func bareConsume(ctx context.Context, arg string) error {
	var a bareArgs
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		return err
	}
	ranks := make([]*bareRank, len(a.Sizes))
	for i := range ranks {
		conn, err := rpc.Dial(a.Address, rpc.Security{})
		if err != nil {
			return err
		}
		defer conn.Close()
		ranks[i] = &bareRank{number: i, client: pb.NewConstructorClient(conn)}
		if err := ranks[i].get(ctx, 0); err != nil { // connects, makes the buffer
			return err
		}
	}
	first, err := markNow(a.Server)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range ranks {
		g.Go(func() error {
			for step := range a.Steps {
				if err := r.get(ctx, step); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	last, err := markNow(a.Server)
	if err != nil {
		return err
	}
	return emit(between(first, last))
}

type bareRank struct {
	number int
	client pb.ConstructorClient
	buf    []byte
}

func (r *bareRank) get(ctx context.Context, step int) error {
	stream, err := r.client.Batch(ctx, &pb.BatchRequest{Step: uint64(step), Rank: &pb.Coordinates{Dp: uint32(r.number)}})
	if err != nil {
		return err
	}
	header := &pb.BatchHeader{}
	body, err := rpc.ReceiveBody(stream, header, r.buf)
	if cap(r.buf) == 0 {
		r.buf = make([]byte, len(body)+2*rpc.Alignment)
	}
	return err
}

// bareRun runs both ends in separate processes.
func bareRun(ctx context.Context, sizes []int, steps int) (consumed, error) {
	var moved consumed
	server, err := start(ctx, "bare-serve", bareArgs{Sizes: sizes})
	if err != nil {
		return moved, err
	}
	defer server.stop()
	a := bareArgs{Server: server.pid(), Sizes: sizes, Steps: steps}
	if err := server.receive(&a.Address); err != nil {
		return moved, err
	}
	ranks, err := start(ctx, "bare-consume", a)
	if err != nil {
		return moved, err
	}
	defer ranks.stop()
	err = ranks.receive(&moved)
	return moved, err
}
