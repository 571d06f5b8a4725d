package service_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/trainer"
)

// withWindow runs a service whose ranks without a token wait that long for others.
func withWindow(t *testing.T, r recipe, window time.Duration, use func(ctx context.Context, address string) error) {
	t.Helper()
	opts := setting{constructors: 2}.options(t, writeSources(t), r)
	opts.StartWindow = window
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := service.Run(ctx, opts, use); err != nil {
		t.Error(err)
	}
}

// refusedStart wants a rank without a token to be refused for a reason.
func refusedStart(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a rank without a token: %v; want a user error that says %q", err, says)
	}
}

// TestRankWithoutItsCheckpoint: the others wait for a rank that comes back without its
// token, and go on when it has it: whether the job came so far here or was resumed there.
func TestRankWithoutItsCheckpoint(t *testing.T) {
	dir := writeSources(t)
	want, tokens := solve(t, dir, threeRanks), takeTokens(t, dir, threeRanks)
	for name, from := range map[string]int{"after the first step": 0, "resumed": 9} {
		t.Run(name, func(t *testing.T) {
			withWindow(t, threeRanks, time.Second, func(ctx context.Context, address string) error {
				ranks := openRanks(ctx, t, address, tokens[from], client.Rank{}, client.Rank{DP: 1}, client.Rank{DP: 2})
				at := from
				if from == 0 {
					if err := allNext(ctx, ranks, 3); err != nil {
						return err
					}
					at = 2
				}
				ranks[2].Close()
				_, err := client.Open(ctx, address, client.Options{Rank: client.Rank{DP: 2}})
				refusedStart(t, err, "has not joined so within 1s")
				ranks[2] = openRanks(ctx, t, address, tokens[at], client.Rank{DP: 2})[0]
				for _, c := range ranks {
					if err := allNext(ctx, []*client.Client{c}, from+4-int(c.Step())); err != nil {
						return err
					}
				}
				return sameState(ctx, ranks, want)
			})
		})
	}
}

// TestOneOfSeveralHasAToken: a rank that waits for the others to begin again hears at once
// that one of them went on instead.
func TestOneOfSeveralHasAToken(t *testing.T) {
	// Step 9 is not planned when the ranks join with its token, so that their join moves the job.
	tokens := takeTokens(t, writeSources(t), threeRanks)
	withWindow(t, threeRanks, patience, func(ctx context.Context, address string) error {
		closeAll(openRanks(ctx, t, address, tokens[9], client.Rank{}, client.Rank{DP: 1}, client.Rank{DP: 2}))
		refused := make(chan error, 1)
		go func() {
			_, err := client.Open(ctx, address, client.Options{Rank: client.Rank{DP: 2}})
			refused <- err
		}()
		for waits := ""; !strings.Contains(waits, "all ranks to join without a resume token, as rank dp=2"); {
			status, err := statusOf(ctx, address)
			if err != nil {
				return err
			}
			waits = status.WaitingFor
			time.Sleep(time.Millisecond)
		}
		openRanks(ctx, t, address, tokens[9], client.Rank{DP: 1})
		refusedStart(t, <-refused, "rank dp=1 cp=0 pp=0 tp=0 joined with the token of step 9")
		return nil
	})
}

// TestAllBeginAgain: without tokens all ranks together move the job to its first step, also if
// some gave up waiting and came again, and also near the first step.
func TestAllBeginAgain(t *testing.T) {
	want := solve(t, writeSources(t), threeRanks)
	places := []client.Rank{{}, {DP: 1}, {DP: 2}}
	for _, steps := range []int{0, 1, 2, 8} {
		withWindow(t, threeRanks, patience, func(ctx context.Context, address string) error {
			before := openRanks(ctx, t, address, nil, places...)
			if err := allNext(ctx, before, steps); err != nil {
				return err
			}
			if err := allNext(ctx, before[1:], 1); err != nil { // one is behind
				return err
			}
			closeAll(before)
			if steps == 8 {
				givesUp(ctx, t, address, places[1])
			}
			res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: parse(t, writeSources(t), threeRanks.text(resources{})), Steps: 12})
			if err == nil && (res.First != 0 || res.Digest != want.digests[12]) {
				err = fmt.Errorf("from step %d, digest %x, want %x", res.First, res.Digest, want.digests[12])
			}
			return err
		})
	}
}

// givesUp has a rank wait for the others, until it gives up and knows what it waited for. A busy machine may take longer to
// say it than the rank waits: then it waits longer.
func givesUp(ctx context.Context, t *testing.T, address string, rank client.Rank) {
	t.Helper()
	for wait := 2 * time.Second; ; wait *= 3 {
		short, cancel := context.WithTimeout(ctx, wait)
		_, err := client.Open(short, address, client.Options{Rank: rank})
		cancel()
		if err == nil || fault.ClassOf(err) != fault.Lost {
			t.Errorf("who gave up waiting heard %v", err)
			return
		}
		if strings.Contains(err.Error(), "all ranks to join without a resume token") {
			return
		}
		if wait > patience/4 {
			t.Errorf("who gave up waiting heard %v", err)
			return
		}
	}
}

// TestBroadcastRankMovesNothing: a rank that another one's broadcast serves joins whenever
// it likes, and moves nothing.
func TestBroadcastRankMovesNothing(t *testing.T) {
	r := recipes[slices.IndexFunc(recipes, func(r recipe) bool { return r.name == "broadcast at tp" })]
	withWindow(t, r, patience, func(ctx context.Context, address string) error {
		ranks := openRanks(ctx, t, address, nil, client.Rank{}, client.Rank{DP: 1})
		if err := allNext(ctx, ranks, 5); err != nil {
			return err
		}
		if served := openRanks(ctx, t, address, nil, client.Rank{TP: 1})[0]; served.Fetches() {
			t.Error("a rank that a broadcast serves fetches")
		}
		return allNext(ctx, ranks, 5)
	})
}

// fourRanks loses two of its ranks.
var fourRanks = recipe{"four ranks, then two", mixed + "\nbatch: {sequence_length: 512, sequences: 8}\ntopology: {dp: 4}\n", 40, ""}

// TestLostNode: of four ranks two are lost, and with them the steps after the last
// checkpoint. The topology changes at that checkpoint's step, the two that are left go on
// from it, and the job is what it would have been, in this service, in its log and in
// the next life of the log. Another node is lost later, further back.
func TestLostNode(t *testing.T) {
	dir := writeSources(t)
	want, tokens := solve(t, dir, fourRanks), takeTokens(t, dir, fourRanks)
	s := setting{loaders: 1, constructors: 2}
	opts := s.options(t, dir, fourRanks)
	opts.LogDir = filepath.Join(t.TempDir(), "log")
	four := []client.Rank{{}, {DP: 1}, {DP: 2}, {DP: 3}}
	live := map[int64][]byte{} // tokens of the two
	run := func(use func(ctx context.Context, address string) error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := service.Run(ctx, opts, use); err != nil {
			t.Fatal(err)
		}
	}
	goOn := func(ctx context.Context, address string, token []byte, mesh string, steps int64) error {
		changes, err := change.Read(strings.NewReader(mesh), "mesh")
		if err != nil {
			return err
		}
		res, err := trainer.Run(ctx, trainer.Options{
			Address: address, Job: opts.Job, Token: token, Changes: changes, Steps: steps,
			StateEvery: 1, OnState: func(step int64, token []byte) { live[step] = token },
		})
		if err == nil && res.Digest != want.digests[res.Next] {
			err = fmt.Errorf("digest step=%d %x, want %x", res.Next, res.Digest, want.digests[res.Next])
		}
		return err
	}
	run(func(ctx context.Context, address string) error {
		ranks := openRanks(ctx, t, address, nil, four...)
		if err := allNext(ctx, ranks, 12); err != nil {
			return err
		}
		ranks[2].Close()
		ranks[3].Close()
		found, _, err := client.StateAt(ctx, address, 7, client.Security{}) // long done: out of the log
		if err != nil {
			return err
		}
		for range 2 { // asked for twice, it is one change
			step, err := client.ChangeFrom(ctx, address, []byte(`{"topology":{"dp":2},"reason":"node lost"}`), found, client.Security{})
			if err != nil || step != 7 {
				return fmt.Errorf("the change is for step %d (%w), want 7", step, err)
			}
		}
		if err := allNext(ctx, ranks[:1], 9); err == nil || !strings.Contains(err.Error(), "a change of the topology to") || fault.ClassOf(err) != fault.User {
			t.Errorf("a rank of the old mesh heard %v", err)
		}
		if _, err := client.Open(ctx, address, client.Options{Token: tokens[9]}); err == nil || !strings.Contains(err.Error(), "is void; resume from the token of that step") {
			t.Errorf("a token of a step that is void: %v", err)
		}
		return goOn(ctx, address, found, `{"step":7,"topology":{"dp":2}}`, 8)
	})
	verifyLog(t, opts, want, 15)
	run(func(ctx context.Context, address string) error { // the log alone knows of it now
		if _, err := client.Open(ctx, address, client.Options{Token: tokens[9]}); err == nil || !strings.Contains(err.Error(), "is void") {
			t.Errorf("a token of a step that is void, in the next life: %v", err)
		}
		found, _, err := client.StateAt(ctx, address, 11, client.Security{}) // before a rank has joined
		if err != nil {
			return err
		}
		if err := goOn(ctx, address, found, "", 5); err != nil {
			return err
		}
		if _, err := client.Change(ctx, address, []byte(`{"step":24,"topology":{"dp":4}}`), client.Security{}); err != nil {
			return err
		}
		return goOn(ctx, address, live[16], "", 12)
	})
	run(func(ctx context.Context, address string) error { // before a rank has joined, and before that change
		_, err := client.ChangeFrom(ctx, address, []byte(`{"topology":{"dp":1}}`), live[20], client.Security{})
		if err != nil {
			return err
		}
		return goOn(ctx, address, live[20], `{"step":20,"topology":{"dp":1}}`, 10)
	})
	verifyLog(t, opts, want, 30)
	run(func(ctx context.Context, address string) error { // each step of the log has its state, and no other has
		for step := range int64(31) {
			_, digest, err := client.StateAt(ctx, address, step, client.Security{})
			if err != nil || digest != want.digests[step] {
				return fmt.Errorf("digest step=%d %x (%w), want %x", step, digest, err, want.digests[step])
			}
		}
		for _, step := range []int64{60, 1 << 62} {
			_, _, err := client.StateAt(ctx, address, step, client.Security{})
			if says := fmt.Sprintf("does not hold step %d: it is not planned", step); err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), says) {
				t.Errorf("a step that was not planned: %v", err)
			}
		}
		return nil
	})
	refuseFrom(t, opts, tokens)
}

// refuseFrom names tokens that a change cannot start from.
func refuseFrom(t *testing.T, opts service.Options, tokens [][]byte) {
	other := recipe{"other", strings.Replace(mixed, "0.5", "0.6", 1) + "\nbatch: {sequence_length: 512, sequences: 8}\n", 3, ""}
	foreign := takeTokens(t, opts.Job.Dir, other)[3]
	err := service.Run(t.Context(), opts, func(ctx context.Context, address string) error {
		for _, test := range []struct {
			change, says string
			token        []byte
		}{
			{`{"pause":"chat"}`, "only a change of the topology starts from a token", tokens[7]},
			{`{"step":9,"topology":{"dp":2}}`, "the token that it starts from is of step 7", tokens[7]},
			{`{"topology":{"dp":2}}`, "damaged", []byte("hello")},
			{`{"topology":{"dp":2}}`, "must be the same", foreign},
			{`{"topology":{"dp":3}}`, "dp", tokens[5]},
			{fmt.Sprintf(`{"topology":{"dp":2},"from":"%064x"}`, 1), "give the token itself", nil},
		} {
			_, err := client.ChangeFrom(ctx, address, []byte(test.change), test.token, client.Security{})
			if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v; want a user error that says %q", test.change, err, test.says)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// verifyLog compares the digests of a log, up to a step at least, with the reference that
// makes the log's own changes.
func verifyLog(t *testing.T, opts service.Options, want answer, steps int64) {
	t.Helper()
	log, err := checkpoint.Open(opts.LogDir, checkpoint.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	texts, err := log.Changes()
	if err != nil {
		t.Fatal(err)
	}
	changes, err := change.ParseAll(texts)
	if err != nil {
		t.Fatal(err)
	}
	checked := int64(0)
	_, _, err = reference.ReadWith(t.Context(), store.Local{}, program, opts.Job, changes, steps, func(s *reference.Step) error {
		digest, ok, err := log.ReadDigest(s.Step)
		if err == nil && ok && (digest != s.Digest || s.Digest != want.digests[s.Step+1]) {
			err = fmt.Errorf("step %d has digest %x in the log, %x in the reference", s.Step, digest, s.Digest)
		}
		if ok {
			checked++
		}
		return err
	})
	if err != nil || checked < steps {
		t.Errorf("%d of %d digests of the log were compared: %v\n%s", checked, steps, err, texts)
	}
}
