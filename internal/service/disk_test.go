package service_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/trainer"
)

// TestDisk: loaders without memory read no block twice if they have a disk, and go on
// without one that is turned off, too small, or not to be had; the status says which.
func TestDisk(t *testing.T) {
	dir, r := writeSources(t), recipes[0]
	for _, c := range []struct {
		disk           int
		keeps, rereads bool
		problem        bool
		processes      bool
	}{
		{disk: 0, keeps: true},
		{disk: 40e3, keeps: true, rereads: true},
		{disk: noDisk, rereads: true},
		{disk: brokenDisk, rereads: true, problem: true},
		{disk: brokenDisk, rereads: true, problem: true, processes: true}, // as one that is started again when its folder is gone
	} {
		s := setting{loaders: 2, processes: c.processes, resources: resources{loaderBuffer: 1, loaderDisk: c.disk}}
		t.Run(fmt.Sprint("disk=", c.disk, " processes=", c.processes), func(t *testing.T) {
			scratch := t.TempDir()
			opts := s.options(t, dir, r)
			if opts.Scratch == "" {
				opts.Scratch = scratch
			}
			if c.processes {
				opts.AllowRoots = []string{opts.Scratch} // of which the planner takes it as well that it is gone
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := service.Run(ctx, opts, func(ctx context.Context, address string) error {
				// Not to the end of the job: blocks are in use.
				if _, err := trainer.Run(ctx, trainer.Options{Address: address, Job: opts.Job, Steps: 10}); err != nil {
					return err
				}
				var page status.Service
				seen := func() bool {
					keeps, rereads, problem := false, false, false
					for _, l := range page.Loaders {
						keeps, rereads, problem = keeps || l.DiskBytes > 0, rereads || l.Rereads > 0, problem || l.DiskProblem != ""
						if limit := opts.Job.Resources.LoaderDisk; l.DiskBytes > uint64(limit) || l.DiskBudget > uint64(limit) {
							t.Fatalf("%d bytes of %d are on a disk of %d", l.DiskBytes, l.DiskBudget, limit)
						}
					}
					return keeps == c.keeps && rereads == c.rereads && problem == c.problem
				}
				for begun := time.Now(); !seen(); time.Sleep(100 * time.Millisecond) { // loaders report now and then
					var err error
					if page, err = statusOf(ctx, address); err != nil {
						return err
					}
					if time.Since(begun) > patience/2 {
						return fmt.Errorf("the status is\n%v", page)
					}
				}
				if said := strings.Contains(page.String(), "on its local disk: "); said != c.problem {
					t.Errorf("the status page says that the disk has a problem: %v\n%v", said, page)
				}
				if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
					t.Errorf("files have names: %v, %v", left, err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if open := filesIn(t, scratch); len(open) > 0 {
				t.Errorf("after the service ended these are open: %v", open)
			}
		})
	}
}

// filesIn are the files of a folder that this process has open, with a name or
// without, where the system tells.
func filesIn(t *testing.T, dir string) (open []string) {
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range descriptors {
		if path, err := os.Readlink(d); err == nil && filepath.Dir(path) == dir {
			open = append(open, path)
		}
	}
	return open
}
