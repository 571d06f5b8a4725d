package constructor

import (
	"cmp"
	"context"
	"fmt"
	"runtime"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/memory"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
)

// picture is an image that a rank encodes.
type picture struct {
	assemble.Encoded
	samples.Image
	pixels []byte // of its patches, when the step is built
	source uint32
	number uint32 // of its sample's images
}

// slot is a rank's part of a microbatch.
type slot struct {
	rank       uint32 // number of all ranks
	microbatch uint32
}

// numberOf is a rank's number among all ranks of a mesh.
func numberOf(r deliver.Rank, m *pb.Mesh) uint32 {
	n := uint32(0)
	for i, index := range []uint32{r.DP, r.CP, r.PP, r.TP} {
		if i < len(m.Stride) {
			n += index * m.Stride[i]
		}
	}
	return n
}

// exchange is how many embeddings a rank sends to each rank, and gets from each, in
// one microbatch: every rank of the first pipeline stage gets those of all images of
// its rows.
func exchange(m *pb.Mesh, r deliver.Rank, encoded []assemble.Encoded, rows []batch.Row, sources []assemble.Source) (send, recv []int32) {
	world := m.Dp * m.Cp * m.Pp * m.Tp
	send, recv = make([]int32, world), make([]int32, world)
	for _, e := range encoded {
		for cp := range m.Cp {
			for tp := range m.Tp {
				send[numberOf(deliver.Rank{DP: uint32(e.Rank), CP: cp, TP: tp}, m)] += int32(e.Tokens)
			}
		}
	}
	if r.PP > 0 {
		return send, recv
	}
	n := 0
	for i := range rows {
		for _, x := range rows[i].Images {
			recv[sources[n].Encoder] += int32(x.Tokens)
			n++
		}
	}
	return send, recv
}

// geometry is the rule of a source's images; an error if it has none.
func geometry(steps []*pb.ImageStep, source uint32) (imaging.Geometry, error) {
	if int(source) >= len(steps) || steps[source].Patch == 0 {
		return imaging.Geometry{}, fmt.Errorf("source %d has images, and no image step", source)
	}
	x := steps[source]
	return imaging.Geometry{Patch: int(x.Patch), Merge: int(x.Merge), MinPixels: int(x.MinPixels), MaxPixels: int(x.MaxPixels)}, nil
}

// patchBytes is the size of a patch, the same in all sources.
func patchBytes(steps []*pb.ImageStep) int {
	for _, x := range steps {
		if x.Patch > 0 {
			return imaging.Geometry{Patch: int(x.Patch)}.PatchBytes()
		}
	}
	return 0
}

// askImages adds to requests the images that ranks of this constructor encode.
func askImages(p *pb.ImagePlan, asks []*pb.BlockSamples) {
	for k, b := range p.GetBlock() {
		a := asks[b]
		a.Indices = append(a.Indices, p.Sample[k])
		a.ImageSample, a.ImageNumber = append(a.ImageSample, p.Sample[k]), append(a.ImageNumber, p.Number[k])
	}
}

// layOutImages puts the images that ranks of this constructor encode where the plan
// says. They borrow the sets' memory.
func (s *step) layOutImages(p *pb.StepPlan, asks []*pb.BlockSamples, sets []samples.Set) error {
	s.images = map[slot][]picture{}
	for k, b := range p.Images.GetBlock() {
		x, block := p.Images, p.Blocks[b]
		g, err := geometry(s.from.images, block.Source)
		if err != nil {
			return err
		}
		at, number := placeOf(asks[b], x.Sample[k]), int(x.Number[k])
		if at >= len(sets[b].Images) || number >= len(sets[b].Images[at]) || sets[b].Images[at][number].Data == nil {
			return fmt.Errorf("source %d, block %d: image %d of sample %d is missing in the loader's answer", block.Source, block.Seq, number, x.Sample[k])
		}
		image := sets[b].Images[at][number]
		grid := imaging.Grid{H: int(image.H), W: int(image.W)}
		if size := grid.Patches() * g.PatchBytes(); image.Decoded && len(image.Data) != size {
			return fmt.Errorf("source %d, block %d: image %d of sample %d came with %d bytes of pixels, %d are wanted", block.Source, block.Seq, number, x.Sample[k], len(image.Data), size)
		}
		given := picture{source: block.Source, number: x.Number[k], Image: image, Encoded: assemble.Encoded{
			H: grid.H, W: grid.W, Rank: int(x.Rank[k]), Row: int(x.Row[k]), Document: int(x.Document[k]), Number: number, Tokens: g.Tokens(grid),
		}}
		if image.Decoded {
			given.pixels = image.Data
		} else {
			need := imaging.Memory(image.Data, g)
			s.undecoded, s.scratch, s.largest = s.undecoded+int64(grid.Patches()*g.PatchBytes()), s.scratch+need, max(s.largest, need)
		}
		to := slot{x.Encoder[k], x.Microbatch[k]}
		s.images[to] = append(s.images[to], given)
		s.bytes += int64(len(image.Data))
	}
	return nil
}

// addImages gives a row the images of its next document, from the loader's answer,
// and takes their encoders off the plan's list.
func (r *row) addImages(images []samples.Image, source uint32, plan *pb.ImagePlan, next *int, steps []*pb.ImageStep) error {
	for _, x := range images {
		g, err := geometry(steps, source)
		if err != nil {
			return err
		}
		if *next >= len(plan.GetRowEncoder()) {
			return fmt.Errorf("row %d: its documents have more images than the plan", r.number)
		}
		r.Images = append(r.Images, batch.Image{
			Document: len(r.Segments) - 1, At: int(x.At), Tokens: g.Tokens(imaging.Grid{H: int(x.H), W: int(x.W)}), H: int(x.H), W: int(x.W), SHA: x.SHA,
		})
		r.sources = append(r.sources, assemble.Source{Encoder: int(plan.RowEncoder[*next]), Ordinal: int(plan.RowOrdinal[*next])})
		*next++
	}
	return nil
}

// appendImages appends a rank's tensors of the images of one microbatch.
func (st *step) appendImages(body []byte, r deliver.Rank, rows []row) ([]byte, []batch.Tensor) {
	if len(st.from.images) == 0 {
		return body, nil
	}
	list := st.images[slot{numberOf(r, st.from.mesh), rows[0].microbatch}]
	encoded := make([]assemble.Encoded, len(list))
	for i := range list {
		encoded[i] = list[i].Encoded
	}
	body, tensors, at := assemble.AppendPixels(body, encoded, patchBytes(st.from.images))
	for i := range list {
		copy(body[at[i]:], list[i].pixels)
	}
	content := make([]batch.Row, len(rows))
	var sources []assemble.Source
	for i := range rows {
		content[i] = rows[i].Row
		sources = append(sources, rows[i].sources...)
	}
	send, recv := exchange(st.from.mesh, r, encoded, content, sources)
	body, counts := assemble.AppendCounts(body, send, recv)
	tensors = append(tensors, counts...)
	if r.PP > 0 {
		return body, tensors
	}
	body, more := assemble.AppendSources(body, content, sources)
	return body, append(tensors, more...)
}

// roomShare is the part of a constructor's memory that images are decoded in. Steps that are built and held have
// the rest.
const roomShare = 4

// decodeWithin has images decoded on all cores within a part of the constructor's memory.
func (c *Constructor) decodeWithin(budget int64) {
	c.room = memory.NewRoom(context.Background(), budget/roomShare, memory.Options{Alone: func(bytes, most int64) { // who waits, waits for a decoder that is at work
		c.opts.Log.Warn("an image takes more memory to decode than the constructor has for that: such images are decoded one after the other, each alone",
			"bytes", bytes, "room", most, "try", fmt.Sprintf("a larger resources.constructor_buffer (%d times the bytes), or decode: loader", roomShare))
	}})
	c.pictures = imaging.NewPool(runtime.GOMAXPROCS(0), c.room)
}

// decoding is the memory that the images of a step are decoded in.
func (s *step) decoding(room *memory.Room) int64 { return min(s.scratch, max(room.Most(), s.largest)) }

// decode makes the pixels of a step's images, on all cores. What a rank is sent later is copied
// from them.
func (c *Constructor) decode(ctx context.Context, st *step) error {
	memory := make([]byte, st.undecoded)
	bySource := map[uint32][]imaging.Picture{}
	for _, list := range st.images {
		for i := range list {
			x := &list[i]
			if x.pixels != nil {
				continue
			}
			size := x.patches() * patchBytes(st.from.images)
			x.pixels, memory = memory[:size:size], memory[size:]
			bySource[x.source] = append(bySource[x.source], imaging.Picture{
				Data: x.Data, SHA: x.SHA, Grid: imaging.Grid{H: int(x.Image.H), W: int(x.Image.W)}, Patches: x.pixels[:0],
				Origin: fmt.Sprintf("source %q: %s, image %d", st.from.names[x.source], x.Origin, x.number),
			})
		}
	}
	for source, list := range bySource {
		g, err := geometry(st.from.images, source)
		if err = cmp.Or(err, c.pictures.Decode(ctx, list, g)); err != nil {
			return err
		}
	}
	return nil
}

func (x *picture) patches() int { return int(x.Image.H) * int(x.Image.W) }
