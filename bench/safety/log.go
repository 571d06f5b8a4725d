package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// sources is the number that the goal of the log's size is for.
const sources = 306

// everyFrame is the number of steps from one key frame to the next, where replaying takes no time.
const everyFrame = 512

// measureLog commits steps one by one, as a planner does that is ahead by little.
func measureLog(ctx context.Context, o options, r *report) error {
	for _, mirrored := range []bool{false, true} {
		what, dir := "local", filepath.Join(o.dir, fmt.Sprintf("log-%v", mirrored))
		opts := checkpoint.Options{Identity: [32]byte{1}}
		var log checkpoint.Log
		var err error
		if mirrored {
			what = "local, then a mirror in a folder"
			var store object.Store
			if store, err = object.Open("file://" + dir + "-mirror"); err != nil {
				return err
			}
			log, err = mirror.Open(ctx, mirror.Options{Dir: dir, Log: opts, Store: store})
		} else {
			log, err = checkpoint.Open(dir, opts)
		}
		if err != nil {
			return err
		}
		bytes, took, err := commit(log, o.commits)
		if err == nil {
			err = log.Close()
		}
		if err != nil {
			return err
		}
		slices.Sort(took)
		at := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() * 1e3 }
		if !mirrored {
			disk, err := size(dir)
			if err != nil {
				return err
			}
			r.add(fmt.Sprintf("log, %d sources: records, key frames and digests a step", sources), fmt.Sprintf("%.2f KB", float64(bytes)/float64(o.commits)/1e3), "at most 2")
			r.add("the same on the disk, after it was closed", fmt.Sprintf("%.2f KB", float64(disk)/float64(o.commits)/1e3), "")
		}
		r.add("commit of a step, "+what+": p50, p99", fmt.Sprintf("%.1f, %.1f ms", at(0.5), at(0.99)), "")
	}
	return nil
}

// commit writes steps of a job that draws from all sources, and returns the bytes that they have and
// how long each took.
func commit(log checkpoint.Log, steps int) (bytes int, took []time.Duration, err error) {
	cfg := plan.Config{SequenceLength: 4096, Rows: 64, Packing: true, Ahead: 4, Window: 256}
	job, weights := token.Job{}, make([]float64, sources)
	for i := range weights {
		weights[i] = float64(1 + i%7)
		name := fmt.Sprintf("source-%d", i)
		cfg.Sources = append(cfg.Sources, plan.Source{Name: name, Blocks: 1000})
		job.Sources = append(job.Sources, token.Source{Name: name})
	}
	cfg.Schedule = mix.NewSchedule([]mix.Stage{{Weights: weights}})
	lengths := make([]int32, 64)
	for i := range lengths {
		lengths[i] = int32(200 + i*37%900)
	}
	p := planOf(cfg, lengths)
	for step := range steps {
		s, before := p.next()
		op := checkpoint.Append{Step: s.Step, Record: record(s, before)}
		if step%everyFrame == 0 {
			op.Frame = token.EncodeFrame(job, before, [32]byte{})
		}
		ops := []checkpoint.Op{op}
		if step > 0 {
			ops = append(ops, checkpoint.SetDigest{Step: s.Step - 1, Digest: [32]byte(op.Record)})
		}
		bytes += len(op.Record) + len(op.Frame) + 32
		begin := time.Now()
		if err := log.Write(ops...); err != nil {
			return 0, nil, err
		}
		took = append(took, time.Since(begin))
	}
	return bytes, took, nil
}

// size is what the files of a folder have.
func size(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
