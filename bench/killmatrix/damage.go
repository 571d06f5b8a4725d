package main

import (
	"context"
	encoding "encoding/binary" // tests have the binary
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/millrace-data/millrace/internal/rig"
)

// damaged counts what became of a kind of damage to the log of a planner that was killed.
type damaged struct {
	Kind     string `json:"damage"`
	Cases    int    `json:"cases"`
	Refused  int    `json:"refused"`  // the log is not opened, and the message says why
	Harmless int    `json:"harmless"` // it is opened, with all that was acknowledged, and agrees with the reference
	Silent   int    `json:"silent"`   // anything else: this must not be
}

// damages are what can happen to a file. They get its bytes and return what is left of them;
// nil removes the file.
var damages = []struct {
	name string
	do   func(rng *rand.Rand, b []byte) []byte
}{
	{"a bit is flipped", func(rng *rand.Rand, b []byte) []byte {
		if len(b) > 0 {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		return b
	}},
	{"a bit of the last 64 bytes is flipped", func(rng *rand.Rand, b []byte) []byte {
		if n := min(len(b), 64); n > 0 {
			b[len(b)-1-rng.IntN(n)] ^= 1 << rng.IntN(8)
		}
		return b
	}},
	{"the file is cut", func(rng *rand.Rand, b []byte) []byte { return b[:rng.IntN(len(b)+1)] }},
	{"up to 64 bytes are cut off its end", func(rng *rand.Rand, b []byte) []byte { return b[:len(b)-rng.IntN(min(len(b), 64)+1)] }},
	{"its end is zeros", func(rng *rand.Rand, b []byte) []byte { clear(b[rng.IntN(len(b)+1):]); return b }},
	{"the file is gone", func(*rand.Rand, []byte) []byte { return nil }},
}

// damage makes the log of a planner that was killed, damages copies of it, and has `millrace
// verify` open each.
func (m *matrix) damage(ctx context.Context, n int) ([]*damaged, error) {
	a, log := m.answers[0], filepath.Join(m.opts.dir, "log")
	whole, err := m.acknowledged(ctx, a, log)
	if err != nil {
		return nil, err
	}
	table := make([]*damaged, len(damages))
	for i, d := range damages {
		table[i] = &damaged{Kind: d.name}
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, m.opts.parallel)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			kind := i % len(damages)
			text, got := m.damageOnce(ctx, a, log, i)
			mu.Lock()
			defer mu.Unlock()
			row := table[kind]
			row.Cases++
			switch {
			case got.count == whole.count:
				row.Harmless++
			case got.code == exitUser && strings.Contains(got.err.Error(), "the log in "):
				row.Refused++
			default:
				row.Silent++
				m.failed++
				fmt.Printf("damage %d (%s): %s, in place of %s: %v\n  again: killmatrix -millrace %s -seed %d -damage %d -kills 0\n", i, text, got.count, whole.count, got.err, m.opts.binary, m.opts.seed, n)
			}
		})
	}
	all.Wait()
	return table, ctx.Err()
}

// acknowledged makes the log of a planner that was killed, and returns what verify says of it. A planner that was killed
// between its last write and the mark of it is of no use, and another one is killed: that write was never acknowledged, so a
// damaged log may be opened without it.
func (m *matrix) acknowledged(ctx context.Context, a *rig.Answer, log string) (whole verdict, err error) {
	dir := filepath.Join(m.opts.dir, "damage")
	for range 10 {
		if err := errors.Join(os.RemoveAll(log), os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return whole, err
		}
		err := rig.Run(ctx, rig.Options{Binary: m.opts.binary, Dir: dir, Answer: a, LogDir: log, Constructors: 2}, func(ctx context.Context, r *rig.Rig) error {
			_, err := rig.Train(ctx, rig.Training{Address: r.Address(), Answer: a, Prefetch: 2, Deadline: m.opts.limit})
			return err // and all roles are killed
		})
		if err != nil {
			return whole, fmt.Errorf("making a log to damage: %w", err)
		}
		if whole = m.verify(ctx, a, log); whole.count == "" {
			return whole, fmt.Errorf("the log without damage: %w", whole.err)
		}
		marked, err := markedSteps(log)
		if err != nil || strings.HasPrefix(whole.count, fmt.Sprintf("%d steps;", marked)) {
			return whole, err
		}
	}
	return whole, errors.New("ten planners were killed between their last write and the mark of it")
}

// markedSteps returns the step after the last one that the mark of a log has: docs/bytes.md, "The mark".
func markedSteps(log string) (next uint64, err error) {
	b, err := os.ReadFile(filepath.Join(log, "HIGHWATER"))
	if err != nil {
		return 0, err
	}
	last := uint64(0)
	for ; len(b) >= 32; b = b[min(len(b), 4096):] {
		if write := encoding.BigEndian.Uint64(b[8:]); write >= last {
			last, next = write, encoding.BigEndian.Uint64(b[24:])
		}
	}
	return next, nil
}

// exitUser is the code of a verify that refuses a log.
const exitUser = 3

// damageOnce damages a copy of a log and verifies it.
func (m *matrix) damageOnce(ctx context.Context, a *rig.Answer, log string, i int) (text string, v verdict) {
	rng := rig.Random(m.opts.seed, fmt.Sprint("damage ", i))
	into := filepath.Join(m.opts.dir, fmt.Sprint("d", i))
	defer os.RemoveAll(into)
	if v.err = os.CopyFS(into, os.DirFS(log)); v.err != nil {
		return text, v
	}
	files, err := filesOf(into)
	if err != nil {
		return text, verdict{err: err}
	}
	file, d := files[rng.IntN(len(files))], damages[i%len(damages)]
	before, err := os.ReadFile(file)
	if err == nil {
		if after := d.do(rng, slices.Clone(before)); after == nil {
			err = os.Remove(file)
		} else {
			err = os.WriteFile(file, after, 0o600)
		}
	}
	if err != nil {
		return text, verdict{err: err}
	}
	return fmt.Sprintf("%s: %s", filepath.Base(file), d.name), m.verify(ctx, a, into)
}

func filesOf(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "LOCK" {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// verdict is what verify said of a log.
type verdict struct {
	count string // such as: 50 steps, and their digest. How many of the steps have one in the log depends on when the last of them were written
	code  int
	err   error
}

var verified = regexp.MustCompile(`^verified .* of (.*) in \S+\n(?:step.* not checked: planned, and not delivered .*\n)?(digest .*)\n$`)

// verify opens a log as `millrace verify` does.
func (m *matrix) verify(ctx context.Context, a *rig.Answer, log string) (v verdict) {
	args := []string{"verify", a.Spec, "--log-dir", log}
	if a.Changes != "" {
		args = append(args, "--changes", a.Changes)
	}
	out, err := exec.CommandContext(ctx, m.opts.binary, args...).Output()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return verdict{code: ended.ExitCode(), err: fmt.Errorf("%s", ended.Stderr)}
	}
	if found := verified.FindSubmatch(out); found != nil {
		v.count = fmt.Sprintf("%s; %s", found[1], found[2])
	}
	v.err = err
	return v
}
