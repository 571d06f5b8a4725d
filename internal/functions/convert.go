package functions

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/media/ffmpeg"
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
}

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
	return &transform.Function{
		Name: spec.Column, Kind: transform.MapFunction, In: []transform.Column{in}, Out: []transform.Column{out}, Digest: tool.Digest, Runtime: tool.Version,
		Pool: transform.Pool{Name: "ffmpeg", Slots: cap(s.slots)},
		Caller: &converter{tool: tool, spec: spec, slots: s.slots, limits: ffmpeg.Limits{
			Output: spec.MaxBytes, Pixels: spec.MaxDecodedPixels, Memory: spec.Memory, Time: time.Duration(spec.Timeout) * time.Second,
		}},
	}, nil
}

// Call implements transform.Caller.
func (c *converter) Call(ctx context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	made := make([]format.Record, in.Len())
	work, within := errgroup.WithContext(ctx)
	work.SetLimit(cap(c.slots))
	for i := range made {
		var rec format.Record
		in.Record(i, &rec)
		row, part := in.Key(i)
		made[i] = format.Record{Row: row, Part: part}
		work.Go(func() error {
			select {
			case c.slots <- struct{}{}:
				defer func() { <-c.slots }()
			case <-within.Done():
				return context.Cause(within)
			}
			v, err := c.convert(within, &rec.Values[0])
			if err != nil && fault.ClassOf(err) != fault.User {
				return fmt.Errorf("row %d: %w", row, err)
			}
			made[i].Err = err
			if err == nil {
				made[i].Values = []format.Value{v}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, nil, err
	}
	out := &format.Batch{}
	for i := range made {
		out.Add(&made[i])
	}
	return out, format.Ordinals(len(made)), nil
}

// convert is what FFmpeg makes of a value.
func (c *converter) convert(ctx context.Context, v *format.Value) (format.Value, error) {
	switch {
	case v.Kind == format.Null:
		return *v, nil
	case v.Kind != format.Bytes:
		return format.Value{}, fault.Userf("column %q holds no bytes, but FFmpeg takes a file", c.spec.Column)
	}
	if c.spec.To == "wav" {
		wav, err := c.tool.Sound(ctx, v.Bytes, c.spec.MaxSeconds+1, c.limits)
		return format.Value{Kind: format.Bytes, Bytes: wav}, err
	}
	frames, err := c.tool.Frames(ctx, v.Bytes, c.spec.Every, c.spec.MaxFrames, c.limits)
	list := format.Value{Kind: format.List}
	for _, f := range frames {
		list.List = append(list.List, format.Value{Kind: format.Bytes, Bytes: f})
	}
	return list, err
}
