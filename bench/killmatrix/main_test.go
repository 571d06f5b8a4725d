package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/rig"
)

// built names the service with the failpoints in a process that a test starts of itself.
const built = "MILLRACE_TEST_BINARY"

// TestMain builds the service with the failpoints, once.
func TestMain(m *testing.M) {
	if os.Getenv(rankVariable) != "" {
		if err := rankMain(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if binary = os.Getenv(built); binary != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "km")
	if err == nil {
		binary = filepath.Join(dir, "millrace")
		var out []byte
		if out, err = exec.Command("go", "build", "-ldflags=-w", "-tags", tags(), "-o", binary, "../../cmd/millrace").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var binary string

// tags are failpoint and those of the build that runs the tests.
func tags() string {
	for _, flag := range strings.Fields(os.Getenv("GOFLAGS")) {
		if others, ok := strings.CutPrefix(flag, "-tags="); ok {
			return "failpoint," + others
		}
	}
	return "failpoint"
}

// folder is a short one: sockets lie in it.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "km")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestMatrix runs every failpoint once or twice.
func TestMatrix(t *testing.T) {
	o := options{binary: binary, dir: folder(t), seed: 1, only: -1, limit: 60 * time.Second, parallel: 2, kills: 1 << 30, verbose: testing.Verbose()}
	o.runs = len(chosen(o.sites))
	failed, err := run(t.Context(), o)
	if err != nil || failed > 0 {
		t.Errorf("%d runs did not pass, %v", failed, err)
	}
}

// TestSharedMemory kills some constructors and ranks that map memory of theirs.
func TestSharedMemory(t *testing.T) {
	t.Setenv("MILLRACE_ACCESS_KEY", "key-of-one-matrix-on-one-machine")
	k, err := killShared(t.Context(), options{binary: binary, dir: folder(t), seed: 1, shared: 8})
	if err != nil || k.checked < 3*sharedRanks*sharedSteps {
		t.Errorf("%d kills, %d batches compared: %v", k.kills, k.checked, err)
	}
}

// TestDifferenceIsFound compares runs with wrong answers: every kind of them is found.
func TestDifferenceIsFound(t *testing.T) {
	dir := folder(t)
	if err := rig.KeyDir(filepath.Join(dir, "keys")); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if err := rig.Write(data); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want  string
		spoil func(*rig.Answer)
	}{
		{"step 20: the batches have digest", func(a *rig.Answer) { a.Digests[21][5] ^= 1 }},
		{"samples were delivered, the reference's step has", func(a *rig.Answer) { a.Samples[7][rig.Sample{Source: "chat", Block: 99}] = 1 }},
		{"is 0 times in the reference's step", func(a *rig.Answer) { a.Samples[3], a.Samples[4] = a.Samples[4], a.Samples[3] }},
		{"its token differs", func(a *rig.Answer) { a.Token = []byte("another") }},
	} {
		a, err := rig.Solve(t.Context(), data, &rig.Recipes[2], 4)
		if err != nil {
			t.Fatal(err)
		}
		c.spoil(a)
		m := &matrix{opts: options{binary: binary, dir: dir, limit: time.Minute}}
		res := m.execute(context.Background(), plan{answer: a, loaders: 1, constructors: 1})
		if res.err == nil || !strings.Contains(res.err.Error(), c.want) {
			t.Errorf("found %v, want %q", res.err, c.want)
		}
	}
}

// TestDamage damages logs: none is opened with less than was acknowledged.
func TestDamage(t *testing.T) {
	m := &matrix{opts: options{binary: binary, dir: folder(t), seed: 1, limit: time.Minute, parallel: 2}, table: newTable(nil)}
	if err := m.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	table, err := m.damage(t.Context(), 18)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, d := range table {
		if refused += d.Refused; d.Silent > 0 || d.Cases != 3 {
			t.Errorf("%+v", *d)
		}
	}
	if refused == 0 {
		t.Error("no damage was found")
	}
}

// TestSplit stops leaders until another one has taken over, and continues them: what they then write
// is refused, and they end.
func TestSplit(t *testing.T) {
	m := &matrix{opts: options{binary: binary, dir: folder(t), seed: 1, only: -1, limit: time.Minute, parallel: 2, verbose: testing.Verbose()}, table: newTable(nil)}
	if err := m.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	replaced := 0
	for _, row := range m.split(t.Context(), 6) {
		if replaced += row.Replaced; row.Failed > 0 || row.Refused != row.Replaced {
			t.Errorf("%+v", *row)
		}
	}
	if replaced < 3 {
		t.Errorf("%d of 6 leaders were replaced: too few to show anything", replaced)
	}
}

// TestPlanted: the planted bugs still apply to this tree. `make planted` shows that each is found.
func TestPlanted(t *testing.T) {
	patches, err := filepath.Glob("../../testdata/planted/*.patch")
	if err != nil || len(patches) < 3 {
		t.Fatalf("%d planted bugs, %v", len(patches), err)
	}
	for _, patch := range patches {
		path, err := filepath.Abs(patch)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "git", "apply", "--check", path)
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(patch), err, out)
		}
	}
}
