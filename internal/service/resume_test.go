package service_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

// resumed are the recipes that are stopped at every step: ends of epochs, ramps,
// limits, both ends of data, a strategy of one's own, and samples that wait.
func resumed() []recipe {
	mixed := recipes[0]
	mixed.name, mixed.steps = "mixed, longer", 64
	switch {
	case long:
		return append([]recipe{mixed}, recipes[1:]...)
	case testing.Short():
		return []recipe{mixed, waiting}
	}
	return []recipe{mixed, recipes[1], recipes[2], own, split, waiting}
}

// TestStopAtEveryStep takes the token of every step, and goes on from each: in a
// fresh service, in one that went on from others before, once and twice.
func TestStopAtEveryStep(t *testing.T) {
	dir := writeSources(t)
	for _, r := range resumed() {
		t.Run(r.name, func(t *testing.T) {
			want := solve(t, dir, r)
			tokens := takeTokens(t, dir, r)
			if int64(len(tokens)) != want.steps()+1 {
				t.Fatalf("%d tokens of %d steps", len(tokens), want.steps())
			}
			t.Run("in a live service", func(t *testing.T) { resumeLive(t, dir, r, tokens) })
			t.Run("in fresh services", func(t *testing.T) { resumeFresh(t, dir, r, tokens) })
		})
	}
}

// takeTokens runs a recipe and returns the token of every position. All ranks are
// asked, with batches read ahead; the trainer checks that they agree.
func takeTokens(t *testing.T, dir string, r recipe) [][]byte {
	t.Helper()
	s := setting{loaders: 2, resources: resources{prefetch: 6, window: 50}}
	s.constructors = min(2, parse(t, dir, r.text(s.resources)).Topology.DP)
	var tokens [][]byte
	s.serve(t, dir, r, func(ctx context.Context, address string) error {
		c, err := client.Open(ctx, address, client.Options{Prefetch: 4})
		if err != nil {
			return err
		}
		defer c.Close()
		token, _, err := c.State(ctx)
		if err != nil {
			return err
		}
		tokens = append(tokens, token)
		_, err = trainer.Run(ctx, trainer.Options{
			Address: address, Job: parse(t, dir, r.text(s.resources)), Changes: r.changesOf(t), Steps: r.steps, Prefetch: 4,
			StateEvery: 1, OnState: func(_ int64, token []byte) { tokens = append(tokens, token) },
		})
		return err
	})
	return tokens
}

// resumeLive goes back and forth in one service, whose log compares every step
// with what it holds of the times before.
func resumeLive(t *testing.T, dir string, r recipe, tokens [][]byte) {
	want := solve(t, dir, r)
	s := setting{log: true, resources: resources{loaderBuffer: 100e3, window: 7}}
	job := parse(t, dir, r.text(s.resources))
	rng := rand.New(rand.NewPCG(1, 1))
	s.serve(t, dir, r, func(ctx context.Context, address string) error {
		for i, k := range rng.Perm(len(tokens)) {
			if testing.Short() && i%8 > 0 {
				continue
			}
			steps := 3
			if i%20 == 0 || long {
				steps = len(tokens) - k
			}
			if err := goOn(ctx, address, job, want, tokens, int64(k), int64(steps)); err != nil {
				return fmt.Errorf("from step %d, the %dth time: %w", k, i, err)
			}
		}
		return nil
	})
}

// goOn resumes at step k for some steps and compares everything with what is
// known: the token right after restoring it, every digest, every later token.
func goOn(ctx context.Context, address string, job *jobspec.Job, want answer, tokens [][]byte, k, steps int64) error {
	var wrong error
	expect := func(step int64, token []byte) {
		if !bytes.Equal(token, tokens[step]) {
			wrong = errors.Join(wrong, fmt.Errorf("the token of step %d is another one", step))
		}
	}
	at := k
	if want.ended && k+steps > want.steps() {
		steps = 0 // to the end of the data
	} else {
		steps = min(steps, want.steps()-k)
	}
	if steps == 0 && !want.ended {
		return nil
	}
	res, err := trainer.Run(ctx, trainer.Options{
		Address: address, Job: job, Token: tokens[k], Steps: steps, StateEvery: 1, OnState: expect,
		OnStep: func(s trainer.Step) {
			if at++; s.Step != at-1 || s.Digest != want.digests[at] {
				wrong = errors.Join(wrong, fmt.Errorf("step %d came with digest %x, want step %d with %x", s.Step, s.Digest, at-1, want.digests[at]))
			}
		},
	})
	if err != nil {
		return err
	}
	if res.First != k || (steps > 0 && res.Next != k+steps) || (steps == 0 && (!res.Ended || res.Next != want.steps())) {
		return fmt.Errorf("it went from %d to %d, ended %v", res.First, res.Next, res.Ended)
	}
	return wrong
}

// resumeFresh goes on in services that know nothing but the token, and from there
// in others: in the fast lane from some steps.
func resumeFresh(t *testing.T, dir string, r recipe, tokens [][]byte) {
	want := solve(t, dir, r)
	every := 13
	switch {
	case long:
		every = 1
	case testing.Short():
		every = 40
	}
	for k := 0; k < len(tokens); k += every {
		s := setting{loaders: 1 + k%3, constructors: 1 + k%2, resources: resources{prefetch: 1 + k%5, window: 1 + k}}
		job := parse(t, dir, r.text(s.resources))
		s.serve(t, dir, r, func(ctx context.Context, address string) error {
			return goOn(ctx, address, job, want, tokens, int64(k), 5)
		})
		again := setting{loaders: 3 - k%3, constructors: 2 - k%2, resources: resources{window: 100}}
		job = parse(t, dir, r.text(again.resources))
		again.serve(t, dir, r, func(ctx context.Context, address string) error {
			return goOn(ctx, address, job, want, tokens, int64(min(k+5, len(tokens)-1)), int64(len(tokens)))
		})
		if t.Failed() {
			t.Fatalf("from step %d", k)
		}
	}
}

// TestStateIsOfTheLastBatchReturned: batches that wait ahead are not part of it,
// and saving right after a restore gives the same token back.
func TestStateIsOfTheLastBatchReturned(t *testing.T) {
	dir := writeSources(t)
	r := recipe{"one rank", mixed + "\nbatch: {sequence_length: 512, sequences: 8}\n", 12, ""}
	tokens := takeTokens(t, dir, r)
	for prefetch := -1; prefetch <= 6; prefetch++ {
		s := setting{resources: resources{prefetch: 8}}
		s.serve(t, dir, r, func(ctx context.Context, address string) error {
			var token []byte
			for step := 0; step < 12; step += 3 {
				c, err := client.Open(ctx, address, client.Options{Token: token, Prefetch: prefetch})
				if err != nil {
					return err
				}
				defer c.Close() // if something fails
				for k := step; k < step+3; k++ {
					if token, _, err = c.State(ctx); err != nil {
						return err
					}
					if !bytes.Equal(token, tokens[k]) {
						t.Errorf("prefetch %d: the state before step %d is not that of step %d", prefetch, k, k)
					}
					if b, err := c.Next(ctx); err != nil || b.Step != int64(k) {
						return fmt.Errorf("step %d: %v, %w", k, b, err)
					}
					time.Sleep(time.Millisecond) // so that something is ahead
				}
				if token, _, err = c.State(ctx); err != nil {
					return err
				}
				if err := c.Close(); err != nil { // what it reads ahead may be asked for again, which joins
					return err
				}
			}
			return nil
		})
	}
}

// TestEndOfData: it is there again and again, on every rank, and has a state.
func TestEndOfData(t *testing.T) {
	dir := writeSources(t)
	r := recipe{"to the end", "sources:" + books + "\nmix: {epochs: 3}\nbatch: {sequence_length: 512, sequences: 8}\n", 0, ""}
	for _, prefetch := range []int{-1, 3} {
		setting{}.serve(t, dir, r, func(ctx context.Context, address string) error {
			c, err := client.Open(ctx, address, client.Options{Prefetch: prefetch})
			if err != nil {
				return err
			}
			defer c.Close()
			for err == nil {
				_, err = c.Next(ctx)
			}
			for range 3 {
				if _, err := c.Next(ctx); err != io.EOF {
					t.Errorf("Next at the end: %v", err)
				}
			}
			end, digest, err := c.State(ctx)
			if err != nil {
				return err
			}
			if want := solve(t, dir, r); c.Step() != want.steps() || digest != want.digests[want.steps()] {
				t.Errorf("the end is at step %d with %x", c.Step(), digest)
			}
			again, err := client.Open(ctx, address, client.Options{Token: end})
			if err != nil {
				return err
			}
			defer again.Close()
			if _, err := again.Next(ctx); err != io.EOF {
				t.Errorf("Next after a resume at the end: %v", err)
			}
			return nil
		})
	}
}

// TestRestartOfAllRanks: trainers that die and come back at an earlier step find
// the service as they left it, whatever each rank had said it was done with, and
// whichever of them comes first.
func TestRestartOfAllRanks(t *testing.T) {
	dir := writeSources(t)
	r := recipe{"four ranks", mixed + "\nbatch: {sequence_length: 512, sequences: 8}\ntopology: {dp: 2, cp: 2}\n", 40, ""}
	want, tokens := solve(t, dir, r), takeTokens(t, dir, r)
	ranks := []client.Rank{{DP: 0}, {DP: 0, CP: 1}, {DP: 1}, {DP: 1, CP: 1}}
	s := setting{loaders: 1, constructors: 2, resources: resources{prefetch: 8}}
	job := parse(t, dir, r.text(s.resources))
	rng := rand.New(rand.NewPCG(3, 3))
	rounds := 40
	if long {
		rounds = 400
	}
	s.serve(t, dir, r, func(ctx context.Context, address string) error {
		at := 0
		for round := range rounds {
			far := at
			for _, rank := range ranks { // each gets some batches, then dies
				c, err := client.Open(ctx, address, client.Options{Rank: rank, Token: tokens[at], Prefetch: rng.IntN(5) - 1})
				if err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
				for range rng.IntN(4) {
					if _, err := c.Next(ctx); err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
				}
				far = max(far, int(c.Step()))
				c.Close()
			}
			at = min(max(at+rng.IntN(5)-2, 0), far, 30)
			rng.Shuffle(len(ranks), func(i, j int) { ranks[i], ranks[j] = ranks[j], ranks[i] })
			if err := goOn(ctx, address, job, want, tokens, int64(at), 4); err != nil {
				return fmt.Errorf("round %d, at step %d: %w", round, at, err)
			}
		}
		return nil
	})
}

// TestRefusedTokens: what is not this job's own is refused, in words.
func TestRefusedTokens(t *testing.T) {
	dir := writeSources(t)
	r := recipes[0]
	r.steps = 3
	own := takeTokens(t, dir, r)[3]
	other := recipe{"other", strings.Replace(mixed, "0.5", "0.6", 1) + "\nbatch: {sequence_length: 512, sequences: 8}\n", 3, ""}
	foreign := takeTokens(t, dir, other)[3]
	flipped := slices.Clone(own)
	flipped[len(flipped)/2] ^= 4
	setting{}.serve(t, dir, r, func(ctx context.Context, address string) error {
		for _, test := range []struct {
			name, says string
			token      []byte
		}{
			{"not a token", "damaged or is not one", []byte("hello")},
			{"cut", "damaged", own[:len(own)-9]},
			{"a bit flipped", "damaged", flipped},
			{"another job's", "sources, mix, batch and seed must be the same", foreign},
		} {
			_, err := client.Open(ctx, address, client.Options{Token: test.token})
			if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: got %v, want an error of class user that says %q", test.name, err, test.says)
			}
		}
		_, err := trainer.Run(ctx, trainer.Options{Address: address, Job: parse(t, dir, r.text(resources{})), Token: own, Steps: 2})
		return err // the service is unharmed
	})
}

// TestLogDir: a service that was killed goes on with its log, replaying what it
// holds; another job does not get it.
func TestLogDir(t *testing.T) {
	dir := writeSources(t)
	r := recipes[0]
	want := solve(t, dir, r)
	s := setting{loaders: 2, constructors: 2}
	job := parse(t, dir, r.text(s.resources))
	opts := s.options(t, dir, r)
	opts.LogDir = t.TempDir()
	for _, steps := range []int64{7, 20, 12} { // further, then not as far
		err := service.Run(t.Context(), opts, func(ctx context.Context, address string) error {
			res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: steps})
			if err == nil && res.Digest != want.digests[steps] {
				t.Errorf("digest step=%d %x, want %x", steps, res.Digest, want.digests[steps])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	other := recipe{"other", strings.Replace(mixed, "0.5", "0.6", 1) + "\nbatch: {sequence_length: 512, sequences: 8}\n", 3, ""}
	opts.Job = parse(t, dir, other.text(s.resources))
	opts.Constructors = 1
	err := service.Run(t.Context(), opts, func(context.Context, string) error {
		t.Error("a log of another job was taken")
		return nil
	})
	if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "belongs to another job") {
		t.Errorf("the log of another job: %v", err)
	}
}
