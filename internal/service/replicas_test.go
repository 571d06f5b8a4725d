package service_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/trainer"
)

// Jobs of small files, which are fingerprinted whole, of a large one, of which a
// fingerprint sees parts, and of both. Their paths are relative to where a loader runs, so
// that each may have a replica of its own.
const (
	small = `
  - name: small
    files: small/*.jsonl
    chunk_bytes: 2000
    transforms: [{tokenize: bytes}]`
	large = `
  - name: large
    files: large/*.jsonl
    chunk_bytes: 30000
    keep: [id]
    transforms: [{tokenize: bytes}]`
	evenly = `
mix: {weights: {small: 0.5, large: 0.5}}`
	shape = `
batch: {sequence_length: 500, sequences: 40}
topology: {dp: 2}
`
)

// unseen is where a part of the large file begins that its fingerprint does not see, and
// where it ends.
const unseenFrom, unseenTo = 64 << 10, 67 << 10

// writeReplica makes a folder with the files of these sources, the same whenever it is called.
func writeReplica(t *testing.T) string {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, file := range []struct {
		name    string
		records int
	}{{"small/part-0", 60}, {"small/part-1", 60}, {"small/part-2", 60}, {"large/part-0", 700}, {"extra/part-0", 60}} {
		var b strings.Builder
		for i := range file.records {
			fmt.Fprintf(&b, `{"id":"%04d","text":%q}`+"\n", i, words(rng, 80))
		}
		write(t, filepath.Join(dir, file.name+".jsonl"), b.String())
	}
	return dir
}

// swapLetters makes other words of as many letters in a part of a file, which looks as old as before.
func swapLetters(t *testing.T, path string, from, to int) {
	t.Helper()
	rewrite(t, path, func(text []byte) []byte {
		copy(text[from:to], bytes.Map(func(r rune) rune {
			switch r { // neither letter is in the names of the fields
			case 'q':
				return 'k'
			case 'k':
				return 'q'
			}
			return r
		}, text[from:to]))
		return text
	})
}

// rewrite gives a file other bytes and the time that it had.
func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := change(bytes.Clone(text))
	if bytes.Equal(text, changed) {
		t.Fatalf("%s would stay as it is", path)
	}
	if err := os.WriteFile(path, changed, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// moveLetter moves the first letter of a record's text to the end of the one before: the
// file stays as long as it was.
func moveLetter(t *testing.T, path string) { rewrite(t, path, moved) }

func moved(text []byte) []byte {
	end := bytes.Index(text, []byte("\"}\n"))
	next := end + bytes.Index(text[end:], []byte(`"text":"`)) + len(`"text":"`)
	letter := text[next]
	copy(text[end+1:next+1], text[end:next])
	text[end] = letter
	return text
}

// team is a job whose loaders are processes of their own.
type team struct {
	t       *testing.T
	address string // of the planner
	log     *syncBuffer
	loaders map[string]*exec.Cmd
}

// newTeam starts a planner and a constructor in this process; end kills the loaders and waits for
// both.
func newTeam(t *testing.T, opts planner.Options) (ctx context.Context, m *team, end func()) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	m = &team{t: t, log: new(syncBuffer), loaders: map[string]*exec.Cmd{}}
	serving := make(chan string, 1)
	opts.Address, opts.Log = "127.0.0.1:0", slog.New(slog.NewTextHandler(m.log, nil))
	opts.Serving = func(a string) { serving <- a }
	var roles sync.WaitGroup
	roles.Go(func() { planner.Run(ctx, opts) }) // trainers hear of its errors
	m.address = <-serving
	roles.Go(func() { constructor.Run(ctx, constructor.Options{Planner: m.address, Address: "127.0.0.1:0"}) })
	return ctx, m, func() {
		for id := range m.loaders {
			m.kill(id)
		}
		cancel()
		roles.Wait()
	}
}

// load starts a loader in a folder, and waits until the planner knows it.
func (m *team) load(id, dir string) {
	m.t.Helper()
	before := strings.Count(m.log.String(), "loader joined")
	cmd := exec.Command(binary(m.t), "loader", "--planner", m.address, "--id", id)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.loaders[id] = cmd
	for begin := time.Now(); strings.Count(m.log.String(), "loader joined") == before; time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > patience {
			m.t.Fatalf("loader %s did not join:\n%s", id, m.log)
		}
	}
}

// kill kills a loader, and waits for its end.
func (m *team) kill(id string) {
	m.t.Helper()
	cmd := m.loaders[id]
	delete(m.loaders, id)
	if err := cmd.Process.Kill(); err != nil {
		m.t.Error(err)
	}
	cmd.Wait() // says that it was killed
}

// train runs a job with two loaders until it fails or has made its steps. begin starts
// them, and after each step calls then. Every step has to be that of the data in dir.
func train(t *testing.T, dir string, r recipe, begin func(m *team), then func(m *team, step int64)) (steps int64, err error) {
	t.Helper()
	want := solve(t, dir, r)
	job := parse(t, ".", r.text(resources{prefetch: 2, window: 5}))
	ctx, m, end := newTeam(t, planner.Options{Job: job, Changes: r.changesOf(t), Loaders: 2})
	defer end()
	begin(m)
	_, err = trainer.Run(ctx, trainer.Options{Address: m.address, Job: job, Changes: r.changesOf(t), Steps: r.steps, OnStep: func(s trainer.Step) {
		if s.Digest != want.digests[s.Step+1] {
			t.Errorf("digest step=%d %x, want %x: a step has other data", s.Step+1, s.Digest, want.digests[s.Step+1])
		}
		steps = s.Step + 1
		then(m, steps)
	}})
	return steps, err
}

// TestOtherData: a loader that has other data than the job was planned with ends the
// job before one of its samples is in a step. The error is the user's, and says which
// loader has what. One that has the same data elsewhere, and comes and goes, changes nothing.
func TestOtherData(t *testing.T) {
	const fails = 12 // the step after which a loader fails
	again := func(change func(t *testing.T, dir string)) func(*team, string) {
		return func(m *team, dir string) { // the killed one comes back, and its data changed
			change(m.t, dir)
			m.load("first", dir)
		}
	}
	part := func(change func(t *testing.T, path string), path string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { change(t, filepath.Join(dir, path)) }
	}
	swapAll := func(t *testing.T, path string) { swapLetters(t, path, 0, 20000) }
	for _, test := range []struct {
		name    string
		sources string
		changes string
		other   func(t *testing.T, dir string) // what differs in the second loader's replica
		then    func(m *team, dir string)      // after the first loader was killed
		want    []string                       // of the error; nil if there is none
	}{
		{"the same data", small + large + evenly, "", nil, again(func(*testing.T, string) {}), nil},
		{"bytes of a file", small, "", nil, again(part(swapAll, "small/part-1.jsonl")), []string{
			`source "small": loader first (`, "small/part-1.jsonl has", "fingerprint",
		}},
		{"lengths of samples", small, "", nil, again(part(moveLetter, "small/part-1.jsonl")), []string{
			`source "small": loader first (`, "small/part-1.jsonl has", "fingerprint",
		}},
		{"a file is gone", small, "", nil, again(func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "small", "part-2.jsonl")); err != nil {
				t.Fatal(err)
			}
		}), []string{`source "small": loader first (`, "small/part-2.jsonl (", "is missing for loader first ("}},
		{"bytes that no fingerprint sees", large, "", nil, again(func(t *testing.T, dir string) {
			swapLetters(t, filepath.Join(dir, "large", "part-0.jsonl"), unseenFrom, unseenTo)
		}), []string{`source "large": `, "loader first (", "large/part-0.jsonl, chunk 3 of 1", "with checksum"}},
		{"lengths that no fingerprint sees", large, "", nil, again(func(t *testing.T, dir string) {
			path := filepath.Join(dir, "large", "part-0.jsonl")
			rewrite(t, path, func(text []byte) []byte {
				return append(append(text[:unseenFrom:unseenFrom], moved(text[unseenFrom:unseenTo])...), text[unseenTo:]...)
			})
		}), []string{`source "large": `, "loader first (", "large/part-0.jsonl, chunk 3 of 1", "with checksum"}},
		{"a replica, after the first loader is lost", small + large + evenly, "", part(swapAll, "small/part-2.jsonl"), func(*team, string) {}, []string{
			`source "small": loader second (`, "small/part-2.jsonl has", "for loader second (", "for loader first (", "fingerprint",
		}},
		{"a source that joins, in a replica", small + large + evenly,
			`{"step":4,"add":{"source":{"name":"extra","files":"extra/*.jsonl","chunk_bytes":2000},"weight":0.4}}`,
			part(swapAll, "extra/part-0.jsonl"), func(*team, string) {}, []string{
				`source "extra": loader second (`, "extra/part-0.jsonl has", "for loader second (", "for loader first (", "fingerprint",
			}},
		{"parts of a replica that no fingerprint sees", large + small + evenly, "", func(t *testing.T, dir string) {
			swapLetters(t, filepath.Join(dir, "large", "part-0.jsonl"), unseenFrom, unseenTo)
		}, func(*team, string) {}, []string{`source "large": loader second (`, "large/part-0.jsonl, chunk 3 of 1", "with checksum", "loader first ("}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dirs := []string{writeReplica(t), writeReplica(t)}
			if test.other != nil {
				test.other(t, dirs[1])
			}
			r := recipe{"replicas: " + test.name, "sources:" + test.sources + shape, 80, test.changes}
			steps, err := train(t, writeReplica(t), r, func(m *team) {
				m.load("first", dirs[0])
				m.load("second", dirs[1])
			}, func(m *team, step int64) {
				if step == fails {
					m.kill("first")
					test.then(m, dirs[0])
				}
			})
			t.Logf("after %d steps: %v", steps, err)
			switch {
			case test.want == nil && (err != nil || steps != r.steps):
				t.Errorf("the job ended after %d steps: %v", steps, err)
			case test.want != nil && (fault.ClassOf(err) != fault.User || steps < fails):
				t.Errorf("after %d steps: %v; want an error of class user after the loader was lost", steps, err)
			}
			for _, part := range test.want {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("%v\ndoes not say %q", err, part)
				}
			}
		})
	}
}
