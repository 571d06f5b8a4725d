package constructor

import (
	"context"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/constructor/deliver"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Peek implements the Constructor service: a rank's part of a step for someone who only
// looks. It takes no acknowledgement, counts nothing, and fails no job.
func (c *Constructor) Peek(req *pb.PeekRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	ctx, cancel := rpc.Early(stream.Context())
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	var got *deliver.Step
	err := rpc.Hold(stream, req.Hears, c.steps.Fetchers(), func() *pb.Waiting { return c.steps.LookWaits(req) }, func() (err error) {
		got, err = c.steps.Look(ctx, req)
		return err
	})
	if err != nil {
		return rpc.ToStatus(err)
	}
	table, body, done, err := c.bodyOf(got, deliver.RankOf(req.Rank), false)
	if err != nil {
		return rpc.ToStatus(err)
	}
	header, err := headerOf(table)
	if err != nil {
		return rpc.ToStatus(err)
	}
	header.Generation = 0 // who looks is of none
	return rpc.SendBody(stream, header, body, done)
}
