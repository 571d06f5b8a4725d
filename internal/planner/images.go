package planner

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// hasImages says whether samples of a job have images.
func hasImages(job *jobspec.Job) bool {
	return slices.ContainsFunc(job.Sources, func(s jobspec.Source) bool { return s.Images() != nil })
}

// imageSteps tells constructors how images become patches, by source.
func imageSteps(job *jobspec.Job) (steps []*pb.ImageStep) {
	if !hasImages(job) {
		return nil
	}
	for _, s := range job.Sources {
		step := &pb.ImageStep{}
		if x := s.Images(); x != nil {
			step = &pb.ImageStep{Patch: uint32(x.Patch), Merge: uint32(x.Merge), MinPixels: uint64(x.MinPixels), MaxPixels: uint64(x.MaxPixels)}
		}
		steps = append(steps, step)
	}
	return steps
}

// stride is how far the numbers of neighbouring ranks are apart, by axis.
func stride(t *mesh.Tree) (strides []uint32) {
	m := t.Sizes()
	for i, size := range []int{m.DP, m.CP, m.PP, m.TP} {
		var next [4]int
		next[i] = min(1, size-1)
		rank, _ := t.Rank(mesh.Coordinates{DP: next[0], CP: next[1], PP: next[2], TP: next[3]})
		strides = append(strides, uint32(rank))
	}
	return strides
}

// imagesRead is what the core is told of the images of a block: nil if its source
// has none. Counts that cannot be are an error.
func imagesRead(b *pb.BlockRead) (*plan.Images, error) {
	if len(b.Images) == 0 && len(b.ImageHeight) == 0 {
		return nil, nil
	}
	total := 0
	images := &plan.Images{Offsets: append(make([]int32, 0, len(b.Images)+1), 0)}
	for _, n := range b.Images {
		total += int(n)
		images.Offsets = append(images.Offsets, int32(total))
	}
	if len(b.Images) != len(b.Lengths) || len(b.ImageHeight) != total || len(b.ImageWidth) != total {
		return nil, fmt.Errorf("source %d, block %d: a loader told of %d, %d and %d images of %d samples (%d are there)",
			b.Source, b.Seq, total, len(b.ImageHeight), len(b.ImageWidth), len(b.Images), len(b.Lengths))
	}
	for i, h := range b.ImageHeight {
		images.Patches = append(images.Patches, int32(h*b.ImageWidth[i]))
	}
	return images, nil
}

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

// encoderOf is the rank that encodes an image whose row is at a DP rank.
func encoderOf(s *plan.Step, image int32, dp int) (int, error) {
	if s.Placed.Encoder == nil {
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

// imagesOf returns the images of a step; nil if its samples have none.
func (p *Planner) imagesOf(s *plan.Step) (*stepImages, error) {
	if s.Buffer.ImageOffsets == nil {
		return nil, nil
	}
	if p.images == nil || p.images.step != s {
		images, err := placeImages(s)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", s.Step, err)
		}
		p.images = images
	}
	return p.images, nil
}

// addImages puts the images of a step into a constructor's plan.
func (p *Planner) addImages(out *pb.StepPlan, images *stepImages, part *strategy.Part, buckets []uint32) {
	buf := images.step.Buffer
	numbers := map[wantKey]uint32{}
	for k, b := range part.Blocks {
		numbers[wantKey{b.Source, b.Seq}] = uint32(k)
	}
	out.Images = images.imagePlan(part, buckets, func(sample int32) uint32 {
		key := wantKey{buf.Source[sample], buf.Seq[sample]}
		number, known := numbers[key]
		if !known {
			number = uint32(len(out.Blocks))
			numbers[key], out.Blocks = number, append(out.Blocks, p.planBlock(key))
		}
		return number
	})
}
