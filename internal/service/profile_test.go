package service_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/profile"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/trainer"
)

// TestCostsAreLearned: a service keeps beside its log what its sources cost, goes on from that at the next
// start, and from nothing if the file is damaged; the digest is the reference's each time.
func TestCostsAreLearned(t *testing.T) {
	t.Parallel()
	dir, r := writeSources(t), recipes[0]
	want := solve(t, dir, r)
	logs := t.TempDir()
	var log bytes.Buffer
	learn := func() *profile.Profile {
		t.Helper()
		job := parse(t, dir, r.text(resources{}))
		opts := service.Options{Job: job, Loaders: 2, Registry: names, Functions: open, LogDir: logs, Log: slog.New(slog.NewTextHandler(&log, nil))}
		err := service.Run(t.Context(), opts, func(ctx context.Context, address string) error {
			res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: r.steps, OnStep: func(s trainer.Step) {
				if s.Digest != want.digests[s.Step+1] {
					t.Errorf("digest step=%d %x, want %x", s.Step+1, s.Digest, want.digests[s.Step+1])
				}
			}})
			if err != nil {
				return err
			}
			if res.Next != want.steps() {
				t.Errorf("%d steps, want %d", res.Next, want.steps())
			}
			for { // loaders report every second
				s, err := statusOf(ctx, address)
				if err != nil || len(s.Loaders) == 2 && s.Loaders[0].BlocksRead > 0 && s.Loaders[1].BlocksRead > 0 {
					return err
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		p, err := profile.Read(logs)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Covers(job.Sources) {
			t.Fatalf("not all sources are known:\n%v", p)
		}
		return p
	}
	first := learn()
	for _, s := range first.Sources {
		if s.Seconds <= 0 || s.Records <= 0 || s.Bytes <= 0 || s.BlockBytes <= 0 || len(s.Stages) < 2 {
			t.Errorf("of source %s was learned %+v", s.Name, s)
		}
	}
	path := filepath.Join(logs, profile.FileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	emptyLog(t, logs, path, whole)
	second := learn()
	if second.Sources[0].Records <= first.Sources[0].Records {
		t.Errorf("the second life knows %d records of %s, the first knew %d", second.Sources[0].Records, first.Sources[0].Name, first.Sources[0].Records)
	}
	if log.Len() > 0 && strings.Contains(log.String(), "costs is not") {
		t.Errorf("the log says:\n%s", log.String())
	}
	emptyLog(t, logs, path, append(whole[:len(whole)/2], "damage"...))
	if third := learn(); third.Sources[0].Records >= second.Sources[0].Records { // how far a life reads ahead varies
		t.Errorf("after damage %d records of %s are known, with the file %d", third.Sources[0].Records, first.Sources[0].Name, second.Sources[0].Records)
	}
	if n := strings.Count(log.String(), "is not used"); n != 1 {
		t.Errorf("the log says %d times that the profile is not used:\n%s", n, log.String())
	}
}

// emptyLog has the job begin again, with a profile.
func emptyLog(t *testing.T, dir, path string, kept []byte) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	write(t, path, string(kept))
}
