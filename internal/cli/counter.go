package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/millrace-data/millrace/internal/preview"
)

// counter tells a person who waits how far a plan is: on a terminal one line that
// is drawn again and again, elsewhere a line now and then.
type counter struct {
	what     string
	from, to int64 // to is 0 if it is not known
	began    time.Time
	told     time.Time
	live     bool // standard error is a terminal
	drawn    bool
}

// countEvery is how often a line is printed where it stays.
const countEvery = 10 * time.Second

// newCounter counts n steps from one on; 0 is not known.
func newCounter(what string, from, steps int64) *counter {
	c := &counter{what: what, from: from, began: time.Now(), told: time.Now(), live: terminalWidth(os.Stderr) > 0}
	if steps > 0 {
		c.to = from + steps
	}
	return c
}

// at notes that a step is done.
func (c *counter) at(step int64) {
	every := countEvery
	if c.live {
		every = time.Second
	}
	if time.Since(c.told) < every {
		return
	}
	c.told = time.Now()
	text := c.what + " " + preview.Count(step+1, "step")
	if c.to > 0 {
		text += fmt.Sprintf(" of %d", c.to)
	}
	text += fmt.Sprintf(", %.0f a second", float64(step+1-c.from)/time.Since(c.began).Seconds())
	if c.drawn = c.live; c.live {
		fmt.Fprintf(os.Stderr, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(os.Stderr, text)
}

// end takes the live line away.
func (c *counter) end() {
	if c.drawn {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}
