package preview

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Sample is a document of a step: where it goes, and where it comes from.
type Sample struct {
	Step       int64   `json:"step"`
	Row        int     `json:"row"`              // of the global batch
	DP         int32   `json:"dp"`               // index of the ranks that get the row
	Ranks      int32   `json:"ranks,omitempty"`  // that share the row, of the pool of dp x cp ranks; 0: all cp ranks of dp
	CP         int32   `json:"cp,omitempty"`     // index of the first of these; DP is its index too
	Microbatch int32   `json:"microbatch"`       // among those of the dp index
	Position   int32   `json:"position"`         // of the row in its microbatch
	Offset     int32   `json:"offset"`           // tokens of the row before it
	Tokens     int32   `json:"tokens"`           //
	Source     string  `json:"source"`           //
	File       string  `json:"file"`             // below the folder that the source's files have in common
	Record     int64   `json:"record"`           // place in the file, as format.Record.Row says: a row, a byte offset of JSON lines, ...
	RecordUnit string  `json:"record_unit"`      // what Record counts: "row", or "byte" of the file
	Piece      int32   `json:"piece"`            // of a record that was split, from 0
	Pieces     int32   `json:"pieces"`           // that became of the record
	Epoch      int64   `json:"epoch"`            //
	Block      int64   `json:"block"`            // of the source, counted over epochs
	Index      int32   `json:"index"`            // in the block
	Carried    bool    `json:"carried"`          // drawn in an earlier step
	Masked     []int32 `json:"masked,omitempty"` // bounds of the runs of tokens without loss: from, to, from, to
	Images     []Image `json:"images,omitempty"`

	Waited int64 `json:"waited,omitempty"` // of an outlier, the steps that it waited for others of its length
}

// Loss are the bounds of the runs of tokens that carry loss: from, to, from, to. The first
// token of a document never does: nothing predicts it.
func (s *Sample) Loss() (bounds []int32) {
	edges := append(append([]int32{1}, s.Masked...), s.Tokens)
	for k := 0; k < len(edges); k += 2 {
		if edges[k] < edges[k+1] {
			bounds = append(bounds, edges[k], edges[k+1])
		}
	}
	return bounds
}

// Image is an image of a document.
type Image struct {
	Patches int32 `json:"patches"`
	Encoder int32 `json:"encoder"` // bucket of ranks that encodes it; -1 if no graph of images was planned
}

// Locate calls yield for each sample of a step in the rows that only wants (all if
// it is nil), row by row as they are delivered. It may be called while Run visits the
// step, and for the last step after that.
func (j *Job) Locate(ctx context.Context, s *plan.Step, only func(row int) bool, yield func(*Sample) error) error {
	samples := s.Samples()
	for row, n := range s.Rows {
		refs, offset := samples[:n], int32(0)
		samples = samples[n:]
		if only != nil && !only(row) {
			continue
		}
		for k, ref := range refs {
			x, err := j.sample(ctx, s, ref, int(s.Placed.Samples(row)[k]))
			if err != nil {
				return err
			}
			x.Row, x.Offset = row, offset
			x.DP, x.Microbatch, x.Position = s.Placed.Rank[row], s.Placed.Microbatch[row], s.Placed.Position[row]
			if s.Placed.Width != nil {
				cp := int32(s.Mesh.Sizes().CP)
				x.DP, x.CP, x.Ranks = x.DP/cp, x.DP%cp, s.Placed.Width[row]
			}
			if err := yield(x); err != nil {
				return err
			}
			offset += int32(j.spec.RowLength(int(ref.Length)))
		}
	}
	return nil
}

// sample says where a sample comes from; at is its number in the step's buffer.
func (j *Job) sample(ctx context.Context, s *plan.Step, ref plan.Ref, at int) (*Sample, error) {
	block, err := j.blockOf(ctx, ref)
	if err != nil {
		return nil, err
	}
	places := block.places
	src, p := j.sources[ref.Source], places[ref.Index]
	epoch, _ := src.Order.Position(ref.Seq)
	x := &Sample{
		Step: s.Step, Tokens: ref.Length, Source: src.Spec.Name, File: src.Manifest.Name(p.File), Record: p.Row, Piece: p.Piece,
		Epoch: epoch, Block: ref.Seq, Index: ref.Index, Carried: at < s.Buffer.Carried, RecordUnit: unitOf(src.Format),
	}
	if block.masked != nil {
		x.Masked = block.masked[ref.Index]
	}
	if at < len(s.Waited) {
		x.Waited = s.Step - s.Waited[at].Since
	}
	for _, q := range places {
		if q.File == p.File && q.Row == p.Row {
			x.Pieces++
		}
	}
	first, end := s.Buffer.ImagesOf(at)
	for i := first; i < end; i++ {
		image := Image{s.Buffer.Patches[i], -1}
		if s.Placed.Encoder != nil {
			image.Encoder = s.Placed.Encoder[i]
		}
		x.Images = append(x.Images, image)
	}
	return x, nil
}

// Waiting is an outlier that waits for others of its length.
type Waiting struct {
	Tokens int32  `json:"tokens"`
	Source string `json:"source"`
	Since  int64  `json:"since"` // step in which it was drawn
	Block  int64  `json:"block"`
	Index  int32  `json:"index"`
}

// Query asks for a step, or a part of it.
type Query struct {
	Step       int64
	Rank       map[string]int // index of the rank along some of dp, cp, pp and tp; along those not named, all ranks
	Microbatch int            // -1: all
}

// Explanation is the answer to a Query.
type Explanation struct {
	Step         int64    `json:"step"`
	Mesh         string   `json:"mesh"`
	Rows         int      `json:"rows"`         // of the whole step
	RowTokens    int32    `json:"row_tokens"`   // length of a row
	Microbatches int      `json:"microbatches"` // of each dp index
	Changes      []string `json:"changes,omitempty"`
	Plan         string   `json:"plan"` // digest of the plan, as the step log has it
	Samples      []Sample `json:"samples"`

	Waiting []Waiting `json:"waiting,omitempty"` // outliers that wait on after the step

	job  *Job
	step *plan.Step
}

// Explain plans up to a step and says what is in it. progress hears of each step
// on the way; it may be nil.
func (j *Job) Explain(ctx context.Context, q Query, progress func(step int64)) (*Explanation, error) {
	if q.Step < j.start {
		return nil, fault.Userf("step %d is before step %d, where the plan begins: take an earlier token, or none", q.Step, j.start)
	}
	var x *Explanation
	end, err := j.Run(ctx, q.Step-j.start+1, func(s *plan.Step) error {
		if progress != nil {
			progress(s.Step)
		}
		if s.Step < q.Step {
			return nil
		}
		var err error
		x, err = j.explain(ctx, s, q)
		return err
	})
	if err == nil && end >= 0 && x == nil {
		return nil, noSuchStep(q.Step, end)
	}
	return x, err
}

func noSuchStep(step, end int64) error {
	return fault.Userf("there is no step %d: the data ends after %s, so that steps 0 to %d are valid", step, Count(end, "step"), end-1)
}

func (j *Job) explain(ctx context.Context, s *plan.Step, q Query) (*Explanation, error) {
	only, err := rowsOf(s, q)
	if err != nil {
		return nil, err
	}
	digest := token.PlanDigest(s)
	x := &Explanation{
		Step: s.Step, Mesh: s.Mesh.Canonical(), Rows: len(s.Rows), RowTokens: s.Shape.SequenceLength,
		Microbatches: s.Placed.Microbatches, Plan: fmt.Sprintf("%x", digest), job: j, step: s, Samples: []Sample{},
	}
	for _, ch := range s.Changes {
		x.Changes = append(x.Changes, string(ch.Text))
	}
	for _, h := range s.After.Held {
		x.Waiting = append(x.Waiting, Waiting{h.Length, j.sources[h.Source].Spec.Name, h.Since, h.Seq, h.Index})
	}
	return x, j.Locate(ctx, s, only, func(sample *Sample) error {
		x.Samples = append(x.Samples, *sample)
		return nil
	})
}

// rowsOf says which rows of a step a query is about.
func rowsOf(s *plan.Step, q Query) (only func(row int) bool, err error) {
	var c mesh.Coordinates
	for axis, at := range map[string]*int{"dp": &c.DP, "cp": &c.CP, "pp": &c.PP, "tp": &c.TP} {
		*at = q.Rank[axis]
	}
	if _, err := s.Mesh.Rank(c); err != nil {
		return nil, err
	}
	if q.Microbatch >= s.Placed.Microbatches {
		return nil, fault.Userf("step %d has no microbatch %d: valid are 0 to %d", s.Step, q.Microbatch, s.Placed.Microbatches-1)
	}
	return func(row int) bool {
		return gets(s, q.Rank, row) && (q.Microbatch < 0 || s.Placed.Microbatch[row] == int32(q.Microbatch))
	}, nil
}

// gets says whether a rank of those asked for gets a row, or a part of it.
func gets(s *plan.Step, asked map[string]int, row int) bool {
	cps := 1 // ranks of a DP index that get different rows
	if s.Placed.Width != nil {
		cps = s.Mesh.Sizes().CP
	}
	dp, givenDP := asked["dp"]
	cp, givenCP := asked["cp"]
	first, width := s.Placed.Span(row)
	for rank := first; rank < first+width; rank++ {
		if (!givenDP || rank/cps == dp) && (!givenCP || cps == 1 || rank%cps == cp) {
			return true
		}
	}
	return false
}

// unitOf is what the number of a record counts.
func unitOf(f format.Format) string {
	if format.InBytes(f) {
		return "byte"
	}
	return "row"
}
