package client

import (
	"context"
	"errors"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
)

// ErrClosed is the error of calls of a client that is closed, and of those that wait while it is. It is a *UserError; test
// for it with errors.Is.
var ErrClosed = fault.Userf("the client is closed; open another one")

// closing is how Close meets the calls that are under way in other goroutines. The zero value is of a client that
// nobody closes.
type closing struct {
	once  sync.Once
	begun chan struct{} // closed by Close: calls that wait end
	mu    sync.Mutex    // held while begun is closed, and while a call begins: none does afterwards
	calls sync.WaitGroup
}

// enter begins a call, unless the client is closed. Close waits until it calls leave.
func (c *closing) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.begun:
		return ErrClosed
	default:
		c.calls.Add(1)
		return nil
	}
}

func (c *closing) leave() { c.calls.Done() }

// shut ends the calls that wait, and returns when none is under way any more.
func (c *closing) shut() {
	c.mu.Lock()
	close(c.begun)
	c.mu.Unlock()
	c.calls.Wait()
}

// Close ends the client. Any goroutine may call it, such as that of a signal handler, and again: a call that waits in
// another one, such as Next, ends at once with ErrClosed, but for Report, whose few seconds Close waits. It returns when
// the service knows what calls of Next have acknowledged: the steps before the last batch returned, and the last one,
// too, if Next was called again. That may take some seconds if the service does not answer.
func (c *Client) Close() (err error) {
	c.closing.once.Do(func() { err = c.close() })
	return err
}

func (c *Client) close() error {
	c.closing.shut() // what follows is of what those calls use
	c.leaving.Store(true)
	switch {
	case c.reader != nil:
		c.acks.close()
		c.reader.close()
	case c.began && c.Fetches(): // nobody looks whether the request that took the position along arrived
		ctx, cancel := context.WithTimeout(context.Background(), lastAck)
		_ = c.ack(ctx, c.position.Load()) // as the last one of a client that reads ahead, it is not made again
		cancel()
	}
	c.dropStream()
	err := c.session.close()
	if c.planners != nil {
		err = errors.Join(err, c.planners.close())
	}
	return err
}
