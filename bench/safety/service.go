package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/planner/status"
)

// service is a planner, loaders and a constructor as processes.
type service struct {
	binary, dir, address string
	roles                map[string]*exec.Cmd
}

// startService starts the roles of a job. The files of the run are in dir.
func startService(binary, job, dir string, loaders int, planner ...string) (*service, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{binary: binary, dir: dir, address: l.Addr().String(), roles: map[string]*exec.Cmd{}}
	if err := l.Close(); err != nil {
		return nil, err
	}
	err = s.start("planner", append([]string{"planner", job, "--listen", s.address}, planner...)...)
	for i := range loaders {
		id := fmt.Sprintf("loader-%d", i)
		if err == nil {
			err = s.start(id, "loader", "--id", id, "--planner", s.address, "--listen", "unix:"+filepath.Join(dir, id), "--scratch-dir", dir)
		}
	}
	if err == nil {
		err = s.start("constructor", "constructor", "--id", "constructor", "--planner", s.address, "--listen", "unix:"+filepath.Join(dir, "c"))
	}
	if err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

func (s *service) start(id string, args ...string) error {
	cmd := exec.Command(s.binary, args...)
	log, err := os.OpenFile(filepath.Join(s.dir, id+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	cmd.Stderr, cmd.Stdout = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.roles[id] = cmd
	return nil
}

// end kills a role.
func (s *service) end(id string) {
	_ = s.roles[id].Process.Kill() // it may have ended
	_ = s.roles[id].Wait()
}

// kill kills all roles at once.
func (s *service) kill() {
	for _, cmd := range s.roles {
		_ = cmd.Process.Signal(syscall.SIGKILL)
	}
	for _, cmd := range s.roles {
		_ = cmd.Wait()
	}
}

func (s *service) status(ctx context.Context) (all status.Service, err error) {
	out, err := exec.CommandContext(ctx, s.binary, "status", s.address, "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	return all, err
}

// pull takes steps for a time, after some, and returns the tokens and the steps.
func pull(ctx context.Context, c *client.Client, warm int, within time.Duration) (tokens, steps int, took time.Duration, err error) {
	begin := time.Now()
	for n := 0; ; n++ {
		if n == warm {
			begin, tokens, steps = time.Now(), 0, 0
		}
		b, err := c.Next(ctx)
		if err != nil {
			return 0, 0, 0, err
		}
		tokens += b.Rows * b.SequenceLength
		steps++
		b.Release()
		if took = time.Since(begin); n > warm && took > within {
			return tokens, steps, took, nil
		}
	}
}

// writeJob writes files of equal documents, and the spec of a job that reads them without end.
func writeJob(dir string, files, bytes int, batch string) (string, error) {
	if err := os.MkdirAll(filepath.Join(dir, "text"), 0o755); err != nil {
		return "", err
	}
	words := strings.Repeat("millrace keeps trainers fed ", bytes/28+1)
	for i := range files {
		text := fmt.Sprintf("%06d ", i) + words
		if err := os.WriteFile(filepath.Join(dir, "text", fmt.Sprintf("%04d.txt", i)), []byte(text[:bytes]), 0o644); err != nil {
			return "", err
		}
	}
	spec := "name: safety\nseed: 42\nsources:\n  - {name: text, files: text/*.txt, long: split, transforms: [{tokenize: bytes}], shuffle: {block: 4}}\n" + batch
	path := filepath.Join(dir, "job.yaml")
	return path, os.WriteFile(path, []byte(spec), 0o644)
}
