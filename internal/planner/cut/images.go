package cut

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// placedImage is an image of a step: whose it is, and who encodes it.
type placedImage struct {
	encoder, microbatch, rank, row, document, number int32
	sample                                           int32 // of the step's buffer
	ordinal                                          int32 // among the encoder's images of its microbatch
}

func (a placedImage) compare(b placedImage) int {
	return cmp.Or(cmp.Compare(a.encoder, b.encoder), cmp.Compare(a.microbatch, b.microbatch), cmp.Compare(a.rank, b.rank),
		cmp.Compare(a.row, b.row), cmp.Compare(a.document, b.document), cmp.Compare(a.number, b.number))
}

// stepImages are the images of a step.
type stepImages struct {
	step *plan.Step
	all  []placedImage // in the order of compare
	dp   []uint32      // DP rank of the encoder of each
	at   []int32       // image of the buffer -> its place in all
}

// placeImages finds the place of each image of a step. Without a graph of images the
// first rank of those that hold a row encodes its images.
func placeImages(s *plan.Step) (*stepImages, error) {
	r, buf := s.Placed, s.Buffer
	x := &stepImages{step: s, at: make([]int32, buf.Images())}
	first := make([]int32, 0, buf.Images()) // image of the buffer, by its place in all before sorting
	for row, rank := range r.Rank {
		for document, sample := range r.Samples(row) {
			from, to := buf.ImagesOf(int(sample))
			for image := from; image < to; image++ {
				encoder, err := encoderOf(s, image, int(rank))
				if err != nil {
					return nil, err
				}
				x.all = append(x.all, placedImage{int32(encoder), r.Microbatch[row], rank, r.Position[row], int32(document), image - from, sample, 0})
				first = append(first, image)
			}
		}
	}
	order := make([]int, len(x.all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return x.all[a].compare(x.all[b]) })
	x.sort(order, first)
	return x, nil
}

// encoderOf is the rank that encodes an image whose row is at a DP rank: one that no graph of
// images has is encoded there.
func encoderOf(s *plan.Step, image int32, dp int) (int, error) {
	if s.Placed.Encoder == nil || s.Placed.Encoder[image] < 0 {
		return s.Mesh.Rank(mesh.Coordinates{DP: dp})
	}
	ranks, err := s.Placed.Encoders.Ranks(int(s.Placed.Encoder[image]))
	if err != nil {
		return 0, err
	}
	for rank := range ranks {
		return rank, nil
	}
	return 0, fmt.Errorf("bucket %d of encoders has no rank", s.Placed.Encoder[image])
}

// sort brings the images into order and numbers them.
func (x *stepImages) sort(order []int, image []int32) {
	sorted := make([]placedImage, len(order))
	for k, i := range order {
		sorted[k] = x.all[i]
		x.at[image[i]] = int32(k)
		if k > 0 && sorted[k-1].encoder == sorted[k].encoder && sorted[k-1].microbatch == sorted[k].microbatch {
			sorted[k].ordinal = sorted[k-1].ordinal + 1
		}
		at, _ := x.step.Mesh.Coordinates(int(sorted[k].encoder))
		x.dp = append(x.dp, uint32(at.DP))
	}
	x.all = sorted
}

// imagePlan is the part of a plan's images that concerns a constructor: those that
// its ranks encode, whose blocks are added to out, and those of its rows.
func (x *stepImages) imagePlan(part *strategy.Part, buckets []uint32, block func(sample int32) uint32) *pb.ImagePlan {
	out, buf := &pb.ImagePlan{}, x.step.Buffer
	for k := range x.all {
		i := &x.all[k]
		if !slices.Contains(buckets, x.dp[k]) {
			continue
		}
		out.Encoder, out.Microbatch = append(out.Encoder, uint32(i.encoder)), append(out.Microbatch, uint32(i.microbatch))
		out.Rank, out.Row = append(out.Rank, uint32(i.rank)), append(out.Row, uint32(i.row))
		out.Document, out.Number = append(out.Document, uint32(i.document)), append(out.Number, uint32(i.number))
		out.Block, out.Sample = append(out.Block, block(i.sample)), append(out.Sample, uint32(buf.Index[i.sample]))
	}
	for _, row := range part.Rows {
		for _, sample := range x.step.Placed.Samples(int(row)) {
			from, to := buf.ImagesOf(int(sample))
			for image := from; image < to; image++ {
				i := &x.all[x.at[image]]
				out.RowEncoder, out.RowOrdinal = append(out.RowEncoder, uint32(i.encoder)), append(out.RowOrdinal, uint32(i.ordinal))
			}
		}
	}
	return out
}

// addImages puts the images of a step into a constructor's plan.
func (s *Step) addImages(out *pb.StepPlan, part *strategy.Part, buckets []uint32, block func(source int32, seq int64) *pb.PlanBlock) {
	type key struct {
		source int32
		seq    int64
	}
	buf, numbers := s.step.Buffer, map[key]uint32{}
	for k, b := range part.Blocks {
		numbers[key{b.Source, b.Seq}] = uint32(k)
	}
	out.Images = s.images.imagePlan(part, buckets, func(sample int32) uint32 {
		k := key{buf.Source[sample], buf.Seq[sample]}
		number, known := numbers[k]
		if !known {
			number = uint32(len(out.Blocks))
			numbers[k], out.Blocks = number, append(out.Blocks, block(k.source, k.seq))
		}
		return number
	})
}
