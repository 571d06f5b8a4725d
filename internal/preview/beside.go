package preview

import (
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// Bytes that trainers receive of an image or a kept value beside its data: see
// assemble.AppendPixels, AppendSources, AppendKept.
const (
	encodedBytes   = 3*8 + 4 + 5*8 // by its encoder
	embeddingBytes = 8*8 + 32      // by every rank of its row
	valueBytes     = 4 * 8         // by every rank of its row
)

// addBeside adds what a step moves beside tokens. Blocks of the step are in memory.
func (z *sizes) addBeside(s *plan.Step) {
	m, buf := s.Mesh.Sizes(), s.Buffer
	fetching := m.TP
	if z.job.spec.Output.BroadcastAt == "tp" {
		fetching = 1
	}
	for row := range s.Rows {
		readers := int64(m.CP * fetching) // of the first pipeline stage
		if _, width := s.Placed.Span(row); s.Placed.Width != nil {
			readers = int64(width * fetching)
		}
		for _, i := range s.Placed.Samples(row) {
			src := z.job.sources[buf.Source[i]]
			all := src.held[buf.Seq[i]].beside
			if all == nil {
				continue
			}
			x, images, pixels := all[buf.Index[i]], int64(0), int64(0)
			if step := src.Spec.Images(); step != nil {
				first, end := buf.ImagesOf(int(i))
				for _, patches := range buf.Patches[first:end] {
					pixels += int64(patches) * int64(transform.Geometry(step).PatchBytes())
				}
				if images = int64(end - first); step.Decode == "loader" {
					x.Images = pixels
				}
			}
			z.fetched += x.Kept + x.Images
			z.beside += (x.Kept+x.Values*valueBytes+images*embeddingBytes)*readers + pixels + images*encodedBytes
		}
	}
	if buf.ImageOffsets != nil { // every rank learns how many embeddings it exchanges with each
		z.beside += int64(2 * 4 * m.DP * m.CP * m.PP * m.TP * m.DP * m.CP * m.PP * fetching * s.Placed.Microbatches)
	}
}
