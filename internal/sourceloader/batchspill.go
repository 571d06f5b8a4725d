package sourceloader

import (
	"errors"
	"iter"

	"github.com/millrace-data/millrace/internal/engine"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
)

// batchSpill keeps batches between stages on the local disk, as the engine's last resort. It implements engine.Spill.
type batchSpill struct{ disk *spill.Disk }

// batchSpillUse says in messages what is kept there.
var batchSpillUse = spill.Use{What: "batches between stages", Setting: "resources.spill", Instead: "made again"}

// batchSpillOverhead is what a batch takes on the disk beside its own bytes: lengths of its arrays and of its pages.
const batchSpillOverhead = 4 << 10

func (s batchSpill) reservation(p engine.Partition) int64 { return p.Bytes() + batchSpillOverhead }

// Reserve implements engine.Spill.
func (s batchSpill) Reserve(p engine.Partition) bool { return s.disk.Reserve(s.reservation(p)) == nil }

// Write implements engine.Spill.
func (s batchSpill) Write(p engine.Partition) (engine.Spilled, error) {
	in := p.(*rows)
	out := &spilledRows{rows: *in, outline: in.Outline()}
	out.Batch = nil
	var err error
	out.file, err = s.disk.Write(s.reservation(p), func(yield func([]byte) bool) {
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

// spilledRows are rows whose batch is on the local disk. It implements engine.Spilled.
type spilledRows struct {
	rows
	outline *format.Outline
	file    *spill.File
	pages   []uint32 // their numbers in the file
}

// Bytes implements engine.Spilled.
func (p *spilledRows) Bytes() int64 {
	return rowsBytes + lackingBytes*int64(len(p.lacks)+len(p.absent)) + p.outline.Bytes() + p.file.Bytes() + 4*int64(len(p.pages))
}

// errEnoughPages ends a reading of which nobody wants more.
var errEnoughPages = errors.New("the batch is whole")

// Read implements engine.Spilled.
func (p *spilledRows) Read() (engine.Partition, error) {
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
func (p *spilledRows) Close() { p.file.Close() }
