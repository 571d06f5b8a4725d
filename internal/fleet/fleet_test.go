package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func name(role Role, n int) string { return fmt.Sprintf("%s-%d", role, n) }

// alive are the members that a function runs.
type alive struct {
	mu  sync.Mutex
	all map[string]int
}

func (a *alive) run(ctx context.Context, role Role, n int) error {
	a.add(name(role, n), 1)
	<-ctx.Done()
	a.add(name(role, n), -1)
	return nil
}

func (a *alive) add(name string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all[name] += n; a.all[name] == 0 {
		delete(a.all, name)
	}
}

// TestLocal: whatever is asked for in whatever order, as many run as were asked for last, each name once; those that have
// drained end first; and none is left when the fleet ends.
func TestLocal(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			a := &alive{all: map[string]int{}}
			f := NewLocal(10, name, a.run)
			ctx, end := context.WithCancel(t.Context())
			over := make(chan error, 1)
			want := rng.IntN(5)
			if err := f.Scale(ctx, Loader, want); err != nil {
				t.Fatal(err)
			}
			go func() { over <- f.Run(ctx) }()
			for range 30 {
				synctest.Wait()
				a.mu.Lock()
				if len(a.all) != want {
					t.Fatalf("seed %d: %v run, want %d", seed, a.all, want)
				}
				var spare, stay []string
				for x, n := range a.all {
					if n != 1 {
						t.Fatalf("seed %d: %s runs %d times", seed, x, n)
					}
					if rng.IntN(3) == 0 {
						spare = append(spare, x)
					} else {
						stay = append(stay, x)
					}
				}
				a.mu.Unlock()
				f.Draining(Loader, spare)
				want = rng.IntN(8)
				if err := f.Scale(ctx, Loader, want); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				a.mu.Lock()
				for _, x := range stay {
					if want >= len(stay) && a.all[x] == 0 {
						t.Fatalf("seed %d: %s was ended, while %v had drained", seed, x, spare)
					}
				}
				a.mu.Unlock()
			}
			if err := f.Scale(ctx, Loader, 11); err == nil {
				t.Error("more than the fleet may have")
			}
			end()
			if err := <-over; err != nil || len(a.all) > 0 {
				t.Errorf("seed %d: ended with %v, %v left", seed, err, a.all)
			}
		})
	}
}

// TestLocalFails: a member that fails ends the fleet with its error, one that ends in order does not.
func TestLocalFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		fail := make(chan error)
		f := NewLocal(10, name, func(ctx context.Context, _ Role, n int) error {
			if n != 1 {
				<-ctx.Done()
				return nil
			}
			return <-fail
		})
		if err := f.Scale(t.Context(), Loader, 3); err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() { over <- f.Run(t.Context()) }()
		fail <- nil
		synctest.Wait()
		if got := len(f.members()); got != 2 {
			t.Errorf("%d members after one ended", got)
		}
		if err := f.Scale(t.Context(), Loader, 3); err != nil {
			t.Fatal(err)
		}
		fail <- broken
		if err := <-over; !errors.Is(err, broken) {
			t.Errorf("ended with %v", err)
		}
	})
}

// runs plays a command in a folder until it has run as often as that, and has done or failed at what is wanted, and
// returns what it wrote.
func runs(t *testing.T, text string, n int, fails bool, do func(c *Command)) (lines []string, c *Command) {
	t.Helper()
	dir := t.TempDir()
	c = NewCommand("cd "+dir+"; "+text, slog.New(slog.DiscardHandler))
	c.pause, c.time = time.Millisecond, 20*time.Second
	ctx, end := context.WithCancel(t.Context())
	over := make(chan error)
	do(c)
	go func() { over <- c.Run(ctx) }()
	for len(lines) < n || fails && c.Problem() == "" || !fails && c.pending() {
		data, err := os.ReadFile(filepath.Join(dir, "out"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		lines = strings.Split(strings.TrimSpace(string(data)), "\n")
		if len(data) == 0 {
			lines = nil
		}
		time.Sleep(time.Millisecond)
	}
	end()
	if err := <-over; err != nil {
		t.Errorf("ended with %v", err)
	}
	return lines, c
}

func (c *Command) pending() bool { role, _ := c.next(); return role != "" }

// TestCommand: the command hears what is wanted, once.
func TestCommand(t *testing.T) {
	t.Parallel()
	lines, c := runs(t, `echo "$ROLE $COUNT [$DRAINED]" >> out`, 1, false, func(c *Command) {
		for n := range 4 {
			if err := c.Scale(t.Context(), Loader, n); err != nil {
				t.Fatal(err)
			}
		}
		c.Draining(Loader, []string{"b", "a"})
	})
	if want := []string{"loader 3 [a b]"}; !slices.Equal(lines, want) || c.Problem() != "" {
		t.Errorf("the command ran as %q, %s", lines, c.Problem())
	}
	if got := c.members(); len(got) != 3 {
		t.Errorf("members %v", got)
	}
}

// TestCommandFails: one that fails is run again, its failure is said, and nothing ends.
func TestCommandFails(t *testing.T) {
	t.Parallel()
	lines, c := runs(t, `echo x >> out; echo no such cluster >&2; test $(wc -l < out) -ge 3`, 3, false, func(c *Command) { _ = c.Scale(t.Context(), Loader, 2) })
	if len(lines) != 3 || c.Problem() != "" {
		t.Errorf("ran %d times, problem %q", len(lines), c.Problem())
	}
	lines, c = runs(t, `echo x >> out; echo no such cluster >&2; exit 7`, 2, true, func(c *Command) { _ = c.Scale(t.Context(), Loader, 2) })
	if want := "no such cluster"; !strings.Contains(c.Problem(), want) || !strings.Contains(c.Problem(), "exit status 7") {
		t.Errorf("ran %d times, problem %q, want %q", len(lines), c.Problem(), want)
	}
}

// TestCommandPrints: of a command that prints much, the end is kept, and no more. It may begin within a letter.
func TestCommandPrints(t *testing.T) {
	t.Parallel()
	c := NewCommand("yes é | tr -d '\\n' | head -c 1000000; printf 'no such cluster' >&2; exit 7", slog.New(slog.DiscardHandler))
	err := c.run(t.Context(), Loader, want{count: 1})
	if text := fmt.Sprint(err); !strings.HasPrefix(text, "exit status 7: ?é") || !strings.HasSuffix(text, "éno such cluster") || len(text) > mostOutput+100 {
		t.Errorf("an error of %d bytes: %.100s ... %s", len(text), text, text[max(len(text)-100, 0):])
	}
}

// TestCommandRevert: one that failed may have done what it was asked for, so what was wanted before is done again.
func TestCommandRevert(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := NewCommand("echo $COUNT >> "+dir+"/out; test $COUNT != 3", slog.New(slog.DiscardHandler))
	for _, n := range []int{2, 3, 2} {
		if err := c.Scale(t.Context(), Loader, n); err != nil {
			t.Fatal(err)
		}
		if role, w := c.next(); role != "" {
			c.ended(role, w, c.run(t.Context(), role, w))
		}
	}
	text, err := os.ReadFile(dir + "/out")
	if got := strings.Fields(string(text)); err != nil || !slices.Equal(got, []string{"2", "3", "2"}) || c.Problem() != "" || c.pending() {
		t.Errorf("ran for %v, problem %q, %v", got, c.Problem(), err)
	}
}

// TestCommandLost: while fewer members are there than it was asked for, a command is run again, with pauses that grow; when they
// are there it is not, and for members that are lost after that the first pause counts.
func TestCommandLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCommand("", slog.New(slog.DiscardHandler))
		runs := 0
		work := func() {
			for role, w := c.next(); role != ""; role, w = c.next() {
				runs++
				c.ended(role, w, nil)
			}
		}
		after := func(d time.Duration, joined, want int) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Second) {
				c.Joined(Loader, joined)
				work()
			}
			if runs != want {
				t.Errorf("%d of 2 are there for %v: the command was run %d times in all, want %d", joined, d, runs, want)
			}
		}
		after(time.Hour, 0, 0) // nothing was asked for
		if err := c.Scale(t.Context(), Loader, 2); err != nil {
			t.Fatal(err)
		}
		work()
		after(firstShort, 0, 1)
		after(time.Hour, 2, 1)
		after(firstShort, 1, 1)
		after(2*firstShort, 1, 2)
		after(4*firstShort, 1, 3)
		after(10*time.Hour, 1, 65) // about one in lastShort
		after(time.Minute, 3, 65)
		after(firstShort+10*time.Second, 1, 66)
	})
}

// TestCommandLeaves: one that ended well and left a child in the background has done what it was asked for; the child of one
// that failed is no excuse.
func TestCommandLeaves(t *testing.T) {
	t.Parallel()
	for text, said := range map[string]string{"sleep 1000 & echo $!": "", "sleep 1000 & echo $!; exit 3": "exit status 3"} {
		file := filepath.Join(t.TempDir(), "pid")
		c := NewCommand(strings.Replace(text, "echo $!", "echo $! > "+file, 1), slog.New(slog.DiscardHandler))
		err := c.run(t.Context(), Loader, want{count: 1})
		if said == "" && err != nil || said != "" && (err == nil || !strings.Contains(err.Error(), said)) {
			t.Errorf("%s: %v, want %q", text, err, said)
		}
		data, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// TestCommandHangs: one that does not end is ended, and what it started with it.
func TestCommandHangs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	c := NewCommand("sleep 1000 & echo $! > "+file+"; wait", slog.New(slog.DiscardHandler))
	for c.time = 100 * time.Millisecond; ; c.time *= 2 { // a busy machine may take its time to write the number
		if err := c.run(t.Context(), Loader, want{count: 1}); err == nil || !strings.Contains(err.Error(), "took longer") {
			t.Fatalf("ended with %v", err)
		}
		text, _ := os.ReadFile(file)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			continue
		}
		for end := time.Now().Add(time.Minute); there(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("process %d, which it started, is there yet", pid)
			}
		}
		return
	}
}

// there reports whether a process runs, and is not one that has ended and that nobody waits for.
func there(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
