package sourceloader

import (
	"bytes"
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/imaging"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// imageBytes is what an image takes in a block beside its data.
const imageBytes = 256

// addImages copies the images of the sample that was added last.
func (r *reading) addImages(s *transform.Sample) {
	if !r.block.hasImages {
		return
	}
	var list []samples.Image
	for _, x := range s.Images {
		list = append(list, samples.Image{
			At: x.At, H: int32(x.Grid.H), W: int32(x.Grid.W), SHA: x.SHA, Data: bytes.Clone(x.Data),
			Origin: fmt.Sprintf("%s: row %d", r.source.Manifest.Files[r.file].URI, s.Row),
		})
	}
	r.block.images = append(r.block.images, list)
}

// imageMemory is what the images of a sample take.
func imageMemory(list []samples.Image) (n int64) {
	n = 24
	for i := range list {
		n += int64(len(list[i].Data)+len(list[i].Origin)) + imageBytes
	}
	return n
}

// reportImages tells the sizes of all images.
func (b *Block) reportImages(to *pb.BlockRead) {
	if !b.hasImages {
		return
	}
	for _, at := range b.Order {
		to.Images = append(to.Images, uint32(len(b.images[at])))
		for _, x := range b.images[at] {
			to.ImageHeight, to.ImageWidth = append(to.ImageHeight, uint32(x.H)), append(to.ImageWidth, uint32(x.W))
		}
	}
}

// selectImages gives set the images of its samples, with the data that is wanted.
// Data is the block's.
func (b *Block) selectImages(want *pb.BlockSamples, set *samples.Set) error {
	set.Images = nil
	if !b.hasImages {
		return nil
	}
	set.Images = make([][]samples.Image, len(want.Indices))
	for k, i := range want.Indices {
		for _, x := range b.images[b.Order[i]] {
			x.Data, x.Origin = nil, ""
			set.Images[k] = append(set.Images[k], x)
		}
	}
	return eachWanted(want, set, func(k, number int) {
		set.Images[k][number] = b.images[b.Order[want.Indices[k]]][number]
	})
}

// eachWanted calls visit for each image whose data is wanted, with its sample's
// place in set and its number there.
func eachWanted(want *pb.BlockSamples, set *samples.Set, visit func(k, number int)) error {
	if len(want.ImageSample) != len(want.ImageNumber) {
		return fmt.Errorf("images are asked for by %d samples and %d numbers", len(want.ImageSample), len(want.ImageNumber))
	}
	place := make(map[uint32]int, len(want.Indices))
	for k, i := range want.Indices {
		place[i] = k
	}
	for n, i := range want.ImageSample {
		k, asked := place[i]
		number := int(want.ImageNumber[n])
		if !asked || number >= len(set.Images[k]) {
			return fmt.Errorf("image %d of sample %d was asked for, which is not there", number, i)
		}
		visit(k, number)
	}
	return nil
}

// decoding is what the loader decodes for one fetch.
type decoding struct {
	jobs  []decodingJob
	bytes int64 // that the pixels take
}

// decodingJob is the images of one block, of one geometry.
type decodingJob struct {
	geometry imaging.Geometry
	images   []*samples.Image
	pictures []imaging.Picture
	bytes    int
}

// add adds the images of a set, if the loader is to turn them into pixels.
func (d *decoding) add(ctx context.Context, l *Loader, want *pb.BlockSamples, set *samples.Set) error {
	if len(want.ImageSample) == 0 {
		return nil
	}
	src, err := l.source(ctx, want.Source)
	if err != nil {
		return err
	}
	step := src.Spec.Images()
	if step == nil || step.Decode != "loader" {
		return nil
	}
	job := decodingJob{geometry: transform.Geometry(step)}
	for k := range set.Images {
		for n := range set.Images[k] {
			x := &set.Images[k][n]
			if x.Data == nil {
				continue
			}
			grid := imaging.Grid{H: int(x.H), W: int(x.W)}
			job.images = append(job.images, x)
			job.pictures = append(job.pictures, imaging.Picture{
				Data: x.Data, SHA: x.SHA, Grid: grid,
				Origin: fmt.Sprintf("source %q: %s, image %d", src.Spec.Name, x.Origin, n),
			})
			job.bytes += grid.Patches() * job.geometry.PatchBytes()
		}
	}
	d.jobs = append(d.jobs, job)
	d.bytes += int64(job.bytes)
	return nil
}

// run decodes all of it, when there is room for the pixels.
func (d *decoding) run(ctx context.Context, pool *imaging.Pool, held *holding) error {
	if err := held.takePixels(ctx, d.bytes); err != nil {
		return err
	}
	for i := range d.jobs {
		if err := d.jobs[i].run(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// run puts the pixels in place of the encoded images. Those of a block lie one after the other in one piece
// of memory, which samples.Wire sends as it is.
func (j *decodingJob) run(ctx context.Context, pool *imaging.Pool) error {
	whole, at := make([]byte, j.bytes), 0
	for i := range j.pictures {
		size := j.pictures[i].Grid.Patches() * j.geometry.PatchBytes()
		j.pictures[i].Patches = whole[at : at : at+size]
		at += size
	}
	if err := pool.Decode(ctx, j.pictures, j.geometry); err != nil {
		return err
	}
	at = 0
	for i, x := range j.images {
		size := len(j.pictures[i].Patches)
		x.Data, x.Decoded = whole[at:at+size], true
		at += size
	}
	return nil
}
