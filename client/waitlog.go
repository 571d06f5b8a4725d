package client

import (
	"context"
	"encoding/json"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

const (
	waitLogAfter  = 10 * time.Second // a call takes before the log mentions it: ranks that are started together need less
	waitLogEvery  = time.Minute      // between two such lines
	statusTimeout = 5 * time.Second  // of the question what the service waits for
)

// logWait logs what the service waits for if a call takes long. The function that it returns
// ends that, and waits for a line that is being written. what completes "the rank waits".
func (c *Client) logWait(ctx context.Context, what string) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	begin, ended := time.Now(), make(chan struct{})
	rank, step := c.opts.Rank, c.next // Remesh changes them while it waits
	timer := time.AfterFunc(waitLogAfter, func() {
		defer close(ended)
		for {
			c.logWaiting(ctx, rank, step, what, time.Since(begin))
			select {
			case <-time.After(waitLogEvery):
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		if !timer.Stop() {
			<-ended
		}
	}
}

func (c *Client) logWaiting(ctx context.Context, rank Rank, step int64, what string, waited time.Duration) {
	asking, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var status struct {
		WaitingFor string `json:"waiting_for"`
	}
	reply, err := pb.NewPlannerClient(c.planners.now().conn).Status(asking, &pb.StatusRequest{})
	if err == nil {
		err = json.Unmarshal(reply.Json, &status)
	}
	if ctx.Err() != nil {
		return // the call has ended
	}
	attrs := []any{"rank", rank.String(), "seconds", int(waited.Seconds()), "service", c.address}
	if err != nil {
		c.opts.Log.Warn("the rank waits "+what+", and the service does not say why: is it running there, and with the same TLS settings?", append(attrs, "err", rpc.FromStatus(err))...)
		return
	}
	c.opts.Log.Warn("the rank waits "+what, append(attrs, "step", step, "waiting_for", status.WaitingFor)...)
}
