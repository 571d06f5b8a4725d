package multibuffer

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// cut cuts bytes into parts, some of them empty.
func cut(rng *rand.Rand, all []byte) (m Message) {
	for len(all) > 0 {
		n := min(rng.IntN(1+rng.IntN(300)), len(all))
		m, all = append(m, all[:n]), all[n:]
	}
	return m
}

func random(rng *rand.Rand, n int) []byte {
	all := make([]byte, n)
	for i := range all {
		all[i] = byte(rng.Uint32())
	}
	return all
}

// TestSums holds sums of messages of every size near a block and a chunk, and of unlike sizes side by side, against
// crypto/sha256.
func TestSums(t *testing.T) {
	able := []int{8, widest}
	if fewest == none {
		able = nil
		t.Log("this processor has no lanes: messages are hashed one after the other")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	sizes := func(name string, sizes []int) {
		messages, want := make([]Message, len(sizes)), make([][32]byte, len(sizes))
		for i, n := range sizes {
			all := random(rng, n)
			messages[i], want[i] = cut(rng, all), sha256.Sum256(all)
		}
		got := Sums(messages)
		if !slices.Equal(got, want) {
			t.Errorf("%s: sums of messages of %v bytes are not those of crypto/sha256", name, sizes)
		}
		for _, lanes := range able { // however few messages there are
			clear(got)
			if inLanes(lanes, messages, got); !slices.Equal(got, want) {
				t.Errorf("%s: sums of messages of %v bytes in %d lanes are not those of crypto/sha256", name, sizes, lanes)
			}
		}
	}
	sizes("none", nil)
	for n := range 33 {
		sizes("alike", slices.Repeat([]int{n * 64}, n))
	}
	var near []int
	for n := range 200 {
		near = append(near, n, 960+n, 2*chunk-100+n)
	}
	sizes("near a block and a chunk", near)
	for range 100 {
		unlike := make([]int, rng.IntN(70))
		for i := range unlike {
			unlike[i] = rng.IntN(1 + rng.IntN(10_000))
		}
		sizes("unlike", unlike)
	}
	sizes("one giant", append(make([]int, 20), 1<<20))
}

func BenchmarkSums(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, rows := range []int{1, 4, 8, 9, 12, 16, 64} {
		messages := make([]Message, rows)
		for i := range messages {
			messages[i] = Message{random(rng, 20), random(rng, 16_384)}
		}
		b.Run(fmt.Sprintf("%d", rows), func(b *testing.B) {
			b.SetBytes(int64(rows) * 16_404)
			for b.Loop() {
				Sums(messages)
			}
		})
	}
	b.Run("documents of 800 bytes", func(b *testing.B) {
		messages := make([]Message, 64)
		for i := range messages {
			messages[i] = Message{random(rng, 84)}
			for range 20 {
				messages[i] = append(messages[i], random(rng, 700+rng.IntN(200)))
			}
		}
		b.SetBytes(64 * 16_084)
		for b.Loop() {
			Sums(messages)
		}
	})
	b.Run("one after the other", func(b *testing.B) {
		all := random(rng, 16_404)
		b.SetBytes(int64(len(all)))
		for b.Loop() {
			sha256.Sum256(all)
		}
	})
}
