package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d is there yet", pid)
		}
	}
}

// TestLeavesNothing: what a worker started ends with it, and all end with the environment.
func TestLeavesNothing(t *testing.T) {
	e, err := Open(t.Context(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	got := called(t, function(t, e, "child"), texts("a"))
	child, err := strconv.Atoi(strings.Trim(strings.TrimPrefix(got[0], "0:0 "), `"`))
	if err != nil || !alive(child) {
		t.Fatalf("%q: %v", got, err)
	}
	pids := append(e.pids(), child)
	e.Close()
	for _, pid := range pids {
		gone(t, pid)
	}
	if _, _, err := function(t, open(t, options(t)), "child").Call(t.Context(), texts("exit")); err != nil {
		t.Error(err)
	}
}

// TestLeftOpen: a worker that is gone is missed at once, also if something that it started has its socket yet.
func TestLeftOpen(t *testing.T) {
	opt := options(t)
	opt.Workers = 1
	e := open(t, opt)
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	call := make(chan error, 1)
	f := function(t, e, "leaves")
	go func() {
		_, _, err := f.Call(ctx, texts(file))
		call <- err
	}()
	for end := time.Now().Add(time.Minute); e.Status().LastDeath == ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its socket is open, so nobody misses it")
		}
	}
	cancel()
	<-call
	if got := e.Status().LastDeath; got != "its worker ended by signal 9 (killed)" {
		t.Error(got)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil || !alive(pid) {
			t.Errorf("what the worker started is gone, so nothing had its socket: %s", word)
		}
		pids = append(pids, pid)
	}
	e.Close()
	for _, pid := range pids {
		gone(t, pid)
	}
}

// TestBlame: a worker that we end for what it did before says nothing of the setup that it has in its queue, nor of the call.
func TestBlame(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		out, err := newOutput(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		p := &process{server: &server{}, exit: &exit{told: make(chan struct{})}, out: out, killed: true, earlier: earlier}
		close(p.exit.told)
		p.queue = []*job{{setup: true, done: make(chan answer, 1)}, {done: make(chan answer, 1)}}
		jobs := p.queue
		p.lost(io.EOF)
		setup, call := <-jobs[0].done, <-jobs[1].done
		if setup.death.Working == earlier || call.death.Setup == earlier || call.death.Working {
			t.Errorf("ended for an earlier job: %t; the setup hears %+v, the call %+v", earlier, setup.death, call.death)
		}
	}
}

// TestLateAnswer: a worker answers, and is gone for its memory before anyone reads that: the rows count as not answered.
func TestLateAnswer(t *testing.T) {
	if !canLimit {
		t.Skip("nobody knows here what a process held")
	}
	for _, decides := range []bool{true, false} {
		past := exec.Command("true")
		out, err := newOutput(slog.New(slog.DiscardHandler))
		if err := errors.Join(err, past.Run()); err != nil {
			t.Fatal(err)
		}
		ours, worker := wirePair(t)
		if err := worker.send(Reply{Bytes: 8}); err != nil {
			t.Fatal(err)
		}
		_ = worker.conn.Close()
		s := &server{opt: Options{Memory: 1 << 20, MemoryDecides: decides}}
		p := &process{server: s, pid: past.Process.Pid, wire: ours, exit: &exit{told: make(chan struct{})}, out: out, killed: true, big: true, cause: "large"}
		close(p.exit.told)
		j := &job{done: make(chan answer, 1)}
		p.queue = []*job{j}
		p.read()
		p.close()
		if got := <-j.done; (got.death != nil) != decides || decides && (!got.death.Big || !got.death.Working || !got.death.Fresh) {
			t.Errorf("memory decides: %t; the call hears %+v, %+v", decides, got.reply, got.death)
		}
	}
}

// TestSockets: no other child of the loader gets the sockets of workers, whenever it starts.
func TestSockets(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var starts sync.WaitGroup
	defer starts.Wait()
	defer cancel()
	held := make(chan string, 1)
	for range 2 {
		starts.Go(func() {
			for ctx.Err() == nil {
				out, err := exec.Command("/bin/sh", "-c", "ls -l /proc/self/fd | grep socket").Output()
				if err == nil {
					select {
					case held <- string(out):
					default:
					}
				}
			}
		})
	}
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		w, theirs, err := wires()
		if err != nil {
			t.Fatal(err)
		}
		w.conn.Close()
		theirs.Close()
	}
	select {
	case list := <-held:
		t.Errorf("a child has\n%s", list)
	default:
	}
}

// TestEndsWithLoader: a loader that dies without a word leaves no process.
func TestEndsWithLoader(t *testing.T) {
	if os.Getenv("MILLRACE_TEST_LOADER") != "" {
		e, err := Open(t.Context(), options(t))
		if err != nil {
			t.Fatal(err)
		}
		f := function(t, e, "dies")
		go f.Call(t.Context(), texts("hang"))
		for time.Sleep(100 * time.Millisecond); len(e.pids()) < 3; time.Sleep(10 * time.Millisecond) {
		}
		_ = os.WriteFile(os.Getenv("MILLRACE_TEST_LOADER"), []byte(fmt.Sprint(e.pids())), 0o600)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	options(t)
	file := filepath.Join(t.TempDir(), "pids")
	if err := again(t, file); err == nil {
		t.Fatal("the loader did not die")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(strings.Trim(string(text), "[]")) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		gone(t, pid)
	}
}

// TestOtherSession: what a worker starts in a session of its own ends with the environment, too, whether its worker is there yet or not.
func TestOtherSession(t *testing.T) {
	if !canLimit {
		t.Skip("this system gives what lost its parent to process 1")
	}
	opt := options(t)
	opt.Workers, opt.Functions = 1, []string{"sessions:Starts"}
	dir := withModule(t, &opt, "sessions", `
import os, subprocess, time
import millrace

at = os.path.dirname(__file__)
here = subprocess.Popen(["sleep", "1000"], start_new_session=True)

@millrace.transform
class Starts:
    def __init__(self):
        started = "sleep 1000 & echo $! >> \"$0\"; echo $$ >> \"$0\"; exec sleep 1000"
        subprocess.Popen(["sh", "-c", started, os.path.join(at, "pids")], start_new_session=True)
        subprocess.Popen(["true"], start_new_session=True)

    def __call__(self, text: str) -> str:
        if text == "exit":
            os._exit(1)
        return str(here.pid)
`)
	e, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	f, err := e.Function(t.Context(), Use{Name: "sessions:Starts"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, _ = f.Call(t.Context(), texts("exit")) // the row that ends its worker is a bad record
	here := called(t, f, texts("a"))
	pids := []int{}
	until(t, "two workers started nothing", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "pids"))
		pids = pids[:0]
		for _, field := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(field)
			pids = append(pids, pid)
		}
		return len(pids) >= 4 && strings.HasSuffix(string(text), "\n")
	})
	pid, _ := strconv.Atoi(strings.Trim(strings.TrimPrefix(here[0], "0:0 "), `"`))
	pids = append(pids, pid)
	for _, pid := range pids {
		if !alive(pid) {
			t.Errorf("process %d ended while the environment is there", pid)
		}
	}
	e.Close()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is there yet", pid)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
