package service_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/service/testdata/alternate"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// names are the strategies that the jobs of the tests name.
var names = compile.Registry{RowMethods: strategy.RowMethods{"longest-last": alternate.LongestLast{}}, Strategies: strategy.Set{
	"alternate": alternate.Plan,
	"few shares": func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(strategy.Shares{1, 2})
		return g.Plan()
	},
	"drifts": func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		shape, dp := s.Shape(), int64(s.Tree().Sizes().DP)
		rank, microbatch := make([]int32, shape.Rows), make([]int32, shape.Rows)
		for row := range int64(shape.Rows) {
			rank[row], microbatch[row] = int32((row+drift.Load())%dp), int32(row/dp)
		}
		if err := strategy.PlanRaw(s, s.RowOf(), rank, microbatch, make([]int32, shape.Rows)); err != nil {
			return err
		}
		return g.Plan()
	},
	"hangs": func(s *strategy.Step) error {
		<-hung
		return strategy.InOrder(s)
	},
}}

// TestSharesOfStrategy: a strategy's own shares may leave sources out, such as one that
// joins later.
func TestSharesOfStrategy(t *testing.T) {
	dir := writeSources(t)
	few := own
	few.name, few.spec = "few shares", strings.Replace(own.spec, "alternate", "few shares", 1)
	check(t, dir, few, setting{loaders: 2, constructors: 1, resources: resources{prefetch: 3, window: 20}})
}

// drift is what the strategy "drifts" depends on, which is no function of its step.
var drift atomic.Int64

// TestStrategyThatDrifts: a strategy that gives a step's rows to other ranks when the next planner plans it again ends the
// job: a rank may have its part as it was before. Rows hold the same, so that no digest tells.
func TestStrategyThatDrifts(t *testing.T) {
	defer drift.Store(0)
	dir := writeSources(t)
	r := recipe{"drifts", mixed + "\nbatch: {sequence_length: 512, sequences: 8}\ntopology: {dp: 2}\nstrategy: drifts\n", 12, ""}
	s := setting{resources: resources{prefetch: 3}}
	opts := s.options(t, dir, r)
	opts.LogDir, opts.Address = t.TempDir(), freeAddress(t) // the next service is found there
	var ranks []*client.Client
	run := func(use func(ctx context.Context) error) error {
		return service.Run(t.Context(), opts, func(ctx context.Context, _ string) error {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			return use(ctx)
		})
	}
	err := run(func(ctx context.Context) error {
		ranks = openRanks(ctx, t, opts.Address, nil, client.Rank{}, client.Rank{DP: 1})
		return errors.Join(allNext(ctx, ranks, 2), allNext(ctx, ranks[:1], 1)) // one is ahead of the other
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := run(func(ctx context.Context) error { return allNext(ctx, ranks[1:], 1) }); err != nil {
		t.Errorf("the same again: %v", err)
	}
	drift.Store(1)
	err = run(func(ctx context.Context) error { return allNext(ctx, ranks[1:], 1) })
	if err == nil || !strings.Contains(err.Error(), "gives its rows to other ranks than when it was planned before") {
		t.Errorf("other ranks: %v", err)
	}
}

// own is a job whose strategy a program of the user's registers.
var own = recipe{"a strategy of one's own", mixed + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2}
strategy: alternate
`, 12, ""}

// ownAtCP is that job with rows of its own for every rank of dp x cp.
var ownAtCP = recipe{"a strategy of one's own, rows at cp", mixed + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2}
output: {format: megatron-thd}
strategy: [use: alternate, distribute: cp]
`, 12, ""}

// atCP is a job whose rows go to all ranks of dp x cp, in groups of three and one.
var atCP = recipe{"rows at cp, a smaller last group", mixed + `
batch: {sequence_length: 512, sequences: 16, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
output: {format: megatron-thd}
strategy:
  - distribute: {axis: cp, group_size: 3, last_group: smaller}
  - cost: quadratic
  - balance: {level: interleaved}
`, 30, ""}

// ownRows is a job whose rows a method of a program moves samples between, by costs that
// one of its sources has to itself.
var ownRows = recipe{"a row method of one's own, and a cost of one source", mixed + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2}
strategy:
  - distribute: dp
  - cost: linear
  - balance: {level: interleaved, row_method: longest-last}
  - graph: {of: text, sources: chat}
  - cost: {model: linear, a: 40}
`, 12, ""}

// TestOwnRowsMatter: the row method and the cost of a source of its own change what rows
// hold, and rows at cp do not.
func TestOwnRowsMatter(t *testing.T) {
	dir := writeSources(t)
	seen := map[[32]byte]string{}
	for name, change := range map[string][2]string{
		"as it is":             {"", ""},
		"without the method":   {", row_method: longest-last", ""},
		"without the cost":     {"a: 40", "a: 1"},
		"the cost of two":      {"sources: chat", "sources: [chat, books]"},
		"even by the built-in": {"level: interleaved, row_method: longest-last", "level: inter"},
	} {
		r := ownRows
		r.name, r.spec = "own rows, "+name, strings.Replace(r.spec, change[0], change[1], 1)
		content := solve(t, dir, r).content
		if other, same := seen[content]; same {
			t.Errorf("rows hold the same %s and %s", name, other)
		}
		seen[content] = name
	}
	dp := atCP
	dp.name, dp.spec = "the same at dp", strings.Replace(dp.spec, "axis: cp", "axis: dp", 1)
	dp.spec = strings.Replace(dp.spec, "format: megatron-thd", "format: megatron-thd, document_multiple: 4", 1)
	cp := atCP
	cp.name, cp.spec = "at cp, documents in fours", strings.Replace(cp.spec, "format: megatron-thd", "format: megatron-thd, document_multiple: 4", 1)
	if solve(t, dir, dp).content != solve(t, dir, cp).content {
		t.Error("rows hold other samples at cp than at dp")
	}
}

// TestOwnStrategyMatters: the strategy of the recipe changes what rows hold, so that
// the matrix sees whether the reference follows it.
func TestOwnStrategyMatters(t *testing.T) {
	dir := writeSources(t)
	plain := own
	plain.name = "without a strategy"
	plain.spec = strings.Replace(own.spec, "strategy: alternate", "", 1)
	with, without := solve(t, dir, own), solve(t, dir, plain)
	if with.steps() != own.steps || with.ended {
		t.Fatalf("%d steps, ended %v", with.steps(), with.ended)
	}
	if with.digests[with.steps()] == without.digests[own.steps] {
		t.Error("the digest is the same without the strategy")
	}
}

// TestOwnStrategyOnAnotherMesh: the strategy of the recipe looks at the mesh, and the
// reference knows when that changes.
func TestOwnStrategyOnAnotherMesh(t *testing.T) {
	dir := writeSources(t)
	other := own
	other.name, other.changes = "a strategy of one's own, on another mesh", `{"step":7,"topology":{"dp":4}}`
	if solve(t, dir, own).digests[12] == solve(t, dir, other).digests[12] {
		t.Error("the digest is the same on another mesh")
	}
	check(t, dir, other, setting{loaders: 1, constructors: 2, resources: resources{prefetch: 3, window: 20}})
}

// TestOwnProgram runs the verbs of a program that registers a strategy; the stock
// binary says that it needs that program.
func TestOwnProgram(t *testing.T) {
	dir := writeSources(t)
	job := filepath.Join(dir, "own.yaml")
	write(t, job, own.text(resources{}))
	log, mine := filepath.Join(t.TempDir(), "log"), programs["mine"](t)
	run := func(program string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "NO_COLOR=1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	want := fmt.Sprintf("digest step=12 %x", solve(t, dir, own).digests[12])
	for _, args := range [][]string{
		{"reference", job, "--steps", "12"},
		{"run", job, "--steps", "12", "--log-dir", log},
		{"verify", job, "--log-dir", log, "--steps", "12"},
		{"verify", job, "--digest", want[len("digest step=12 "):], "--steps", "12"},
	} {
		if out, err := run(mine, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("mine %s: %v, want %s:\n%s", strings.Join(args, " "), err, want, out)
		}
	}
	for _, args := range [][]string{{"plan", job, "--steps", "6"}, {"explain", job, "--step", "5"}} {
		if out, err := run(mine, args...); err != nil {
			t.Errorf("mine %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	for _, args := range [][]string{
		{"reference", job}, {"plan", job}, {"explain", job, "--step", "5"}, {"run", job},
		{"verify", job, "--log-dir", log}, {"verify", job, "--digest", want[len("digest step=12 "):], "--steps", "12"},
	} {
		out, err := run(programs["millrace"](t), args...)
		for _, says := range []string{`"alternate"`, "a program of your own", "run the same command of that program"} {
			if err == nil || !strings.Contains(out, says) {
				t.Errorf("millrace %s: %v, want %s:\n%s", strings.Join(args, " "), err, says, out)
			}
		}
	}
}
