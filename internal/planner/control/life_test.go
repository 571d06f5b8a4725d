package control

import (
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/memlog"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// disk is the log of a job over the lives of its planners. Digests that were not followed by
// another write are lost with a planner.
type disk struct {
	store memlog.Store
	log   memlog.Log
	late  []SetDigest
	older bool // it is kept as by versions that have no branches
}

// diskFrames is the number of steps from one key frame to the next.
const diskFrames = 4

// reopen opens the log for another life.
func (d *disk) reopen() {
	if d.log != nil {
		_ = d.log.Close()
	}
	d.late = nil
	var err error
	if d.log, err = d.store.Open(checkpoint.Options{}); err != nil {
		panic(err)
	}
}

// write does what a Persist says.
func (d *disk) write(id token.Job, ops []Op) (err error) {
	for _, op := range ops {
		if op, late := op.(SetDigest); late {
			d.late = append(d.late, op)
			continue
		}
		if err := d.writeDigests(); err != nil {
			return err
		}
		switch op := op.(type) {
		case AppendStep:
			var frame []byte
			switch last, some := d.log.Last(); {
			case some && op.Step.Step <= last:
			case checkpoint.Begins(d.log):
				frame = token.EncodeFrame(id, op.Before, op.Digest)
			case op.Step.Step%diskFrames == 0:
				frame = token.EncodeFrame(id, op.Before, [32]byte{})
			}
			record := token.NewRecord(op.Step, op.Before)
			record.Skips = op.Skips
			err = d.log.Append(op.Step.Step, record.Encode(), frame)
		case AddChange:
			err = d.log.AddChange([]byte(op.Change.String()))
		case Truncate:
			if d.older {
				break
			}
			var leave []checkpoint.Op
			if leave, err = checkpoint.GoOn(d.log, op.From, op.Digest); err == nil {
				err = d.log.Write(leave...)
			}
		case Trim:
			err = d.log.Trim(op.Before)
		case BeginGeneration:
			err = d.log.SetGeneration(checkpoint.Generation(op.Generation))
		}
		if err != nil {
			return fault.As(fault.Bug, err)
		}
	}
	return nil
}

// writeDigests writes those that were set since the last write.
func (d *disk) writeDigests() error {
	for _, late := range d.late {
		if err := d.log.SetDigest(late.Step, late.Digest); err != nil {
			return fault.As(fault.Bug, err)
		}
	}
	d.late = nil
	return nil
}

// opened answers OpenLog.
func (d *disk) opened() LogOpened {
	ev := LogOpened{Kept: true, Dir: "/log", Trimmed: d.log.Trimmed()}
	texts, err := d.log.Changes()
	if err == nil {
		ev.Changes, err = change.ParseAll(texts)
	}
	if last, ok := d.log.Last(); ok {
		ev.First, _ = d.log.First()
		ev.Next = last + 1
	}
	generations, _ := d.log.Generations()
	for _, g := range generations {
		ev.Generations = append(ev.Generations, Generation(g))
	}
	ev.Err = err
	return ev
}

// read answers ReadLog.
func (d *disk) read(e ReadLog) LogRead {
	first, _ := d.log.First()
	last, _ := d.log.Last()
	ev := LogRead{Asked: e.Asked, First: first, At: e.At}
	for ; ev.At > 0; ev.At-- {
		if ev.Digest, ev.Digested, _ = d.log.ReadDigest(ev.At - 1); ev.Digested || ev.At == first {
			break
		}
	}
	ev.FrameStep, ev.Frame, _, ev.Err = d.log.Frame(ev.At)
	_ = d.log.Records(ev.FrameStep, ev.At, func(_ int64, record []byte) error {
		ev.Records = append(ev.Records, record)
		return nil
	})
	for step := ev.At; e.Asked == 0 && step <= last; step++ {
		digest, ok, _ := d.log.ReadDigest(step)
		if !ok {
			break
		}
		ev.Known = append(ev.Known, digest)
	}
	return ev
}

// lifeEvents are those of commands about the lives of a planner.
func (p *player) lifeEvents(words []string) []Event {
	switch words[0] {
	case "planner":
		p.reopen(words[1:])
		return nil
	case "again":
		return []Event{p.disk.opened()}
	case "trim":
		if err := p.disk.log.Trim(p.int(words, 1, 0)); err != nil {
			p.t.Fatal(err)
		}
	case "readlog":
		at := p.logReads[0]
		p.logReads = p.logReads[1:]
		return []Event{p.disk.read(at)}
	}
	return nil
}

// reopen begins another life of the planner, with the log of the one before.
func (p *player) reopen(words []string) {
	p.disk.reopen()
	p.generation = p.core.job.generation
	p.core = newCore(p.t, append(p.job, words...))
	p.core.cfg.Resumes = true
	p.reads, p.writes, p.logReads = nil, nil, nil
	clear(p.admits)
}

// heldBy reads what a constructor holds: "holds NEXT BUCKET:ACKED...", and of the rank of the bucket before it,
// "entered=JOIN:STEP".
func (p *player) heldBy(words []string) *Held {
	if len(words) == 0 {
		return nil
	}
	h := &Held{Identity: p.core.id.Identity[:], Generation: p.generation, Next: p.int(words, 1, 0), Entered: 7}
	for _, w := range words[2:] {
		if number, ok := strings.CutPrefix(w, "generation="); ok {
			h.Generation, _ = strconv.ParseUint(number, 10, 64)
			continue
		}
		if entry, ok := strings.CutPrefix(w, "entered="); ok {
			r := &h.Ranks[len(h.Ranks)-1]
			join, step, _ := strings.Cut(entry, ":")
			r.Join, r.Step = uint64(p.int([]string{join}, 0, 0)), p.int([]string{step}, 0, 0)
			continue
		}
		if entry, ok := strings.CutPrefix(w, "entered-before="); ok {
			join, step, _ := strings.Cut(entry, ":")
			h.Ranks[len(h.Ranks)-1].Entered = RankEntry{uint64(p.int([]string{join}, 0, 0)), h.Generation, p.int([]string{step}, 0, 0)}
			continue
		}
		bucket, acked, _ := strings.Cut(w, ":")
		dp, step := p.int([]string{bucket}, 0, 0), p.int([]string{acked}, 0, 0)
		rank := Rank{DP: uint32(dp)}
		h.Acked = append(h.Acked, Acked{h.Generation, uint32(dp), step, rank.String(), false, false})
		h.Ranks = append(h.Ranks, HeldRank{Rank: rank, Join: 1, Generation: h.Generation, Asked: true})
	}
	return h
}
