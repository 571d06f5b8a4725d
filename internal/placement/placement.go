// Package placement says who reads a block whose loader is not there.
//
// It owns that rule alone, which the planner and constructors have to agree on without a
// word: the planner has a block read again where constructors will ask for it. It knows no
// loader, only places and which of them are open, and starts nothing.
package placement

import "strings"

// None is in place of a place when there is none.
const None = -1

// Deal returns the open place that a block goes to whose own is not open; None if no place
// is. The blocks of one place are spread evenly over all others, and when one more closes,
// only its own move.
func Deal(source uint32, seq uint64, open []bool) int {
	best, most := None, uint64(0)
	of := mix(uint64(source)<<32 ^ mix(seq))
	for i, ok := range open {
		if !ok {
			continue
		}
		if x := mix(of + uint64(i)); best == None || x > most {
			best, most = i, x
		}
	}
	return best
}

// mix spreads the bits of x: the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Host is the machine of an address, as far as the address says: all unix sockets and
// loopback addresses are of this one.
func Host(address string) string {
	host := address
	if i := strings.LastIndexByte(address, ':'); i >= 0 {
		host = address[:i]
	}
	host = strings.Trim(host, "[]")
	if host == "::1" || strings.HasPrefix(address, "unix:") || strings.HasPrefix(host, "127.") {
		return "localhost"
	}
	return host
}
