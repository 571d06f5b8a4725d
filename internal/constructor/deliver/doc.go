// Package deliver holds the built steps of a constructor until every rank is done with
// them, and answers the ranks' requests for them.
//
// It owns the plans that are to be built and the memory budget of what is built, the
// position of every rank, the requests that wait and their limits, and who of the ranks
// holds the others up. It builds nothing and sends nothing: a builder claims plans and
// returns steps, a server asks on behalf of ranks. It has no network, no goroutine and no
// file; the only clock that it reads is how long a rank has waited, for messages.
//
// An acknowledgement costs the same however many ranks there are: ranks are counted by
// position, so the slowest is known without looking at the others, and it wakes only those
// who can go on because of it.
package deliver
