package formattest

import (
	"context"
	"errors"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Poison returns f with records that are overwritten as soon as the next one is asked
// for: a caller who keeps borrowed values reads 0xAA and wrong tokens.
func Poison(f format.Format) format.Format { return poisoned{f} }

type poisoned struct{ format.Format }

func (p poisoned) Open(ctx context.Context, st store.Store, obj store.Object, chunk int, from format.Position, opt format.Options) (format.Reader, error) {
	r, err := p.Format.Open(ctx, st, obj, chunk, from, opt)
	if err != nil {
		return nil, err
	}
	return &poisonedReader{Reader: r}, nil
}

type poisonedReader struct {
	format.Reader
	loan format.Record
}

// Next implements format.Reader.
func (p *poisonedReader) Next() (*format.Record, error) {
	p.spoil()
	rec, err := p.Reader.Next()
	if err != nil {
		return nil, err
	}
	p.loan = Clone(rec)
	p.loan.Lacks = rec.Lacks
	return &p.loan, nil
}

// Close implements format.Reader.
func (p *poisonedReader) Close() error {
	p.spoil()
	return p.Reader.Close()
}

func (p *poisonedReader) spoil() {
	spoil(p.loan.Values)
	p.loan.Row, p.loan.Err = -1, errors.New("this record was kept after the next one was asked for")
}

func spoil(values []format.Value) {
	for i := range values {
		for j := range values[i].Bytes {
			values[i].Bytes[j] = 0xAA
		}
		for j := range values[i].Tokens {
			values[i].Tokens[j] = -0x55555556
		}
		spoil(values[i].List)
		values[i].Kind, values[i].Int, values[i].Float = format.Bytes, -1, -1
	}
}
