package samples_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/samples"
)

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		sets := make([]samples.Set, rng.IntN(4)+1)
		kept := rng.IntN(3)
		for i := range sets {
			s := &sets[i]
			s.Offsets = []int32{0}
			s.Kept = make([][][]byte, kept)
			for range rng.IntN(20) {
				for range rng.IntN(30) {
					s.Tokens = append(s.Tokens, rng.Int32())
				}
				s.Offsets = append(s.Offsets, int32(len(s.Tokens)))
				for c := range kept {
					var b []byte
					if rng.IntN(3) > 0 {
						b = bytes.Repeat([]byte{byte(c)}, rng.IntN(10))
						b = append(b, 7)
					}
					s.Kept[c] = append(s.Kept[c], b)
				}
			}
		}
		data, err := samples.Encode(sets)
		if err != nil {
			t.Fatal(err)
		}
		got, err := samples.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(sets) {
			t.Fatalf("%d sets, want %d", len(got), len(sets))
		}
		for i := range sets {
			check(t, &got[i], &sets[i])
		}
	}
}

func check(t *testing.T, got, want *samples.Set) {
	t.Helper()
	if got.Len() != want.Len() || !slices.Equal(got.Tokens, want.Tokens) {
		t.Fatalf("got %d samples of %d tokens, want %d of %d", got.Len(), len(got.Tokens), want.Len(), len(want.Tokens))
	}
	for i := range want.Len() {
		if !slices.Equal(got.Sample(i), want.Sample(i)) {
			t.Fatalf("sample %d differs", i)
		}
		for c := range want.Kept {
			if !bytes.Equal(got.Kept[c][i], want.Kept[c][i]) || (got.Kept[c][i] == nil) != (want.Kept[c][i] == nil) {
				t.Fatalf("sample %d, kept column %d differs", i, c)
			}
		}
	}
}

func TestDecodeDamaged(t *testing.T) {
	data, err := samples.Encode([]samples.Set{{Tokens: []int32{1, 2, 3}, Offsets: []int32{0, 3}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 8, len(data) / 2, len(data) - 1} {
		if _, err := samples.Decode(data[:cut]); err == nil {
			t.Errorf("%d of %d bytes were decoded", cut, len(data))
		}
	}
}

func TestEdges(t *testing.T) {
	for name, sets := range map[string][]samples.Set{
		"no set":               nil,
		"no sample":            {{}},
		"no sample, one start": {{Offsets: []int32{0}}},
		"an empty sample":      {{Tokens: []int32{1}, Offsets: []int32{0, 0, 1, 1}}},
		"kept is empty":        {{Tokens: []int32{1}, Offsets: []int32{0, 1}, Kept: [][][]byte{{{}}}}},
		"fewer kept columns": {
			{Tokens: []int32{1}, Offsets: []int32{0, 1}, Kept: [][][]byte{{[]byte("a")}, {nil}}},
			{Tokens: []int32{2}, Offsets: []int32{0, 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := samples.Encode(sets)
			if err != nil {
				t.Fatal(err)
			}
			got, err := samples.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(sets) {
				t.Fatalf("%d sets, want %d", len(got), len(sets))
			}
			for i := range sets {
				check(t, &got[i], &sets[i])
			}
		})
	}
}

// TestDecodeBorrows checks that tokens are views of the bytes they came in.
func TestDecodeBorrows(t *testing.T) {
	data, err := samples.Encode([]samples.Set{{Tokens: []int32{0x01020304, 5}, Offsets: []int32{0, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	sets, err := samples.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte{4, 3, 2, 1, 5, 0, 0, 0})
	data[at] = 9
	if sets[0].Tokens[0] != 0x01020309 {
		t.Errorf("token %#x: the tokens were copied", sets[0].Tokens[0])
	}
}

// TestDecodeFlipped damages answers in their offsets, values and messages: an
// error or sets that can be read, no panic. It is not a fuzz target, since Arrow's
// reader trusts the size that a schema claims.
func TestDecodeFlipped(t *testing.T) {
	data, err := samples.Encode([]samples.Set{
		{Tokens: []int32{1, 2, 3, 4, 5}, Offsets: []int32{0, 3, 5}, Kept: [][][]byte{{[]byte("x"), nil}}},
		{Tokens: []int32{6}, Offsets: []int32{0, 1}, Kept: [][][]byte{{[]byte("yz")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for at := 0; at < len(data); at += 7 {
		damaged := bytes.Clone(data)
		damaged[at] ^= 0xff
		sets, err := samples.Decode(damaged)
		if err != nil {
			refused++
			continue
		}
		for i := range sets {
			for k := range sets[i].Len() {
				_ = slices.Clone(sets[i].Sample(k))
				for c := range sets[i].Kept {
					_ = bytes.Clone(sets[i].Kept[c][k])
				}
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}
