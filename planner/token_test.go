package planner

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/plan"
	pb "github.com/millrace-data/millrace/proto"
)

// lateState is a position late in a long job: every source gave about tokens
// tokens out of about blocks blocks, and the carry is full.
func lateState(rng *rand.Rand, sources int, tokens, blocks int64) plan.State {
	around := func(n int64) int64 { return n/2 + rng.Int64N(n+1) }
	s := plan.Start(sources)
	s.Step = 1_500_000
	for i := range s.Cursors {
		s.Cursors[i] = plan.Cursor{
			Seq: around(blocks), Index: rng.Int32N(2000), Tokens: around(tokens),
			Deficit: rng.Int64N(2*8192<<12) - 8192<<12,
		}
	}
	for range 32 {
		src := rng.Int32N(int32(sources))
		s.Carry = append(s.Carry, plan.Ref{
			Source: src, Seq: s.Cursors[src].Seq - rng.Int64N(2), Index: rng.Int32N(2000), Length: 1 + rng.Int32N(8192),
		})
	}
	return s
}

var (
	anyJob  = identity{name: "a-job-with-a-name-of-thirty-two", spec: [32]byte{1, 2, 3}, manifest: [32]byte{4, 5, 6}}
	anyMesh = &pb.Mesh{Dp: 512, Cp: 8, Pp: 16, Tp: 8, Vpp: 2}
)

// TestTokenSize holds the promise that a token may be saved at every step: 1 KiB
// at ten sources, 4 KiB at 306, also after 10^10 tokens and 10^6 blocks of each.
func TestTokenSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, test := range []struct {
		sources        int
		tokens, blocks int64
		most           int
	}{
		{1, 1e10, 1e6, 512}, {10, 1e3, 10, 1024}, {10, 1e10, 1e6, 1024}, {10, 1e13, 1e9, 1024},
		{306, 1e6, 100, 4096}, {306, 1e10, 1e6, 4096},
	} {
		worst := 0
		for range 50 {
			s := lateState(rng, test.sources, test.tokens, test.blocks)
			worst = max(worst, len(encodeToken(anyJob, anyMesh, s, [32]byte{7}, make([]bool, test.sources))))
		}
		t.Logf("%d sources, %.0e tokens and %.0e blocks each: %d bytes", test.sources, float64(test.tokens), float64(test.blocks), worst)
		if worst > test.most {
			t.Errorf("%d sources: %d bytes, at most %d were promised", test.sources, worst, test.most)
		}
	}
}

func TestTokenRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for round := range 500 {
		sources := 1 + rng.IntN(20)
		s := lateState(rng, sources, 1+rng.Int64N(1<<rng.IntN(60)), 2+rng.Int64N(1<<rng.IntN(60)))
		limited := make([]bool, sources)
		for i := range limited {
			if limited[i] = rng.IntN(2) == 0; limited[i] {
				s.Cursors[i].InEpoch = rng.Int64N(1e6)
			}
		}
		s.Carry = s.Carry[:rng.IntN(33)]
		if len(s.Carry) == 0 {
			s.Carry = nil
		}
		if round == 0 {
			s = plan.Start(sources)
		}
		token := encodeToken(anyJob, anyMesh, s, [32]byte{9}, limited)
		got, err := decodeToken(anyJob, token, limited)
		if err != nil || got.digest != [32]byte{9} || !reflect.DeepEqual(got.state, s) {
			t.Fatalf("round %d: got %+v, %v; want %+v", round, got, err, s)
		}
	}
}

// TestTokenDamage flips every bit of a token and cuts it everywhere.
func TestTokenDamage(t *testing.T) {
	limited := make([]bool, 10)
	token := encodeToken(anyJob, anyMesh, lateState(rand.New(rand.NewPCG(3, 3)), 10, 1e6, 1000), [32]byte{9}, limited)
	check := func(what string, damaged []byte) {
		_, err := decodeToken(anyJob, damaged, limited)
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for bit := range 8 * len(token) {
		token[bit/8] ^= 1 << (bit % 8)
		check("a bit flipped", token)
		token[bit/8] ^= 1 << (bit % 8)
	}
	for n := range token {
		check("cut", token[:n])
	}
}

func TestTokenOfAnother(t *testing.T) {
	limited := make([]bool, 3)
	s := plan.Start(3)
	for _, test := range []struct {
		name, says string
		change     func(id *identity)
	}{
		{"spec", "sources, mix, batch and seed must be the same", func(id *identity) { id.spec[0]++ }},
		{"data", "the data of job", func(id *identity) { id.manifest[0]++ }},
	} {
		id := anyJob
		test.change(&id)
		_, err := decodeToken(id, encodeToken(anyJob, nil, s, [32]byte{}, limited), limited)
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), test.says) {
			t.Errorf("another %s: %v", test.name, err)
		}
	}
}

// FuzzToken: whatever the cursors of a token are, they are read or refused.
func FuzzToken(f *testing.F) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, sources := range []int{1, 4} {
		f.Add(packState(lateState(rng, sources, 1e6, 1000), make([]bool, sources)), sources, false)
	}
	f.Add([]byte{0, 0, 0, 0, 0, 255}, 1, true)
	f.Fuzz(func(t *testing.T, cursors []byte, sources int, limit bool) {
		sources = 1 + sources&7
		limited := make([]bool, sources)
		for i := range limited {
			limited[i] = limit
		}
		s, err := unpackState(cursors, limited)
		if err != nil {
			return
		}
		again, err := unpackState(packState(s, limited), limited)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
	})
}
