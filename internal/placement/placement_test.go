package placement_test

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/placement"
)

// A place is not open: each of its blocks has another one.
func ExampleDeal() {
	open := []bool{true, false, true, true}
	for seq := range uint64(6) {
		fmt.Print(placement.Deal(0, seq, open), " ")
	}
	fmt.Println(placement.Deal(0, 0, []bool{false}))
	// Output: 3 0 2 2 3 0 -1
}

// TestDeal: blocks are spread evenly, and when a place closes only its own move.
func TestDeal(t *testing.T) {
	const places, blocks = 8, 40_000
	open := make([]bool, places)
	for i := range open {
		open[i] = i != 3
	}
	count, before := [places]int{}, [blocks]int{}
	for b := range blocks {
		before[b] = placement.Deal(uint32(b%7), uint64(b/7), open)
		count[before[b]]++
	}
	for i, n := range count {
		if even := blocks / (places - 1); i == 3 && n != 0 || i != 3 && (n < even*9/10 || n > even*11/10) {
			t.Errorf("place %d has %d blocks of %d", i, n, blocks)
		}
	}
	open[5] = false
	for b := range blocks {
		if now := placement.Deal(uint32(b%7), uint64(b/7), open); now != before[b] && before[b] != 5 || now == 5 {
			t.Fatalf("block %d went from place %d to %d", b, before[b], now)
		}
	}
}

func TestHost(t *testing.T) {
	for address, want := range map[string]string{
		"unix:/tmp/l0.sock": "localhost", "127.0.0.1:7": "localhost", "[::1]:7": "localhost", "localhost:7": "localhost",
		"10.0.0.2:7": "10.0.0.2", "node7:7000": "node7", "node7": "node7", "[fe80::2]:7": "fe80::2", "unix:/tmp/with:colon": "localhost",
	} {
		if got := placement.Host(address); got != want {
			t.Errorf("%s is on %s, want %s", address, got, want)
		}
	}
}
