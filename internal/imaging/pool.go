package imaging

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/fault"
)

// Picture is an image to decode.
type Picture struct {
	Data   []byte   // encoded
	SHA    [32]byte // SHA-256 of Data
	Grid   Grid     // that was planned
	Origin string   // source, file and record, for errors
	// Patches receives the pixels: empty, with capacity for those of Grid.
	Patches []byte
}

// Pool is a fixed number of decoders. A Pool is safe for concurrent use: a call that finds
// no free decoder waits.
type Pool struct{ free chan *Decoder }

// NewPool returns a pool of n decoders, at least one, that take their memory from a room. With a nil room there
// is no limit.
func NewPool(decoders int, room Room) *Pool {
	p := &Pool{free: make(chan *Decoder, max(decoders, 1))}
	for range cap(p.free) {
		p.free <- &Decoder{Room: room}
	}
	return p
}

// Decode fills the patches of pictures. A picture whose bytes or grid differ from the
// plan is an error of class fault.Bug; damaged pixels are of class
// fault.User, and the error names the picture's origin and what to do.
func (p *Pool) Decode(ctx context.Context, pictures []Picture, g Geometry) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(cap(p.free))
	for i := range pictures {
		var d *Decoder
		select {
		case d = <-p.free:
		case <-ctx.Done():
			return cmp.Or(work.Wait(), ctx.Err())
		}
		work.Go(func() error {
			defer func() { p.free <- d }()
			return pictures[i].decode(d, g)
		})
	}
	return work.Wait()
}

func (p *Picture) decode(d *Decoder, g Geometry) error {
	if sha256.Sum256(p.Data) != p.SHA {
		return fmt.Errorf("%s: the image is not the one that was planned", p.Origin)
	}
	size := p.Grid.Patches() * g.PatchBytes()
	if len(p.Patches) != 0 || cap(p.Patches) < size {
		return fmt.Errorf("%s: room for %d bytes of %d", p.Origin, cap(p.Patches), size)
	}
	patches, grid, err := d.AppendPatches(p.Patches, p.Data, g)
	if err != nil {
		return fault.As(fault.ClassOf(err), fmt.Errorf("%s: %w. It was planned by its header: ban the record from this step on, "+
			"with `millrace ban` or in a file for --changes, and resume from the last token; or restart the job from the first step "+
			"with `verify: true` in the image step, so that bad_records applies to such images", p.Origin, err))
	}
	if grid != p.Grid {
		return fmt.Errorf("%s: its grid is %v, planned was %v", p.Origin, grid, p.Grid)
	}
	p.Patches = patches
	return nil
}
