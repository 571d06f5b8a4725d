package client

import (
	"context"
	"encoding/json"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

const (
	wordAfter = 10 * time.Second // a call takes before the log says so: ranks that are started together come sooner
	wordEvery = time.Minute      // and how often it says so again
	wordTime  = 5 * time.Second  // the service may take to say why
)

// speak has the log say what the service waits for if that takes long. The caller ends
// it with the function that it returns, which waits for what is being said.
func (c *Client) speak(ctx context.Context, what string) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	begin, said := time.Now(), make(chan struct{})
	timer := time.AfterFunc(wordAfter, func() {
		defer close(said)
		for {
			c.say(ctx, what, time.Since(begin))
			select {
			case <-time.After(wordEvery):
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		if !timer.Stop() {
			<-said
		}
	}
}

func (c *Client) say(ctx context.Context, what string, waited time.Duration) {
	asking, cancel := context.WithTimeout(ctx, wordTime)
	defer cancel()
	var status struct {
		WaitingFor string `json:"waiting_for"`
	}
	reply, err := pb.NewPlannerClient(c.planner).Status(asking, &pb.StatusRequest{})
	if err == nil {
		err = json.Unmarshal(reply.Json, &status)
	}
	if ctx.Err() != nil {
		return // it came
	}
	attrs := []any{"rank", c.opts.Rank.String(), "seconds", int(waited.Seconds()), "service", c.address}
	if err != nil {
		c.opts.Log.Warn("the rank waits "+what+", and the service does not say why: is it running there, and with the same TLS settings?", append(attrs, "err", rpc.FromStatus(err))...)
		return
	}
	c.opts.Log.Warn("the rank waits "+what, append(attrs, "step", c.next, "waiting_for", status.WaitingFor)...)
}
