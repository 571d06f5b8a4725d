package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/rig"
)

// sharedJob has documents that carry more bytes of a kept column than of tokens: they travel as they are, so that
// ranks map them.
const sharedJob = `sources:
  - name: pages
    files: pages/*.jsonl
    transforms: [{text: "{text}"}, {tokenize: bytes}]
    keep: [page]
batch: {sequence_length: 256, sequences: 8, microbatch_size: 2}
topology: {dp: 2, tp: 2}
`

const (
	sharedSteps = 40
	sharedRanks = 4
	// heldSteps is how many a rank keeps; of the second of a TP group more than a ring has slots for, so that batches
	// come in the ring and through the socket.
	heldSteps    = 2
	heldMore     = 8
	sharedMemory = "/memfd:millrace "
	// leakTime is how long the memory of processes that are gone may stay mapped.
	leakTime = 10 * time.Second
	// roundTime bounds a round in which nobody is killed.
	roundTime = 2 * time.Minute
)

// sharedKills ends constructors and ranks that map memory of theirs, at random, and compares what each rank got of
// each step with what a call for each step gave. Ranks look at a batch when they have some after it: a slot that
// is written too early shows.
type sharedKills struct {
	opts options
	rig  *rig.Rig
	rng  *rand.Rand

	mu      sync.Mutex // guards the fields below
	want    map[[2]int]string
	checked int
	kills   int
	wrong   error
}

// killShared returns how many processes it killed, and batches compared.
func killShared(ctx context.Context, o options) (*sharedKills, error) {
	k := &sharedKills{opts: o, rng: rig.Random(o.seed, "shared"), want: map[[2]int]string{}}
	data := filepath.Join(o.dir, "shared")
	if err := writePages(filepath.Join(data, "pages")); err != nil {
		return k, err
	}
	a, err := rig.Solve(ctx, data, &rig.Recipe{Name: "pages", Spec: sharedJob, Steps: sharedSteps}, 4)
	if err != nil {
		return k, err
	}
	env := []string{"MILLRACE_SHARED_DIR=" + data}
	err = rig.Run(ctx, rig.Options{Binary: o.binary, Dir: data, Answer: a, Constructors: 2, Env: env}, func(ctx context.Context, r *rig.Rig) error {
		k.rig = r
		for _, way := range []client.Way{client.WayCalls, client.WayShared} {
			if err := k.round(ctx, way, false); err != nil {
				return fmt.Errorf("nobody is killed, way %s: %w", way, err)
			}
		}
		for k.kills < o.shared {
			if err := k.round(ctx, "", true); err != nil {
				return fmt.Errorf("after %d kills: %w", k.kills, err)
			}
		}
		return k.round(ctx, client.WayShared, false)
	})
	return k, err
}

// writePages writes the source.
func writePages(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	rng := rig.Random(7, "pages")
	for file := range 4 {
		var lines strings.Builder
		for range 100 {
			fmt.Fprintf(&lines, "{\"text\": %q, \"page\": \"", strings.Repeat("text ", 10+rng.IntN(20)))
			for range 1500 + rng.IntN(500) {
				fmt.Fprintf(&lines, "%016x", rng.Uint64())
			}
			lines.WriteString("\"}\n")
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(file)+".jsonl"), []byte(lines.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// round starts all ranks, and ends them; or, if nobody is to be killed, waits for the end of the job. No memory is
// mapped after it.
func (k *sharedKills) round(ctx context.Context, way client.Way, kill bool) error {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	var ranks []*exec.Cmd
	var ended errgroup.Group
	for i := range sharedRanks {
		cmd, out, err := k.start(ctx, i, way)
		if err != nil {
			return err
		}
		ranks = append(ranks, cmd)
		ended.Go(func() error {
			err := k.hear(i, out)
			status := cmd.Wait()
			if by, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); kill && ok && by.Signaled() {
				status = nil
			}
			return errors.Join(err, status)
		})
	}
	for kill {
		time.Sleep(time.Duration(k.rng.IntN(1200)) * time.Millisecond)
		if k.rng.IntN(2) == 0 {
			if k.rig.Signal(fmt.Sprintf("constructor-%d", k.rng.IntN(2)), syscall.SIGKILL) {
				k.kills++
			}
			continue
		}
		for _, i := range k.rng.Perm(sharedRanks) { // the others cannot go on without it
			if ranks[i].Process.Kill() == nil {
				k.kills++
			}
			time.Sleep(time.Duration(k.rng.IntN(20)) * time.Millisecond)
		}
		break
	}
	err := ended.Wait()
	k.mu.Lock()
	err = errors.Join(err, k.wrong)
	k.mu.Unlock()
	if err != nil {
		return err
	}
	return k.unmapped()
}

// start starts a rank: the last one in Python, if there is one.
func (k *sharedKills) start(ctx context.Context, i int, way client.Way) (*exec.Cmd, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	args := []string{k.rig.Address(), strconv.Itoa(i / 2), strconv.Itoa(i % 2), string(way), strconv.Itoa(sharedSteps)}
	cmd := exec.CommandContext(ctx, self, args...)
	if k.opts.python != "" && i == sharedRanks-1 {
		cmd = exec.CommandContext(ctx, k.opts.python, append([]string{"-c", rankProgram}, args...)...)
	}
	cmd.Env = append(os.Environ(), rankVariable+"=1", "MILLRACE_SHARED_DIR="+filepath.Join(k.opts.dir, "shared"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return cmd, out, cmd.Start()
}

// hear compares what a rank got.
func (k *sharedKills) hear(rank int, out io.Reader) error {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		text, hash, whole := strings.Cut(lines.Text(), " ")
		step, err := strconv.Atoi(text)
		if err != nil || !whole || len(hash) != 2*sha256.Size {
			continue // it was killed in the middle of a line
		}
		k.mu.Lock()
		at := [2]int{rank, step}
		if known, ok := k.want[at]; ok && known != hash {
			k.wrong = fmt.Errorf("rank %d got another step %d than before", rank, step)
		}
		k.want[at] = hash
		k.checked++
		k.mu.Unlock()
	}
	return nil
}

// unmapped waits until no constructor maps memory for ranks.
func (k *sharedKills) unmapped() error {
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		n := mappings()
		if n == 0 {
			return nil
		}
		if time.Since(begin) > leakTime {
			return fmt.Errorf("all ranks are gone, and constructors still have %d mappings of memory for them", n)
		}
	}
}

// mappings counts memory for ranks that children of this process map.
func mappings() (n int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if err != nil || len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		maps, _ := os.ReadFile(filepath.Join(filepath.Dir(stat), "maps")) // it may be gone
		n += strings.Count(string(maps), sharedMemory)
	}
	return n
}

// rankVariable is set in a process that is a rank.
const rankVariable = "KILLMATRIX_RANK"

//go:embed rank.py
var rankProgram string

// rankMain is a rank in Go.
func rankMain(ctx context.Context, args []string) error {
	dp, _ := strconv.Atoi(args[1]) // this program wrote them
	tp, _ := strconv.Atoi(args[2])
	steps, _ := strconv.Atoi(args[4])
	c, err := client.Open(ctx, args[0], client.Options{Rank: client.Rank{DP: dp, TP: tp}, Way: client.Way(args[3]), Start: client.Beginning})
	if err != nil {
		return err
	}
	var held []*client.Batch
	most := heldSteps + tp*(heldMore-heldSteps)
	for range steps {
		b, err := c.Next(ctx)
		if err != nil {
			return err
		}
		if held = append(held, b); len(held) > most {
			say(held[0])
			held = held[1:]
		}
	}
	for _, b := range held {
		say(b)
	}
	return c.Close()
}

// say prints what a batch holds, and gives its memory back.
func say(b *client.Batch) {
	h := sha256.New()
	for _, mb := range b.Microbatches {
		for _, t := range mb.Tensors {
			if !strings.HasPrefix(t.Name, "keep.") || strings.HasSuffix(t.Name, ".page") {
				h.Write([]byte(t.Name))
				h.Write(t.Data)
			}
		}
	}
	fmt.Printf("%d %x\n", b.Step, h.Sum(nil))
	b.Release()
}
