package preview

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
)

// Document is what a sample holds.
type Document struct {
	Sample
	IDs       []int32  `json:"ids"`
	Text      *string  `json:"text"`           // that the ids stand for; nil if the source has no tokenizer
	LossTexts []string `json:"loss,omitempty"` // the parts of it that carry loss, if not all of it does
}

// Preview is the content of a step, or of a part of it: what the ranks get.
type Preview struct {
	Explanation
	Documents []Document `json:"samples"` // in place of the explanation's, which lack the content

	// Content is the digest of the step's rows, of which the job's chain is made: that of
	// a whole step whose documents are tokens and nothing else, or "".
	Content string `json:"content,omitempty"`
}

// Preview plans up to a step, as Explain does, and reads what is in it.
func (j *Job) Preview(ctx context.Context, q Query, progress func(step int64)) (*Preview, error) {
	x, err := j.Explain(ctx, q, progress)
	if err != nil {
		return nil, err
	}
	p := &Preview{Explanation: *x, Documents: make([]Document, len(x.Samples))}
	ids, err := j.tokens(ctx, x.Samples)
	if err != nil {
		return nil, err
	}
	for i, s := range x.Samples {
		p.Documents[i] = Document{Sample: s, IDs: ids[i]}
		if encoding := j.sources[j.numberOf(s.Source)].Chain.Encoding(); encoding != nil {
			d := &p.Documents[i]
			d.Text, d.LossTexts = new(textOf(encoding, d.IDs)), d.lossTexts(encoding)
		}
	}
	p.Content = j.content(p)
	return p, nil
}

// numberOf is the number of a source.
func (j *Job) numberOf(name string) int32 { return int32(slices.Index(j.Sources(), name)) }

// tokens are those of samples. Their blocks are read again, one after the other, and nothing else of them is kept.
func (j *Job) tokens(ctx context.Context, all []Sample) ([][]int32, error) {
	ids := make([][]int32, len(all))
	var inOrder []plan.Want
	blocks := map[plan.Want]map[order.Place]int{} // numbers of their samples
	for i, s := range all {
		want := plan.Want{Source: j.numberOf(s.Source), Seq: s.Block}
		place, err := j.Place(ctx, plan.Ref{Source: want.Source, Seq: want.Seq, Index: s.Index})
		if err != nil {
			return nil, err
		}
		if blocks[want] == nil {
			inOrder, blocks[want] = append(inOrder, want), map[order.Place]int{}
		}
		blocks[want][place] = i
	}
	for _, want := range inOrder {
		if err := j.tokensOf(ctx, want, blocks[want], ids); err != nil {
			return nil, err
		}
	}
	for i, s := range all {
		if len(ids[i]) != int(s.Tokens) {
			return nil, fault.Userf("source %q: %s %d of %s has %d tokens, and had %d when it was planned: keep data files unchanged",
				s.Source, s.RecordUnit, s.Record, s.File, len(ids[i]), s.Tokens)
		}
	}
	return ids, nil
}

// tokensOf puts the tokens of a block's samples into ids, by their numbers.
func (j *Job) tokensOf(ctx context.Context, want plan.Want, at map[order.Place]int, ids [][]int32) error {
	s := j.sources[want.Source]
	worker := s.worker()
	defer s.idle.Put(worker)
	return s.Source.Samples(ctx, j.store, worker, want.Seq, func(place order.Place, tokens []int32) {
		if i, ok := at[place]; ok {
			ids[i] = slices.Clone(tokens)
		}
	})
}

// lossTexts are what the runs of ids that carry loss stand for, nil if all carry loss.
func (d *Document) lossTexts(encoding *tokenize.Encoding) (texts []string) {
	if len(d.Masked) == 0 {
		return nil
	}
	for bounds := d.Loss(); len(bounds) > 0; bounds = bounds[2:] {
		texts = append(texts, textOf(encoding, d.IDs[bounds[0]:bounds[1]]))
	}
	return texts
}

// textOf is what ids stand for. Those that are none of the encoding's, such as an image's
// placeholders, are shown as <id>.
func textOf(encoding *tokenize.Encoding, ids []int32) string {
	if text, err := encoding.Decode(ids); err == nil {
		return string(text)
	}
	var text []byte
	for i, id := range ids {
		part, err := encoding.Decode(ids[i : i+1])
		if err != nil {
			part = fmt.Appendf(nil, "<%d>", id)
		}
		text = append(text, part...)
	}
	return string(text)
}

// content is the digest of a whole step of tokens.
func (j *Job) content(p *Preview) string {
	rows := make([]batch.Row, p.Rows)
	for _, d := range p.Documents {
		row := &rows[d.Row]
		row.Segments, row.Masked = append(row.Segments, d.IDs), append(row.Masked, d.Masked)
	}
	for _, s := range j.sources {
		if len(s.Spec.Keep) > 0 || s.Spec.Images() != nil {
			return ""
		}
	}
	if len(p.Documents) != len(p.step.Samples()) {
		return ""
	}
	var digests [][32]byte
	for _, row := range rows {
		digests = append(digests, batch.RowDigest(row))
	}
	return fmt.Sprintf("%x", batch.StepDigest(p.Step, digests))
}
