package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/faultproxy"
	"github.com/millrace-data/millrace/internal/rig"
)

// inside names the folder of TestFullDisk in a process that may mount a disk there.
const inside = "MILLRACE_TEST_DISK"

// TestFullDisk fills the disk under the log of a running planner: no rank gets a wrong step,
// all hear soon that the log's disk is the cause, and what the log holds is whole.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(inside); dir != "" {
		fillDisk(t, dir)
		return
	}
	dir := folder(t)
	if err := exec.CommandContext(t.Context(), "unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", dir).Run(); err != nil {
		t.Skipf("no disk can be mounted here: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-Urm", os.Args[0], "-test.run", "^TestFullDisk$", "-test.timeout", "100s")
	cmd.Env = append(os.Environ(), inside+"="+dir, built+"="+binary)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func fillDisk(t *testing.T, dir string) {
	t.Setenv("MILLRACE_ACCESS_KEY", "key-of-a-test-on-one-machine") // a role behind a proxy finds none by the planner's address
	log := filepath.Join(dir, "log")
	if err := os.Mkdir(log, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", log, "tmpfs", 0, "size=5m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	m := &matrix{opts: options{binary: binary, dir: dir, seed: 1, limit: time.Minute, parallel: 1}, table: newTable(nil)}
	if err := m.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	var full time.Time
	err := rig.Run(t.Context(), rig.Options{
		Binary: binary, Dir: run, Answer: m.answers[0], LogDir: log, Delay: time.Minute, Cuttable: []string{"loader-0"},
	}, func(ctx context.Context, r *rig.Rig) error {
		// Pebble sets room aside when it opens a log, which is when the loader has indexed the
		// sources: there must not be much by then, and not too little when the planner starts.
		r.Break("loader-0", faultproxy.Stall)
		for ctx.Err() == nil {
			if _, err := r.Status(ctx); err == nil {
				break
			}
		}
		fill(t, filepath.Join(log, "filler"), 200<<10)
		r.Break("loader-0", faultproxy.Carry)
		_, err := rig.Train(ctx, rig.Training{
			Address: r.Address(), Answer: m.answers[0], Prefetch: 2, Deadline: time.Minute,
			OnStep: func(step int64) {
				if step == 15 {
					fill(t, filepath.Join(log, "rest"), 0)
					full = time.Now()
				}
			},
		})
		return err
	})
	if err == nil || fault.ClassOf(err) == fault.Bug || !strings.Contains(err.Error(), "the log in "+log+" has stopped") {
		t.Errorf("the ranks got %v, want an error that names the log", err)
	}
	if took := time.Since(full); took > 40*time.Second {
		t.Errorf("they got it after %v", took)
	}
	for _, name := range []string{"filler", "rest"} {
		if err := os.Remove(filepath.Join(log, name)); err != nil {
			t.Fatal(err)
		}
	}
	if v := m.verify(t.Context(), m.answers[0], log); v.count == "" {
		t.Errorf("the log is not whole: %v", v.err)
	}
}

// fill writes a file until its disk has this much room left.
func fill(t *testing.T, path string, leave int64) {
	f, err := os.Create(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	var disk syscall.Statfs_t
	for chunk := make([]byte, 4<<10); ; {
		if err := syscall.Statfs(filepath.Dir(path), &disk); err != nil {
			t.Error(err)
			return
		}
		if int64(disk.Bfree)*disk.Bsize <= leave {
			return
		}
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Error(err)
			return
		}
	}
}
