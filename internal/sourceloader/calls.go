package sourceloader

import (
	"cmp"
	"fmt"
	"sync"
	"time"
)

// calls are those of functions that are on their way. A call may take as long as the limits of its function let it,
// which then say what is wrong better than anybody who waited: until then it is no standstill.
type calls struct {
	mu   sync.Mutex
	open map[*call]bool
	past time.Duration // that those took which are over
}

// call is what a function was given.
type call struct {
	calls  *calls
	source string
	what   string // stage, records and file
	since  time.Time
}

func (c *call) begin() {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	c.since = time.Now()
	if c.calls.open == nil {
		c.calls.open = map[*call]bool{}
	}
	c.calls.open[c] = true
}

func (c *call) end() {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	c.calls.past += time.Since(c.since)
	delete(c.calls.open, c)
}

// seconds is how long all calls took together, which rises as long as there is one.
func (c *calls) seconds() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.past
	for call := range c.open {
		all += time.Since(call.since)
	}
	return uint64(all / time.Second)
}

// longest says which call of a source began first; "" if none is on its way.
func (c *calls) longest(source string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first *call
	for call := range c.open {
		if call.source == source && (first == nil || cmp.Or(call.since.Compare(first.since), cmp.Compare(call.what, first.what)) < 0) {
			first = call
		}
	}
	if first == nil {
		return ""
	}
	return fmt.Sprintf("%s, for %.0f s", first.what, time.Since(first.since).Seconds())
}
