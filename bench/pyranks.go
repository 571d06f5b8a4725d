package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/jobspec"
)

//go:embed consume.py
var consumeProgram string

// pySaid is a line of consume.py.
type pySaid struct {
	CPU      float64 `json:"cpu"`
	Received int64   `json:"received"`
}

// pyRanks are ranks in Python, each a process.
type pyRanks struct {
	args consumeArgs

	mu    sync.Mutex // guards the fields below
	said  [2][]pySaid
	marks [2]mark
}

// consumePython has ranks in Python take batches as consumeRole's do. They stay until end is called.
func consumePython(ctx context.Context, a consumeArgs, job *jobspec.Job) (got consumed, end func(), err error) {
	p := &pyRanks{args: a}
	t := job.Topology
	ranks := t.DP * t.CP * t.PP
	var running []*exec.Cmd
	var inputs []io.Closer
	end = func() {
		for i, cmd := range running {
			_ = inputs[i].Close()
			_ = cmd.Wait() // it has said all that it had to
		}
	}
	g, _ := errgroup.WithContext(ctx)
	for i := range ranks {
		dp, cp, pp := i/(t.CP*t.PP), i/t.PP%t.CP, i%t.PP
		cmd := exec.CommandContext(ctx, a.Python, "-c", consumeProgram, a.Address, fmt.Sprintf("%d,%d,%d", dp, cp, pp), fmt.Sprintf("%d,%d,%d", t.DP, t.CP, t.PP),
			strconv.Itoa(a.Warm), strconv.Itoa(a.Steps), string(a.Way))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return got, end, err
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return got, end, fmt.Errorf("a rank in Python: %w", err)
		}
		running, inputs = append(running, cmd), append(inputs, in)
		g.Go(func() error { return p.hear(out, ranks) })
	}
	if err := g.Wait(); err != nil {
		return got, end, err
	}
	return p.sum(), end, nil
}

// hear takes what one rank says. The last rank to say a line has the time taken.
func (p *pyRanks) hear(out io.Reader, ranks int) error {
	lines := bufio.NewScanner(out)
	for i := range p.said {
		var s pySaid
		if !lines.Scan() {
			return fmt.Errorf("a rank in Python ended early: see its message above")
		}
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("a rank in Python printed %q: %w", lines.Text(), err)
		}
		p.mu.Lock()
		p.said[i] = append(p.said[i], s)
		var err error
		if len(p.said[i]) == ranks {
			p.marks[i], err = markNow(p.args.Service)
		}
		p.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// sum is what all ranks took between both lines, without tokens and bytes, which they do not count.
func (p *pyRanks) sum() consumed {
	got := between(p.marks[0], p.marks[1])
	got.RanksCPU = 0
	for i, sign := range []int64{-1, 1} {
		for _, s := range p.said[i] {
			got.RanksCPU += float64(sign) * s.CPU
			got.Received += sign * s.Received
		}
	}
	return got
}
