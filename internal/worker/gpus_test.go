package worker

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// TestDeal: how many workers each need gets of some devices.
func TestDeal(t *testing.T) {
	two := []GPU{{"a", 80}, {"b", 80}}
	for _, c := range []struct {
		all   []GPU
		needs []Need
		want  []int
	}{
		{nil, []Need{{1000, 0}}, []int{0}},
		{two, []Need{{1000, 0}}, []int{2}},
		{two, []Need{{2000, 0}}, []int{1}},
		{two, []Need{{3000, 0}}, []int{0}},
		{two, []Need{{500, 0}}, []int{4}},
		{two, []Need{{300, 0}}, []int{6}},
		{two, []Need{{500, 50}}, []int{2}},
		{two, []Need{{0, 30}}, []int{4}},
		{two, []Need{{1000, 81}}, []int{0}},
		{two, []Need{{1000, 0}, {500, 0}}, []int{1, 2}},
		{two, []Need{{500, 0}, {1000, 0}}, []int{2, 1}},
		{two, []Need{{1000, 0}, {1000, 0}, {1000, 0}}, []int{1, 1, 0}},
		{two, []Need{{}}, []int{0}},
		{[]GPU{{"a", 10}, {"b", 80}}, []Need{{1000, 40}}, []int{1}},
	} {
		if got := deal(c.all, c.needs); !slices.Equal(got, c.want) {
			t.Errorf("%v of %v: %v, want %v", c.needs, c.all, got, c.want)
		}
	}
}

// TestClaimGivenUp: one that was given up gets nothing, whoever still asks for it.
func TestClaimGivenUp(t *testing.T) {
	c := NewGPUs([]GPU{{"a", 80}}).claim(Need{500, 0})
	own := c.take()
	c.close()
	if n, more := c.target(), c.take(); n != 0 || more != nil || !closed(own.revoked) {
		t.Errorf("it gets %d workers, and %v more", n, more)
	}
}

// TestShares: whatever claims come and go, no device is given away twice, and in the end all get what they are dealt.
func TestShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		all := make([]GPU, 1+rng.IntN(4))
		for i := range all {
			all[i] = GPU{string(rune('a' + i)), int64(10 + rng.IntN(90))}
		}
		g := NewGPUs(all)
		var claims []*claim
		held := map[*claim][]*share{}
		for range 30 {
			switch rng.IntN(4) {
			case 0:
				if len(claims) < 3 {
					claims = append(claims, g.claim(Need{[]int{100, 300, 500, 1000, 2000}[rng.IntN(5)], int64(rng.IntN(30))}))
				}
			case 1:
				if n := len(claims); n > 0 && len(held[claims[n-1]]) == 0 {
					claims[n-1].close()
					claims = claims[:n-1]
				}
			default:
				for _, c := range claims {
					for s := c.take(); s != nil; s = c.take() {
						held[c] = append(held[c], s)
					}
					held[c] = slices.DeleteFunc(held[c], func(s *share) bool {
						if closed(s.revoked) {
							s.give()
						}
						return closed(s.revoked)
					})
				}
			}
			sums := full(all)
			for c, shares := range held {
				for _, s := range shares {
					move(sums, c.need, s.devices, 1)
				}
			}
			for i, r := range sums {
				if r.thousandths < 0 || r.memory < 0 || r != g.left[i] {
					t.Fatalf("device %d has %+v left, it says %+v", i, r, g.left[i])
				}
			}
		}
		for _, c := range claims {
			if len(held[c]) > len(c.held) {
				t.Fatalf("%d shares are held, %d known", len(held[c]), len(c.held))
			}
		}
	}
}

// TestOwners: a worker sees the GPU that it owns and no other, workers follow the devices, functions that come later get their part, and
// what is released goes to others.
func TestOwners(t *testing.T) {
	dir := t.TempDir()
	code := "import os\n\nimport millrace\n"
	for name, needs := range map[string]string{"one": `{"gpu": 1}`, "half": `{"gpu": 0.5}`, "none": "None", "odd": `{"gpu": 1.5}`, "large": `{"gpu": 1, "gpu_memory": 1 << 40}`} {
		code += "\n\n@millrace.transform(needs=" + needs + ")\ndef " + name + "(text: str) -> str:\n    return os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "owned.py"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Unsetenv("CUDA_VISIBLE_DEVICES")
	opt := options(t)
	gpus := NewGPUs([]GPU{{"GPU-a", 1 << 30}, {"GPU-b", 1 << 30}})
	opt.Path, opt.Functions, opt.GPUs = append(opt.Path, dir), []string{"owned:one"}, func() *GPUs { return gpus }
	e := open(t, opt)
	get := func(name string) *Function {
		t.Helper()
		f, err := e.Function(t.Context(), Use{Name: "owned:" + name, Source: "web", Step: "transforms[1]"})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	seen := func(f *Function) string {
		t.Helper()
		line := called(t, f, texts("x"))[0]
		return strings.Trim(strings.TrimPrefix(line, "0:0 "), `"`)
	}
	one := get("one")
	if got := seen(one); one.Slots() != 2 || one.OwnSeats() != 4 || got != "GPU-a" && got != "GPU-b" {
		t.Errorf("%d workers with a GPU, and one sees %s", one.Slots(), got)
	}
	if got := seen(get("none")); got != "unset" {
		t.Errorf("a function without needs sees %s", got)
	}
	half := get("half") // one of the workers above gives its GPU up
	if got := seen(half); half.Slots() != 2 || one.Slots() != 1 || got != "GPU-a" && got != "GPU-b" {
		t.Errorf("%d and %d workers, one sees %s", one.Slots(), half.Slots(), got)
	}
	owner := seen(one)
	for range 20 {
		if a, b := seen(one), seen(half); a != owner || a == b {
			t.Errorf("workers see %s and %s, which was %s's", a, b, owner)
		}
	}
	if large := get("large"); large.Slots() != 0 {
		t.Errorf("%d workers with more memory than there is", large.Slots())
	}
	if _, err := e.Function(t.Context(), Use{Name: "owned:odd"}); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "needs 1.5 GPUs") {
		t.Error(err)
	}
	other := open(t, opt)
	f, err := other.Function(t.Context(), Use{Name: "owned:one"})
	if err != nil || f.Slots() != 0 { // one and half were there first, and have a device each
		t.Errorf("%d workers of another environment, %v", f.Slots(), err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(time.Minute); f.Slots() != 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d workers after the others' end", f.Slots())
		}
	}
	if got := seen(f); got != "GPU-a" && got != "GPU-b" {
		t.Error(got)
	}
}
