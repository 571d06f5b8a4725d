package service_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/trainer"
)

// TestBadRecord: a record that cannot be read stops the job; every rank hears why
// at once, whatever it was waiting for.
func TestBadRecord(t *testing.T) {
	dir := writeSources(t)
	var b strings.Builder
	for i := range 400 {
		fmt.Fprintf(&b, `{"text":"record %d"}`+"\n", i)
	}
	b.WriteString("{\"text\": 17,\n")
	write(t, filepath.Join(dir, "broken", "a.jsonl"), b.String())
	r := recipe{"broken", `
sources:
  - name: broken
    files: broken/*.jsonl
    chunk_bytes: 1000
    shuffle: {enabled: false}` + `
batch: {sequence_length: 64, sequences: 8}
topology: {dp: 2, cp: 2}
`, 0, ""}
	for _, processes := range []bool{false, true} {
		s := setting{loaders: 2, constructors: 2, processes: processes}
		opts := s.options(t, dir, r)
		opts.Stderr = new(syncBuffer)
		begin := time.Now()
		var mu sync.Mutex
		var heard []error
		err := service.Run(t.Context(), opts, func(ctx context.Context, address string) error {
			var all sync.WaitGroup
			for _, rank := range []client.Rank{{}, {CP: 1}, {DP: 1}, {DP: 1, CP: 1}} {
				all.Go(func() {
					err := consume(ctx, address, rank)
					mu.Lock()
					defer mu.Unlock()
					heard = append(heard, err)
				})
			}
			all.Wait()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range heard {
			if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), `source "broken"`) || !strings.Contains(err.Error(), "a.jsonl") {
				t.Errorf("a rank heard %v; want an error of class user that names source and file", err)
			}
		}
		if took := time.Since(begin); len(heard) != 4 || took > patience {
			t.Errorf("%d ranks heard of it in %v", len(heard), took)
		}
	}
}

// consume takes batches until there is an error.
func consume(ctx context.Context, address string, rank client.Rank) error {
	c, err := client.Open(ctx, address, client.Options{Rank: rank})
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		if _, err := c.Next(ctx); err != nil {
			return err
		}
	}
}

var barren = regexp.MustCompile(`in 5 of its 5 blocks 180 records gave none: 180 filtered out, 0 dropped as too long, 0 empty, 0 bad; look at its filter`)

// TestBarrenSource: a source whose records are all filtered out is an error, not
// an endless search and not the end of the data.
func TestBarrenSource(t *testing.T) {
	dir := writeSources(t)
	for _, mix := range []string{"", "mix: {epochs: 1}\n", "mix: {epochs: 1, exhausted: renormalize}\n"} {
		r := recipe{"barren", `
sources:
  - name: dry
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms: [{text: "{text}"}, {filter: "lang == 'fr'"}, {tokenize: bytes}]
` + mix + "batch: {sequence_length: 64, sequences: 8}\n", 0, ""}
		setting{}.serve(t, dir, r, func(ctx context.Context, address string) error {
			if err := consume(ctx, address, client.Rank{}); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), `source "dry" gave no sample`) ||
				!barren.MatchString(err.Error()) {
				t.Errorf("with %q: %v", mix, err)
			}
			return nil
		})
	}
}

// kill kills one process of a role that this process started.
func kill(t *testing.T, role string) { t.Helper(); signalRole(t, role, syscall.SIGKILL) }

// signalRole sends a signal to one process of a role that this process started, and returns
// its number.
func signalRole(t *testing.T, role string, sig syscall.Signal) (pid int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(stats) == 0 {
		t.Skip("there is no /proc to find processes in")
	}
	for _, path := range stats {
		line, _ := os.ReadFile(path) // it may have ended
		args := strings.Split(string(line), "\x00")
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if len(args) < 2 || args[1] != role || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatalf("no process of role %s", role)
	return 0
}

// TestShutdown: whatever is going on, everything stops, and no goroutine is left.
func TestShutdown(t *testing.T) {
	dir := writeSources(t)
	r := recipes[0]
	var open []*client.Client
	for _, test := range []struct {
		name string
		use  func(ctx context.Context, address string) error
	}{
		{"at once", func(context.Context, string) error { return nil }},
		{"one rank waits for the others", func(ctx context.Context, address string) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			consume(ctx, address, client.Rank{})
			return nil
		}},
		{"clients are still open", func(ctx context.Context, address string) error {
			c, err := client.Open(ctx, address, client.Options{})
			if err != nil {
				return err
			}
			open = append(open, c)
			_, err = c.Next(ctx)
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := setting{loaders: 2, constructors: 2}
			var asked time.Time
			s.serve(t, dir, r, func(ctx context.Context, address string) error {
				err := test.use(ctx, address)
				asked = time.Now()
				return err
			})
			t.Logf("stopping took %v", time.Since(asked))
		})
	}
	for _, c := range open {
		c.Close()
	}
	if left := leaked(); left != "" {
		t.Errorf("goroutines are left:\n%s", left)
	}
}

// TestDeadlines: a caller that waits too long learns for what.
func TestDeadlines(t *testing.T) {
	dir := writeSources(t)
	r := recipes[0]
	setting{}.serve(t, dir, r, func(ctx context.Context, address string) error {
		// The first step may take longer than any short deadline on a busy machine: then
		// the next one is longer.
		for deadline := time.Second; ; deadline *= 4 {
			err := consumeFor(ctx, address, deadline)
			if err == nil || fault.ClassOf(err) != fault.Lost {
				t.Errorf("one rank alone: %v", err)
			}
			if err == nil || strings.Contains(err.Error(), "the slowest rank here: rank dp=") {
				return nil
			}
			if deadline > patience/4 {
				t.Errorf("one rank alone: %v", err)
				return nil
			}
		}
	})
	setting{constructors: 2}.serve(t, dir, r, func(ctx context.Context, address string) error {
		c, err := client.Open(ctx, address, client.Options{})
		if err != nil {
			return err
		}
		defer c.Close()
		for range 2 {
			if _, err = c.Next(ctx); err != nil {
				return err
			}
		}
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		for err == nil { // the other ranks never come
			_, err = c.Next(short)
		}
		if short.Err() == nil || fault.ClassOf(err) != fault.Lost {
			t.Errorf("a short wait: %v", err)
		}
		return nil
	})
}

// consumeFor takes batches as the first rank until one takes longer than a deadline.
func consumeFor(ctx context.Context, address string, deadline time.Duration) error {
	c, err := client.Open(ctx, address, client.Options{Deadline: deadline})
	if err != nil {
		return err
	}
	defer c.Close()
	for err == nil {
		_, err = c.Next(ctx)
	}
	return err
}

// syncBuffer is a buffer that several processes' outputs are copied to.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestLoaderReplaced: without a loader the ranks wait; another one takes over the
// blocks that were asked of the first, and nothing differs.
func TestLoaderReplaced(t *testing.T) {
	dir := writeSources(t)
	r := recipes[0]
	want := solve(t, dir, r)
	job := parse(t, dir, r.text(resources{prefetch: 2, window: 5}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ready := make(chan string, 1)
	var roles sync.WaitGroup
	defer roles.Wait()
	defer cancel()
	roles.Go(func() {
		err := planner.Run(ctx, planner.Options{Job: job, Address: "127.0.0.1:0", Serving: func(a string) { ready <- a }})
		if err != nil {
			t.Error(err)
		}
	})
	address := <-ready
	roles.Go(func() {
		if err := constructor.Run(ctx, constructor.Options{Planner: address, Address: "127.0.0.1:0"}); err != nil {
			t.Error(err)
		}
	})
	load := func(after time.Duration) (stop context.CancelFunc) {
		ctx, stop := context.WithCancel(ctx)
		roles.Go(func() {
			time.Sleep(after)
			if err := sourceloader.Run(ctx, sourceloader.Options{Planner: address, Address: "127.0.0.1:0"}); err != nil {
				t.Error(err)
			}
		})
		return stop
	}
	stop := load(0)
	res, err := trainer.Run(ctx, trainer.Options{
		Address: address, Job: job, Steps: r.steps,
		OnStep: func(s trainer.Step) {
			switch s.Step {
			case 5, 11: // the only one goes; one comes a while later
				stop()
				stop = load(100 * time.Millisecond)
			case 20: // two share the work
				load(0)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Digest != want.digests[r.steps] {
		t.Errorf("digest step=%d %x, want %x", res.Next, res.Digest, want.digests[r.steps])
	}
}

// TestSkippedRecords: what a source's policy allows to skip is skipped the same
// everywhere, and counts once however often the job goes back over it.
func TestSkippedRecords(t *testing.T) {
	dir := writeSources(t)
	var b strings.Builder
	for i := range 300 {
		if i%100 == 50 {
			b.WriteString(`{"text": [1, 2]}` + "\n")
		}
		fmt.Fprintf(&b, `{"text":"record %d"}`+"\n", i)
	}
	write(t, filepath.Join(dir, "holes", "a.jsonl"), b.String())
	spec := func(limit int) recipe {
		return recipe{fmt.Sprint("holes, limit ", limit), fmt.Sprintf(`
sources:
  - name: holes
    files: holes/*.jsonl
    chunk_bytes: 1000
    bad_records: {policy: skip, limit: %d}
mix: {epochs: 2}
batch: {sequence_length: 64, sequences: 8}
`, limit), 0, ""}
	}
	r := spec(3)
	want := solve(t, dir, r)
	setting{}.serve(t, dir, r, func(ctx context.Context, address string) error {
		for range 3 { // from the start, and back again
			res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: parse(t, dir, r.text(resources{}))})
			if err != nil {
				return err
			}
			if res.Next != want.steps() || res.Digest != want.digests[want.steps()] {
				t.Errorf("digest step=%d %x, want step=%d %x", res.Next, res.Digest, want.steps(), want.digests[want.steps()])
			}
		}
		return nil
	})
	dense := spec(3)
	dense.spec = strings.Replace(dense.spec, "limit: 3", "limit: 3, window: 250, window_limit: 1", 1)
	for says, r := range map[string]recipe{"3 bad records in one epoch": spec(2), "in a row, more than bad_records.window_limit 1 of window 250 allows": dense} {
		setting{}.serve(t, dir, r, func(ctx context.Context, address string) error {
			if err := consume(ctx, address, client.Rank{}); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "a.jsonl") {
				t.Errorf("more than the policy allows: %v; want %q", err, says)
			}
			return nil
		})
	}
}

// TestShapeWithSkips: a batch has the shape that it would have had without the bad records that
// are left out of it: others take their place.
func TestShapeWithSkips(t *testing.T) {
	dir := writeSources(t)
	for name, every := range map[string]int{"whole": 1 << 30, "holes": 5} {
		var b strings.Builder
		for i := range 600 {
			if i%every == every-1 {
				b.WriteString(`{"text": [1, 2]}` + "\n")
			}
			fmt.Fprintf(&b, `{"text":"record %d is of some length %s"}`+"\n", i, strings.Repeat("x", i%40))
		}
		write(t, filepath.Join(dir, name, "a.jsonl"), b.String())
	}
	for _, packing := range []bool{true, false} {
		shapes := map[string][]string{}
		for _, name := range []string{"whole", "holes"} {
			r := recipe{fmt.Sprintf("%s, packing %v", name, packing), fmt.Sprintf(`
sources:
  - name: holes
    files: %s/*.jsonl
    chunk_bytes: 1000
    bad_records: {policy: skip, limit: 1000}
batch: {sequence_length: 96, sequences: 8, packing: %v, microbatch_size: 2}
topology: {dp: 2}
`, name, packing), 0, ""}
			setting{}.serve(t, dir, r, func(ctx context.Context, address string) error {
				ranks := openRanks(ctx, t, address, nil, client.Rank{}, client.Rank{DP: 1})
				for range 12 {
					for _, c := range ranks {
						batch, err := c.Next(ctx)
						if err != nil {
							return err
						}
						shapes[name] = append(shapes[name], shapeOf(batch))
					}
				}
				return nil
			})
		}
		if !slices.Equal(shapes["whole"], shapes["holes"]) || len(shapes["holes"]) != 24 {
			t.Errorf("packing %v: without bad records the batches are\n%s\nwith them\n%s", packing, shapes["whole"], shapes["holes"])
		}
	}
}

// shapeOf says what a rank gets, but for the data: packed tensors have as many documents as fit.
func shapeOf(b *client.Batch) string {
	text := fmt.Sprintf("step %d: %d rows of %d, %d microbatches", b.Step, b.Rows, b.SequenceLength, len(b.Microbatches))
	for i := range b.Microbatches {
		for _, tensor := range b.Microbatches[i].Tensors {
			if tensor.Name == "tokens" || tensor.Name == "labels" || tensor.Name == "loss_mask" {
				text += fmt.Sprintf(" %s%v", tensor.Name, tensor.Shape)
			}
		}
	}
	return text
}
