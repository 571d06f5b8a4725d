package sourceloader

import (
	"errors"
	"iter"

	"github.com/millrace-data/millrace/internal/engine"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
)

// aside keeps batches between stages on a local disk, as the engine's last resort. It implements engine.Spill.
type aside struct{ disk *spill.Disk }

// asideUse says in messages what is kept there.
var asideUse = spill.Use{What: "batches between stages", Setting: "resources.spill", Instead: "made again"}

// asideBytes is what a batch takes on the disk beside its own bytes: lengths of its arrays and of its pages.
const asideBytes = 4 << 10

func (a aside) reservation(p engine.Partition) int64 { return p.Bytes() + asideBytes }

// Reserve implements engine.Spill.
func (a aside) Reserve(p engine.Partition) bool { return a.disk.Reserve(a.reservation(p)) == nil }

// Write implements engine.Spill.
func (a aside) Write(p engine.Partition) (engine.Spilled, error) {
	in := p.(*rows)
	out := &rowsAside{rows: *in, outline: in.Outline()}
	out.Batch = nil
	var err error
	out.file, err = a.disk.Write(a.reservation(p), func(yield func([]byte) bool) {
		for page := range in.Pages() {
			if out.pages = append(out.pages, uint32(len(out.pages))); !yield(page) {
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// rowsAside are rows whose batch is on the disk.
type rowsAside struct {
	rows
	outline *format.Outline
	file    *spill.File
	pages   []uint32 // their numbers in the file
}

// Bytes implements engine.Spilled.
func (p *rowsAside) Bytes() int64 {
	return rowsBytes + lackingBytes*int64(len(p.lacks)+len(p.absent)) + p.outline.Bytes() + p.file.Bytes() + 4*int64(len(p.pages))
}

// errEnoughPages ends a reading of which nobody wants more.
var errEnoughPages = errors.New("the batch is whole")

// Read implements engine.Spilled.
func (p *rowsAside) Read() (engine.Partition, error) {
	var failed error
	batch, err := p.outline.Fill(iter.Seq[[]byte](func(yield func([]byte) bool) {
		failed = p.file.Read(p.pages, func(_ int, page []byte) error {
			if !yield(page) {
				return errEnoughPages
			}
			return nil
		})
	}))
	if failed != nil && !errors.Is(failed, errEnoughPages) {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	out := p.rows
	out.Batch = batch
	return &out, nil
}

// Close implements engine.Spilled.
func (p *rowsAside) Close() { p.file.Close() }
