package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/faultproxy"
	"github.com/millrace-data/millrace/internal/hostmem"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/trainer"
)

// mostStall is above what the loss of one member may cost, also under the race detector on a machine with much else to do
// (14 s were seen), and below the 20 s that it takes to find one by gRPC's keepalive.
const mostStall = 18 * time.Second

// proxied is a service whose members are reached through proxies, two for each loader and
// constructor: the way to it, and its way to the planner.
type proxied struct {
	address      string
	security     rpc.Security
	data         map[string]*faultproxy.Proxy
	session      map[string]*faultproxy.Proxy
	roles        sync.WaitGroup
	stop         context.CancelFunc
	loaders      int
	constructors int
	store        store.Store // of the loaders; nil: their own
	said         syncBuffer  // what the ranks logged
}

// startProxied starts a service that ends with the test.
func startProxied(t *testing.T, dir string, r recipe, loaders, constructors int) *proxied {
	return startProxiedOn(t, dir, r, loaders, constructors, nil)
}

// startProxiedOn is startProxied with loaders that read from a store of the test.
func startProxiedOn(t *testing.T, dir string, r recipe, loaders, constructors int, from store.Store) *proxied {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 43)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &proxied{
		security: rpc.Security{AccessKeyFile: key}, data: map[string]*faultproxy.Proxy{}, session: map[string]*faultproxy.Proxy{},
		loaders: loaders, constructors: constructors, store: from,
	}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	t.Cleanup(func() {
		for _, p := range s.data {
			p.Set(faultproxy.Carry)
		}
		for _, p := range s.session {
			p.Set(faultproxy.Carry)
		}
		stop()
		s.roles.Wait()
		for name := range s.data {
			s.data[name].Close()
			s.session[name].Close()
		}
	})
	ready := make(chan string, 1)
	s.roles.Go(func() {
		defer close(ready)
		err := planner.Run(ctx, planner.Options{
			Job: parse(t, dir, r.text(resources{prefetch: 4})), Address: "127.0.0.1:0", Security: s.security, Registry: names,
			Loaders: loaders, Constructors: constructors, Serving: func(a string) { ready <- a },
		})
		if err != nil {
			t.Error(err)
		}
	})
	if s.address = <-ready; s.address == "" {
		t.FailNow() // the planner said why
	}
	for i := range loaders {
		s.keep(t, ctx, fmt.Sprintf("loader-%d", i), func(ctx context.Context, id, planner, address, advertise string) error {
			return sourceloader.Run(ctx, sourceloader.Options{ID: id, Planner: planner, Address: address, Advertise: advertise, Security: s.security, Store: s.store})
		})
	}
	for i := range constructors {
		s.keep(t, ctx, fmt.Sprintf("constructor-%d", i), func(ctx context.Context, id, planner, address, advertise string) error {
			return constructor.Run(ctx, constructor.Options{ID: id, Planner: planner, Address: address, Advertise: advertise, Security: s.security, SharedDir: hostmem.None}) // ranks would go past the proxy
		})
	}
	return s
}

// keep runs a role behind its proxies, and again when it ends.
func (s *proxied) keep(t *testing.T, ctx context.Context, id string, run func(ctx context.Context, id, planner, address, advertise string) error) {
	t.Helper()
	var err error
	for _, of := range []map[string]*faultproxy.Proxy{s.data, s.session} {
		if of[id], err = faultproxy.Start(); err != nil {
			t.Fatal(err)
		}
	}
	s.session[id].Forward(s.address)
	data, session := s.data[id], s.session[id].Address() // the maps still grow
	s.roles.Go(func() {
		for ctx.Err() == nil {
			address := freeAddress(t) // another one each time: somebody may have taken the last
			data.Forward(address)
			if err := run(ctx, id, session, address, data.Address()); err != nil && ctx.Err() == nil {
				t.Logf("%s ended: %v", id, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// freeAddress is an address that nobody listens on for now.
func freeAddress(t *testing.T) string {
	address, err := faultproxy.FreeAddress()
	if err != nil {
		t.Error(err)
		return "127.0.0.1:0"
	}
	return address
}

// train runs all ranks; each time after some steps it does something. It returns the longest
// time between two steps from then on.
func (s *proxied) train(t *testing.T, dir string, r recipe, at int64, do func()) time.Duration {
	t.Helper()
	want := solve(t, dir, r)
	var between stalls
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	res, err := trainer.Run(ctx, trainer.Options{
		Address: s.address, Job: parse(t, dir, r.text(resources{prefetch: 4})), Steps: want.steps(), Security: s.security, Prefetch: -1,
		Log: slog.New(slog.NewTextHandler(&s.said, nil)),
		OnStep: func(step trainer.Step) {
			if step.Step == at {
				do()
				between = stalls{last: time.Now()}
			}
			between.step()
			time.Sleep(20 * time.Millisecond)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Digest != want.digests[want.steps()] {
		t.Errorf("digest step=%d %x, want %x", res.Next, res.Digest, want.digests[want.steps()])
	}
	return between.longest
}

// TestBrokenLinks: a link to or from a loader that carries nothing, or a byte in a while, or is
// reset, costs a pause, and changes no byte.
func TestBrokenLinks(t *testing.T) {
	dir := writeSources(t)
	r := recipes[0]
	for _, c := range []struct {
		name  string
		harm  func(s *proxied)
		moves bool // ranks join again elsewhere, once
	}{
		{"the way to a loader carries nothing", func(s *proxied) { s.data["loader-1"].Set(faultproxy.Stall) }, false},
		{"the way to a loader is slow", func(s *proxied) { s.data["loader-1"].Set(faultproxy.Trickle) }, false},
		{"the way to a loader is reset", func(s *proxied) { s.data["loader-1"].Reset() }, false},
		{"the session of a loader carries nothing", func(s *proxied) { s.session["loader-1"].Set(faultproxy.Stall) }, false},
		{"a loader is cut off", func(s *proxied) {
			s.data["loader-1"].Set(faultproxy.Stall)
			s.session["loader-1"].Set(faultproxy.Stall)
		}, false},
		{"the way to a constructor carries nothing for a while", func(s *proxied) {
			s.data["constructor-1"].Set(faultproxy.Stall)
			time.AfterFunc(5*time.Second, func() { s.data["constructor-1"].Set(faultproxy.Carry) })
		}, false},
		{"the way to a constructor carries nothing any more", func(s *proxied) { s.data["constructor-1"].Set(faultproxy.Stall) }, false},
		{"the session of a constructor carries nothing for a while", func(s *proxied) {
			s.session["constructor-1"].Set(faultproxy.Stall)
			time.AfterFunc(8*time.Second, func() { s.session["constructor-1"].Set(faultproxy.Carry) })
		}, false},
		{"the session of a constructor carries nothing any more", func(s *proxied) { s.session["constructor-1"].Set(faultproxy.Stall) }, true},
		{"the way to a constructor is reset", func(s *proxied) { s.data["constructor-1"].Reset() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startProxied(t, dir, r, 3, 2)
			before := 0
			stall := s.train(t, dir, r, 8, func() { before = len(s.said.String()); c.harm(s) })
			t.Logf("the longest stall was %v", stall)
			if stall > mostStall {
				t.Errorf("the longest stall was %v", stall)
			}
			if c.moves {
				s.wantMoved(t, s.said.String()[before:])
			}
		})
	}
}

// movedRank is what a rank logs that joined again, of itself and of its constructors.
var movedRank = regexp.MustCompile(`the rank joined again" (rank="[^"]*").* from=(\S+) to=(\S+)`)

// wantMoved finds that the ranks of one of two constructors joined the other one, each of them once.
// One that joins the same one again has moved nowhere: on a busy machine any may hear nothing for
// a while.
func (s *proxied) wantMoved(t *testing.T, said string) {
	t.Helper()
	times, lost := map[string]int{}, s.data["constructor-1"].Address()
	for _, m := range movedRank.FindAllStringSubmatch(said, -1) {
		if rank, from, to := m[1], m[2], m[3]; from != to {
			if times[rank]++; from != lost {
				t.Errorf("%s went from %s to %s, not away from %s", rank, from, to, lost)
			}
		}
	}
	if len(times) == 0 {
		t.Error("no rank joined the other constructor")
	}
	for rank, n := range times {
		if n != 1 {
			t.Errorf("%s went to the other constructor %d times", rank, n)
		}
	}
}

// mostStopped is how long a stop may stall a rank: 0.6 s until it is noticed, and room for a busy
// machine.
const mostStopped = 3 * time.Second

// TestStoppedRoles: a process that is stopped is done without, and goes on when it is continued.
func TestStoppedRoles(t *testing.T) {
	dir := writeSources(t)
	r := recipes[0]
	want := solve(t, dir, r)
	for _, role := range []string{"loader", "constructor"} {
		s := setting{loaders: 3, constructors: 2, processes: true}
		opts := s.options(t, dir, r)
		output := new(syncBuffer)
		opts.Stderr, opts.LogDir = output, t.TempDir()
		job := parse(t, dir, r.text(s.resources))
		err := service.Run(t.Context(), opts, func(ctx context.Context, address string) error {
			var between stalls
			pid := 0
			res, err := trainer.Run(ctx, trainer.Options{
				Address: address, Job: job, Steps: want.steps(),
				OnStep: func(step trainer.Step) {
					between.step()
					switch step.Step {
					case 8:
						pid = signalRole(t, role, syscall.SIGSTOP)
					case want.steps() / 2: // far more than was there for the ranks: another one has taken over
						_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
					}
					time.Sleep(20 * time.Millisecond)
				},
			})
			if err != nil && pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGCONT) // so that the service can end
			}
			if err == nil && res.Digest != want.digests[want.steps()] {
				t.Errorf("a stopped %s: digest step=%d %x, want %x", role, res.Next, res.Digest, want.digests[want.steps()])
			}
			t.Logf("a stopped %s: the longest stall was %v", role, between.longest)
			if between.longest > mostStopped {
				t.Errorf("a stopped %s: the longest stall was %v", role, between.longest)
			}
			return err
		})
		if err != nil {
			t.Fatalf("a stopped %s: %v\n%s", role, err, output)
		}
	}
}
