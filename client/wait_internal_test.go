package client

import (
	"errors"
	"testing"
	"time"
)

// TestSentAgain: while a step comes again, of which an attempt before had got more, its call is not late. Once that attempt has broken,
// too, only what none had got before counts.
func TestSentAgain(t *testing.T) {
	const who = "the constructor at host:1"
	c := &Client{opts: Options{Stall: 3 * time.Second}}
	begin := time.Now().Add(-time.Minute)
	w := &wait{c: c, what: "step 1", begin: begin, from: begin}
	p := &c.progress
	p.came(who, 224_000, 400_000)
	p.broke(who, errors.New("it said nothing"))
	p.moved = p.moved.Add(-4 * time.Second)
	if err := w.late(time.Now(), false); err == nil {
		t.Error("nothing comes, and the call goes on")
	}
	p.came(who, 32_000, 400_000)
	p.lost("the planner at host:2", errors.New("it said nothing"))
	if err := w.late(time.Now(), false); err != nil {
		t.Errorf("while the step comes again: %v", err)
	}
	if p.broke(who, errors.New("it said nothing")); w.late(time.Now(), false) == nil {
		t.Error("a link that breaks again and again counts as one that brings steps")
	}
	p.came(who, 256_000, 400_000)
	p.broke(who, errors.New("it said nothing"))
	if err := w.late(time.Now(), false); err != nil {
		t.Errorf("though more came than ever: %v", err)
	}
}
