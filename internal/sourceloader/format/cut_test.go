package format

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestCutter: the same records give the same batches, whatever they come in; all but the last are of the target size, and parts
// of a record stay together.
func TestCutter(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	whole, row := &Batch{}, int64(0)
	for range 500 {
		row += 1 + rng.Int64N(3)
		for part := range 1 + rng.Int32N(3) {
			rec := Record{Row: row, Part: part, Values: []Value{
				{Kind: String, Bytes: []byte(strings.Repeat("x", rng.IntN(60)))}, {Kind: List, List: []Value{{Kind: Tokens, Tokens: make([]int32, rng.IntN(9))}}},
			}}
			if rng.IntN(20) == 0 {
				rec = Record{Row: row, Part: part, Err: fmt.Errorf("bad %d", row)}
			}
			whole.Add(&rec)
		}
	}
	const target = 1000
	var want []uint64
	for round := range 20 {
		var got []uint64
		give := func(b *Batch) error {
			size := int64(0)
			for i := range b.Len() {
				size += b.SizeOf(i)
			}
			if size != b.Bytes() && round > 0 || size < target || size > target+3*400 {
				t.Errorf("a batch of %d bytes that says %d", size, b.Bytes())
			}
			got = append(got, b.Digest())
			return nil
		}
		c := NewCutter(target, give)
		for lo := 0; lo < whole.Len(); {
			hi := whole.Len()
			if round > 0 {
				hi = min(hi, lo+1+rng.IntN(80))
			}
			for hi < whole.Len() && whole.rows[hi] == whole.rows[hi-1] {
				hi++
			}
			some := &Batch{}
			some.copy(whole, lo, hi)
			if err := c.Add(some); err != nil {
				t.Fatal(err)
			}
			lo = hi
		}
		if rest := c.Rest(); rest.Bytes() >= target || c.Held() != 0 {
			t.Errorf("%d bytes are left, and then %d", rest.Bytes(), c.Held())
		} else {
			got = append(got, rest.Digest())
		}
		if round == 0 {
			want = got
		} else if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("round %d gives other batches", round)
		}
	}
	if len(want) < 30 {
		t.Errorf("%d batches", len(want))
	}
}

// TestDigest: it is of the values, not of where they lie.
func TestDigest(t *testing.T) {
	a := &Batch{}
	for i := range 4 {
		a.Add(&Record{Row: int64(i), Values: []Value{{Kind: String, Bytes: fmt.Appendf(nil, "text %d", i)}, {Kind: Int, Int: int64(i)}}})
	}
	shared, _ := a.Good([]int{0, 1}, map[int]error{0: fmt.Errorf("out")})
	own := &Batch{}
	own.copy(a, 1, 4)
	addressed := func(at int) *Batch {
		b := &Batch{}
		b.Add(&Record{Row: 1, Err: fmt.Errorf("cannot identify <BytesIO at 0x%x>", at)})
		b.Add(&Record{Row: 2, Values: []Value{{Kind: Int, Int: 1}}})
		return b
	}
	if a, b := addressed(1), addressed(1<<40); a.Digest() != b.Digest() || a.SizeOf(0) != b.SizeOf(0) || a.Bytes() != b.Bytes() {
		t.Errorf("what an error says decides the digest (%x, %x) or the size (%d, %d) of its batch", a.Digest(), b.Digest(), a.Bytes(), b.Bytes())
	}
	if shared.Digest() != own.Digest() || shared.Digest() == a.Digest() {
		t.Errorf("%x, %x of the same records, %x of others", shared.Digest(), own.Digest(), a.Digest())
	}
}
