package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/planner/status"
)

// batches by the Mi tokens of a step. Bytes are the cheapest tokens: a step of one takes some 12 ms on
// two cores, so that what safety costs a step shows as nowhere else; of four, which is a step of a
// large model, some 50 ms.
var batches = map[int]string{
	1: "batch: {sequence_length: 4096, sequences: 256, microbatch_size: 32}\nresources: {prefetch: 4}\n",
	4: "batch: {sequence_length: 4096, sequences: 1024, microbatch_size: 32}\nresources: {prefetch: 4}\n",
}

// measureThroughput compares runs with a log, a mirror and a shadow with runs that have none.
func measureThroughput(ctx context.Context, o options, r *report) error {
	for _, mi := range []int{1, 4} {
		if err := throughput(ctx, o, r, mi); err != nil {
			return err
		}
	}
	return nil
}

func throughput(ctx context.Context, o options, r *report, mi int) error {
	job, err := writeJob(filepath.Join(o.dir, "job"), 400, 60_000, batches[mi])
	if err != nil {
		return err
	}
	rates, used := map[bool][]float64{}, map[bool][]float64{}
	for n := range 2 * o.rounds {
		safe := (n+n/2)%2 == 0 // which comes first changes
		dir := filepath.Join(o.dir, "t"+strconv.Itoa(n))
		var args []string
		loaders := 1
		if safe {
			loaders, args = 2, []string{"--shadows", "1", "--log-dir", filepath.Join(dir, "log"), "--log-mirror", "file://" + filepath.Join(dir, "mirror")}
		}
		s, err := startService(o.binary, job, dir, loaders, args...)
		if err != nil {
			return err
		}
		rate, cpu, err := s.rate(ctx, o.within)
		s.kill()
		if err != nil {
			return err
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		rates[safe], used[safe] = append(rates[safe], rate), append(used[safe], cpu)
	}
	with, without := median(rates[true]), median(rates[false])
	r.add(fmt.Sprintf("tokens/s of one rank, steps of %d Mi tokens, median of %d: with log, mirror and warm shadow; without", mi, o.rounds), fmt.Sprintf("%.2f, %.2f M", with/1e6, without/1e6), "")
	r.add("the same, difference", fmt.Sprintf("%+.1f %% (single runs: with %.0f %%, without %.0f %% apart)", 100*(with/without-1), spread(rates[true]), spread(rates[false])), "within 3 %")
	r.add("the same, CPU a step, of service and rank", fmt.Sprintf("%.1f, %.1f ms", median(used[true]), median(used[false])), "")
	return nil
}

// rate is the tokens a second that a rank gets, and the CPU, in ms, that a step takes of all processes.
func (s *service) rate(ctx context.Context, within time.Duration) (rate, cpu float64, err error) {
	c, err := client.Open(ctx, s.address, client.Options{Deadline: time.Minute})
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	if _, _, _, err := pull(ctx, c, 10, 0); err != nil {
		return 0, 0, err
	}
	before := s.cpu()
	tokens, steps, took, err := pull(ctx, c, 0, within)
	return float64(tokens) / took.Seconds(), float64((s.cpu() - before).Milliseconds()) / float64(max(steps, 1)), err
}

// cpu is that of all processes so far, with this one, which is the rank.
func (s *service) cpu() time.Duration {
	all := cpuOf(os.Getpid())
	for _, cmd := range s.roles {
		all += cpuOf(cmd.Process.Pid)
	}
	return all
}

func median(all []float64) float64 {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// spread is how far the highest is above the lowest, in hundredths of that.
func spread(all []float64) float64 { return 100 * (slices.Max(all)/slices.Min(all) - 1) }

// measureShadows looks at a shadow beside its loader, and at what is read again when that dies.
func measureShadows(ctx context.Context, o options, r *report) error {
	job, err := writeJob(filepath.Join(o.dir, "job"), 400, 60_000, batches[1])
	if err != nil {
		return err
	}
	for _, mode := range []string{"warm", "hot"} {
		dir := filepath.Join(o.dir, mode)
		s, err := startService(o.binary, job, dir, 2, "--shadows", "1", "--shadow-mode", mode, "--log-dir", filepath.Join(dir, "log"))
		if err != nil {
			return err
		}
		err = s.shadows(ctx, o, mode, r)
		s.kill()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *service) shadows(ctx context.Context, o options, mode string, r *report) error {
	c, err := client.Open(ctx, s.address, client.Options{Deadline: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, _, _, err := pull(ctx, c, 0, o.within/2); err != nil {
		return err
	}
	used := map[string]time.Duration{}
	for _, id := range []string{"loader-0", "loader-1"} {
		used[id] = cpuOf(s.roles[id].Process.Pid)
	}
	_, _, took, err := pull(ctx, c, 0, o.within)
	if err != nil {
		return err
	}
	before, err := s.status(ctx)
	if err != nil {
		return err
	}
	var primary string
	for _, l := range before.Loaders {
		role := "the loader beside it"
		if l.Place < 0 {
			role = mode + " shadow"
		} else {
			primary = l.ID
		}
		pid := s.roles[l.ID].Process.Pid
		share := (cpuOf(pid) - used[l.ID]).Seconds() / took.Seconds()
		r.add(fmt.Sprintf("%s (%s): memory, of it blocks; CPU", role, mode), fmt.Sprintf("%d MB, %.1f MB; %.0f %% of a core", rssOf(pid)>>20, float64(l.HeldBytes)/(1<<20), 100*share), "")
	}
	if primary == "" {
		return fmt.Errorf("no loader has a place: %+v", before.Loaders)
	}
	s.end(primary)
	if _, _, _, err := pull(ctx, c, 0, o.within/2); err != nil {
		return err
	}
	after, err := s.status(ctx)
	if err != nil {
		return err
	}
	again := after.ReadAgain - before.ReadAgain
	r.add("read again when that loader died, "+mode+" shadow", fmt.Sprintf("%d blocks, %.1f MB", again, float64(again)*perBlock(before)/1e6), "what is planned and not delivered")
	return nil
}

// perBlock is how many bytes a block took to read.
func perBlock(s status.Service) float64 {
	bytes, blocks := 0.0, 0.0
	for _, l := range s.Loaders {
		bytes, blocks = bytes+float64(l.ReadBytes), blocks+float64(l.BlocksRead)
	}
	return bytes / max(blocks, 1)
}

// cpuOf is the user and system time of a process so far; USER_HZ is 100 on every Linux.
func cpuOf(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if err != nil || len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// rssOf is the memory of a process now.
func rssOf(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[1])
	return pages * os.Getpagesize()
}
