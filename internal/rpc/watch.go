package rpc

import "time"

// Watch takes a server for silent that says nothing while it owes something, as calls for data are watched, on
// a line that is no call. It is for one that says Waiting, and its methods are for one goroutine.
type Watch struct {
	attention *Attention
	least     int       // rounds without a word
	since     time.Time // the wait for the next answer began
	begun     bool
}

// firstRounds are those without a word on a line that has brought none yet: the server may not have taken it. One that
// is busy gets more time for that than for words on a line that it has.
const firstRounds = 10

// NewWatch calls silent, once, when the server at address has said nothing for too long though owed says that
// it has to: least are the rounds without a word that it asks for (Rounds); before the first word there may be
// more. The error is one of Silent.
func NewWatch(address string, least int, owed func() bool, silent func(error)) *Watch {
	return &Watch{least: least, attention: attend(waitingEvery, max(least, firstRounds), owed, func(rounds int) {
		silent(FromStatus(&silentError{address, time.Duration(rounds) * waitingEvery}))
	})}
}

// Heard notes a word of the server; whole says that it is all of an answer.
func (w *Watch) Heard(whole bool) {
	w.attention.Heard()
	switch {
	case whole:
		w.begun = false
		w.attention.Allow(w.least)
	case !w.begun:
		w.begun, w.since = true, time.Now()
		w.attention.Allow(w.least)
	default:
		w.attention.Allow(max(w.least, roundsAfter(quietRounds, time.Since(w.since))))
	}
}

// End ends the watch.
func (w *Watch) End() { w.attention.End() }
