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

// converter is the function of a convert step: a child process for each record, as many at
// a time as there are workers.
type converter struct {
	tool   *ffmpeg.Tool
	spec   *jobspec.Convert
	limits ffmpeg.Limits
	slots  chan struct{}
	need   atomic.Int64 // memory of a child with its input and output, by those before
}

// firstNeed is what the first child is expected to take: one that decodes a sound takes 20 to 30 MiB, a video more.
const firstNeed = 32 << 20

func (s *Set) converter(spec *jobspec.Convert) (*transform.Function, error) {
	tool, err := ffmpeg.Find(context.Background())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots == nil {
		s.slots = make(chan struct{}, cmp.Or(s.Workers, s.fallback, runtime.GOMAXPROCS(0)))
	}
	in := transform.Column{Name: spec.Column, Kind: format.Bytes, Null: true}
	out := in
	if spec.To == "frames" {
		out.Kind, out.Element = format.List, format.Bytes
	}
	c := &converter{tool: tool, spec: spec, slots: s.slots, limits: ffmpeg.Limits{
		Output: spec.MaxBytes, Pixels: spec.MaxDecodedPixels, Memory: spec.Memory, Time: time.Duration(spec.Timeout) * time.Second,
	}}
	c.need.Store(firstNeed)
	return &transform.Function{
		Name: spec.Column, Kind: transform.MapFunction, In: []transform.Column{in}, Out: []transform.Column{out}, Digest: tool.Digest, Runtime: tool.Version,
		Pool: transform.Pool{Name: "ffmpeg", Slots: cap(s.slots)}, Caller: c,
	}, nil
}

// Call implements transform.Caller.
func (c *converter) Call(ctx context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	out, from, _, err := c.CallSome(ctx, in, 0, 0)
	return out, from, err
}

// CallSome implements transform.Ending: no child is started for a record when those before it gave most bytes.
func (c *converter) CallSome(ctx context.Context, in *format.Batch, first int, most int64) (*format.Batch, []int32, int, error) {
	made := make([]conversion, in.Len())
	defer func() {
		for i := range made {
			made[i].lease.Free()
		}
	}()
	var given atomic.Int64
	work, within := errgroup.WithContext(ctx)
	busy := make(chan struct{}, cap(c.slots))
	end := first
	for ; end < in.Len(); end++ {
		if busy <- struct{}{}; end > first && most > 0 && given.Load() >= most {
			break
		}
		m := &made[end]
		in.Record(end, &m.in)
		work.Go(func() error {
			defer func() { <-busy }()
			err := c.convert(within, m)
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
func (c *converter) convert(ctx context.Context, m *conversion) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m.out = format.Record{Row: m.in.Row, Part: m.in.Part}
	need := c.need.Load()
	for {
		var err error
		if m.lease, err = memory.Of(ctx).Lease(ctx, need); err != nil {
			return err
		}
		limits := c.limits
		limits.Lease = m.lease
		v, err := c.value(ctx, &m.in.Values[0], limits)
		c.need.Store(max(m.lease.Bytes(), c.need.Load()*9/10)) // of large ones a tenth fades with each that takes less
		if errors.Is(err, ffmpeg.ErrNoRoom) {
			need = 2 * m.lease.Bytes()
			m.lease.Free()
			continue
		}
		if err != nil && fault.ClassOf(err) != fault.User {
			return fmt.Errorf("row %d: %w", m.in.Row, err)
		}
		if m.out.Err = err; err == nil {
			m.out.Values, m.bytes = []format.Value{v}, sizeOf(&v)
		}
		m.lease.Keep(m.bytes)
		return nil
	}
}

// sizeOf is the bytes of what a child made.
func sizeOf(v *format.Value) int64 {
	n := int64(len(v.Bytes))
	for i := range v.List {
		n += int64(len(v.List[i].Bytes))
	}
	return n
}

// value is what FFmpeg makes of a value.
func (c *converter) value(ctx context.Context, v *format.Value, limits ffmpeg.Limits) (format.Value, error) {
	switch {
	case v.Kind == format.Null:
		return *v, nil
	case v.Kind != format.Bytes:
		return format.Value{}, fault.Userf("column %q holds no bytes, but FFmpeg takes a file", c.spec.Column)
	}
	if c.spec.To == "wav" {
		wav, err := c.tool.Sound(ctx, v.Bytes, c.spec.MaxSeconds+1, limits)
		return format.Value{Kind: format.Bytes, Bytes: wav}, err
	}
	frames, err := c.tool.Frames(ctx, v.Bytes, c.spec.Every, c.spec.MaxFrames, limits)
	list := format.Value{Kind: format.List}
	for _, f := range frames {
		list.List = append(list.List, format.Value{Kind: format.Bytes, Bytes: f})
	}
	return list, err
}
