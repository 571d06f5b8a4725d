package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/media/ffmpeg"
	"github.com/millrace-data/millrace/internal/memory"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// program is a function that makes columns of a file in a column by a child process for each
// record, as many at a time as there are workers.
type program struct {
	column string
	out    int // columns
	limits ffmpeg.Limits
	slots  chan struct{}
	need   atomic.Int64 // memory of a child with its input and output, by those before
	run    runner
}

// runner makes columns of a file.
type runner func(ctx context.Context, data []byte, l ffmpeg.Limits) ([]format.Value, error)

// firstNeed is what the first child is expected to take: one that decodes a sound takes 20 to 30 MiB, a video more.
const firstNeed = 32 << 20

// program returns the function that runs a tool.
func (s *Set) program(tool *ffmpeg.Tool, in transform.Column, out []transform.Column, digest [32]byte, l ffmpeg.Limits, run runner) *transform.Function {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots == nil {
		s.slots = make(chan struct{}, cmp.Or(s.Workers, s.fallback, runtime.GOMAXPROCS(0)))
	}
	p := &program{column: in.Name, out: len(out), limits: l, slots: s.slots, run: run}
	p.need.Store(firstNeed)
	return &transform.Function{
		Name: in.Name, Kind: transform.MapFunction, In: []transform.Column{in}, Out: out, Digest: digest, Runtime: tool.Version,
		Pool: transform.Pool{Name: "ffmpeg", Slots: cap(s.slots)}, Caller: p,
	}
}

// limitsOf are the limits of a step's child processes.
func limitsOf(output int64, pixels int, memory int64, seconds int) ffmpeg.Limits {
	return ffmpeg.Limits{Output: output, Pixels: pixels, Memory: memory, Time: time.Duration(seconds) * time.Second}
}

func (s *Set) converter(spec *jobspec.Convert) (*transform.Function, error) {
	tool, err := ffmpeg.Find(context.Background())
	if err != nil {
		return nil, err
	}
	in := transform.Column{Name: spec.Column, Kind: format.Bytes, Null: true}
	out := in
	if spec.To == "frames" {
		out.Kind, out.Element = format.List, format.Bytes
	}
	limits := limitsOf(spec.MaxBytes, spec.MaxDecodedPixels, spec.Memory, spec.Timeout)
	return s.program(tool, in, []transform.Column{out}, tool.Digest, limits, func(ctx context.Context, data []byte, l ffmpeg.Limits) ([]format.Value, error) {
		if spec.To == "wav" {
			wav, err := tool.Sound(ctx, data, spec.MaxSeconds+1, l)
			return []format.Value{{Kind: format.Bytes, Bytes: wav}}, err
		}
		frames, err := tool.Frames(ctx, data, spec.Every, spec.MaxFrames, l)
		list := format.Value{Kind: format.List}
		for _, f := range frames {
			list.List = append(list.List, format.Value{Kind: format.Bytes, Bytes: f})
		}
		return []format.Value{list}, err
	}), nil
}

// Call implements transform.Caller.
func (p *program) Call(ctx context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	out, from, _, err := p.CallSome(ctx, in, 0, 0)
	return out, from, err
}

// CallSome implements transform.Ending: no child is started for a record when those before it gave most bytes.
func (p *program) CallSome(ctx context.Context, in *format.Batch, first int, most int64) (*format.Batch, []int32, int, error) {
	made := make([]conversion, in.Len())
	defer func() {
		for i := range made {
			made[i].lease.Free()
		}
	}()
	var given atomic.Int64
	work, within := errgroup.WithContext(ctx)
	busy := make(chan struct{}, cap(p.slots))
	end := first
	for ; end < in.Len(); end++ {
		if busy <- struct{}{}; end > first && most > 0 && given.Load() >= most {
			break
		}
		m := &made[end]
		in.Record(end, &m.in)
		work.Go(func() error {
			defer func() { <-busy }()
			err := p.convert(within, m)
			given.Add(m.bytes)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, nil, 0, err
	}
	out, from := &format.Batch{}, make([]int32, 0, end-first)
	for i := first; i < end; i++ {
		out.Add(&made[i].out)
		from = append(from, int32(i))
	}
	return out, from, end, nil
}

// conversion is a record on its way through a child.
type conversion struct {
	in, out format.Record
	bytes   int64         // of out
	lease   *memory.Lease // for them
}

// convert has a child make a record, when there is a slot and memory for it. One that does not get as much as it
// takes is ended, and tried again when there is more; its output is the same.
func (p *program) convert(ctx context.Context, m *conversion) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m.out = format.Record{Row: m.in.Row, Part: m.in.Part}
	need := p.need.Load()
	for {
		var err error
		if m.lease, err = memory.Of(ctx).Lease(ctx, need); err != nil {
			return err
		}
		limits := p.limits
		limits.Lease = m.lease
		values, err := p.values(ctx, &m.in.Values[0], limits)
		p.need.Store(max(m.lease.Bytes(), p.need.Load()*9/10)) // of large ones a tenth fades with each that takes less
		if errors.Is(err, ffmpeg.ErrNoRoom) {
			need = 2 * m.lease.Bytes()
			m.lease.Free()
			continue
		}
		if err != nil && fault.ClassOf(err) != fault.User {
			return fmt.Errorf("row %d: %w", m.in.Row, err)
		}
		if m.out.Err = err; err == nil {
			m.out.Values, m.bytes = values, sizeOf(values)
		}
		m.lease.Keep(m.bytes)
		return nil
	}
}

// sizeOf is the bytes of what a child made.
func sizeOf(values []format.Value) (n int64) {
	for i := range values {
		n += int64(len(values[i].Bytes)) + sizeOf(values[i].List)
	}
	return n
}

// values are what the program makes of a value.
func (p *program) values(ctx context.Context, v *format.Value, limits ffmpeg.Limits) ([]format.Value, error) {
	switch {
	case v.Kind == format.Null:
		values := make([]format.Value, p.out)
		for i := range values {
			values[i].Absent = v.Absent
		}
		return values, nil
	case v.Kind != format.Bytes:
		return nil, fault.Userf("column %q holds no bytes, but FFmpeg takes a file", p.column)
	}
	return p.run(ctx, v.Bytes, limits)
}
