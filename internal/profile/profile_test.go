package profile_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/millrace-data/millrace/internal/profile"
	"github.com/millrace-data/millrace/jobspec"
)

var web = jobspec.Source{Name: "web", Transforms: []jobspec.Transform{jobspec.Tokens("ids")}}

// random is a source whose numbers are whole, so that sums are exact in any order.
func random(rng *rand.Rand, recipe string) profile.Source {
	s := profile.Source{Name: "web", Recipe: recipe, Records: rng.Int64N(1000), Samples: rng.Int64N(1000), Tokens: rng.Int64N(1e6), Bytes: rng.Int64N(1e6), Seconds: float64(rng.IntN(100)), CPU: float64(rng.IntN(100))}
	for _, name := range []string{"read", "decode", "tokenize"} {
		if rng.IntN(3) > 0 {
			s.Stages = append(s.Stages, profile.Stage{Name: name, Seconds: float64(rng.IntN(50)), Bytes: rng.Int64N(1e6)})
		}
	}
	return s
}

func total(s *profile.Source) (seconds float64, bytes int64) {
	for _, st := range s.Stages {
		seconds, bytes = seconds+st.Seconds, bytes+st.Bytes
	}
	return seconds, bytes
}

// TestAddIsASum: whatever the order in which readings come in, nothing is lost and nothing counts
// twice.
func TestAddIsASum(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var all []profile.Source
		for range 1 + rng.IntN(6) {
			all = append(all, random(rng, "a"))
		}
		var one, other profile.Profile
		var want profile.Source
		var seconds float64
		var bytes int64
		for _, s := range all {
			one.Add(s)
			want.Records, want.Tokens, want.Seconds = want.Records+s.Records, want.Tokens+s.Tokens, want.Seconds+s.Seconds
			sec, n := total(&s)
			seconds, bytes = seconds+sec, bytes+n
		}
		for _, i := range rng.Perm(len(all)) {
			other.Add(all[i])
		}
		for _, p := range []*profile.Profile{&one, &other} {
			got := &p.Sources[0]
			if len(p.Sources) != 1 || got.Records != want.Records || got.Tokens != want.Tokens || got.Seconds != want.Seconds {
				t.Fatalf("seed %d: %+v, want the sums %+v", seed, p.Sources, want)
			}
			if s, n := total(got); s != seconds || n != bytes {
				t.Fatalf("seed %d: stages have %v s and %d bytes, want %v and %d", seed, s, n, seconds, bytes)
			}
		}
	}
}

// TestBusy: readings of which it is not known for how long they waited count as those of which it is.
func TestBusy(t *testing.T) {
	t.Parallel()
	measured, unknown := profile.Source{Name: "web", Records: 1, Seconds: 10, CPU: 2}, profile.Source{Name: "web", Records: 1, Seconds: 30}
	for _, all := range [][]profile.Source{{measured, unknown}, {unknown, measured}} {
		var p profile.Profile
		p.Add(all[0])
		p.Add(all[1])
		if got := p.Sources[0].Busy(); math.Abs(got-0.2) > 1e-9 || p.Sources[0].Seconds != 40 {
			t.Errorf("busy for %v of %v s, want 0.2 of 40", got, p.Sources[0].Seconds)
		}
	}
	var p profile.Profile
	p.Add(unknown)
	p.Add(unknown)
	if got := p.Sources[0].Busy(); got != 0 {
		t.Errorf("busy for %v though nobody knows", got)
	}
	measured.CPU = 8
	p = profile.Profile{}
	p.Add(profile.Source{Name: "web", Records: 1, Seconds: 10, CPU: 2})
	p.Add(measured)
	if got := p.Sources[0].Busy(); got != 0.5 {
		t.Errorf("busy for %v, want the mean of 0.2 and 0.8", got)
	}
}

// TestFadeKeepsRates: what a record costs stays, and later records weigh more.
func TestFadeKeepsRates(t *testing.T) {
	t.Parallel()
	var p profile.Profile
	p.Add(profile.Source{Name: "web", Records: 1e6, Samples: 2e6, Tokens: 1e9, Seconds: 100, Stages: []profile.Stage{{Name: "read", Seconds: 100, Bytes: 1e9}}})
	p.Fade(1000)
	s := p.Sources[0]
	if s.Records != 1000 || math.Abs(1e9*s.PerToken()-100) > 0.01 || s.Stages[0].Bytes != 1e6 {
		t.Fatalf("faded to %+v", s)
	}
	p.Add(profile.Source{Name: "web", Records: 1000, Samples: 2000, Tokens: 1e6, Seconds: 0.3})
	if got := 1e9 * p.Sources[0].PerToken(); math.Abs(got-200) > 0.1 {
		t.Errorf("%v ns a token, want the mean of 100 and 300", got)
	}
}

// TestOtherRecipe: costs of a source of another chain are not those of this one.
func TestOtherRecipe(t *testing.T) {
	t.Parallel()
	var p profile.Profile
	p.Add(profile.Source{Name: "web", Recipe: "old", Records: 10, Samples: 10, Tokens: 10, Seconds: 5})
	if p.Of(&web) != nil || p.Covers([]jobspec.Source{web}) {
		t.Error("costs of another recipe were used")
	}
	p.Add(profile.Source{Name: "web", Recipe: profile.RecipeOf(&web), Records: 1, Samples: 1, Tokens: 1, Seconds: 1})
	if s := p.Of(&web); s == nil || s.Seconds != 1 || s.Records != 1 {
		t.Errorf("after a reading with the new recipe: %+v", s)
	}
	if !p.Covers([]jobspec.Source{web}) || (*profile.Profile)(nil).Of(&web) != nil {
		t.Error("what a profile covers")
	}
}

// TestFile: a file comes back as it was; one that was cut, damaged or is of another version is refused.
func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := profile.Read(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("no file: %v", err)
	}
	want := &profile.Profile{Job: "job"}
	rng := rand.New(rand.NewPCG(1, 1))
	want.Add(random(rng, "a"))
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := profile.Read(dir)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	whole, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		damaged := append([]byte(nil), whole...)
		damaged[i] ^= 1
		if got, err := profile.Decode(damaged); err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("byte %d changed: taken as %+v", i, got)
		}
		if _, err := profile.Decode(whole[:i]); err == nil {
			t.Errorf("cut at byte %d: taken", i)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".profile-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
