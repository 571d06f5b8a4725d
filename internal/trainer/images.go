package trainer

import (
	"bytes"
	"fmt"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/planner/mesh"
)

// encoded holds the images of a step, as received by the ranks that encode them.
type encoded struct {
	lists map[encoderSlot]*encoderList
	left  int // images that no row has claimed
}

// encoderSlot is a rank, by its number, and a microbatch.
type encoderSlot struct{ rank, microbatch int }

type encoderList struct {
	images     []assemble.Encoded
	patches    [][]byte
	claimed    []bool
	send, recv []int32 // embeddings, by rank
}

// readImages gathers the images that all ranks of a step encode.
func (t *run) readImages(batches []*client.Batch) (*encoded, error) {
	tree, err := mesh.New(mesh.Sizes{DP: t.mesh.DP, CP: t.mesh.CP, PP: t.mesh.PP, TP: t.mesh.TP, VPP: 1, EP: 1, Order: t.mesh.Order})
	if err != nil {
		return nil, err
	}
	e := &encoded{lists: map[encoderSlot]*encoderList{}}
	for i, b := range batches {
		at := t.places[i]
		rank, err := tree.Rank(mesh.Coordinates{DP: at.DP, CP: at.CP, PP: at.PP, TP: at.TP})
		if err != nil {
			return nil, err
		}
		for m := range b.Microbatches {
			images, patches, err := assemble.ReadPixels(b.Microbatches[m].Tensors)
			if err != nil {
				return nil, fmt.Errorf("step %d, %s, microbatch %d: %w", b.Step, at, m, err)
			}
			send, recv, err := assemble.ReadCounts(b.Microbatches[m].Tensors)
			if err != nil {
				return nil, fmt.Errorf("step %d, %s, microbatch %d: %w", b.Step, at, m, err)
			}
			want := 0
			for _, x := range images {
				want += x.Tokens * t.mesh.CP * t.mesh.TP
			}
			if sent := sum(send); sent != want {
				return nil, fmt.Errorf("step %d, %s, microbatch %d: it sends %d embeddings, its images have %d for all ranks of their rows", b.Step, at, m, sent, want)
			}
			e.lists[encoderSlot{rank, m}] = &encoderList{images, patches, make([]bool, len(images)), send, recv}
			e.left += len(images)
		}
	}
	return e, e.checkExchange()
}

func sum(counts []int32) (total int) {
	for _, n := range counts {
		total += int(n)
	}
	return total
}

// checkExchange checks that each rank sends what its peer expects.
// Ranks that a broadcast serves are skipped.
func (e *encoded) checkExchange() error {
	for from, a := range e.lists {
		for rank, sent := range a.send {
			b := e.lists[encoderSlot{rank, from.microbatch}]
			if b != nil && (from.rank >= len(b.recv) || b.recv[from.rank] != sent) {
				return fmt.Errorf("microbatch %d: rank %d sends %d embeddings to rank %d, which expects %v", from.microbatch, from.rank, sent, rank, b.recv)
			}
		}
	}
	return nil
}

// claim gives the images of a microbatch's rows their pixels, each from the rank that
// the row's own tensors name, and checks that it is the row's there too.
func (e *encoded) claim(rows []batch.Row, sources []assemble.Source, dp, m int) error {
	n := 0
	for r := range rows {
		numbers := map[int]int{} // images of each document so far
		for i := range rows[r].Images {
			x, from := &rows[r].Images[i], sources[n]
			n++
			list := e.lists[encoderSlot{from.Encoder, m}]
			if list == nil || from.Ordinal < 0 || from.Ordinal >= len(list.images) {
				return fmt.Errorf("row %d: image %d is number %d of rank %d, which has no such image", r, i, from.Ordinal, from.Encoder)
			}
			want := assemble.Encoded{H: x.H, W: x.W, Rank: dp, Row: r, Document: x.Document, Number: numbers[x.Document], Tokens: x.Tokens}
			if got := list.images[from.Ordinal]; got != want {
				return fmt.Errorf("row %d: image %d is number %d of rank %d, which has %+v there, not %+v", r, i, from.Ordinal, from.Encoder, got, want)
			}
			if list.claimed[from.Ordinal] {
				return fmt.Errorf("row %d: image %d is number %d of rank %d, as another image is", r, i, from.Ordinal, from.Encoder)
			}
			list.claimed[from.Ordinal] = true
			numbers[x.Document]++
			x.Data = list.patches[from.Ordinal]
			e.left--
		}
	}
	return nil
}

// total counts the images, and the ranks that received any.
func (e *encoded) total() (images, ranks int) {
	of := map[int]bool{}
	for at, list := range e.lists {
		images += len(list.images)
		if len(list.images) > 0 {
			of[at.rank] = true
		}
	}
	return images, len(of)
}

// imagesOf returns the images of a microbatch's rows, which all ranks of the first
// stage have alike.
func imagesOf(first []batch.Tensor, others [][]batch.Tensor, rows int) ([][]batch.Image, []assemble.Source, error) {
	for _, o := range others {
		for _, name := range []string{assemble.ImageSource, assemble.ImageDigests} {
			if a, b := named(first, name), named(o, name); !bytes.Equal(a, b) {
				return nil, nil, fmt.Errorf("tensor %s: ranks of one row have %d and %d bytes that differ", name, len(a), len(b))
			}
		}
	}
	return assemble.ReadSources(first, rows)
}

func named(tensors []batch.Tensor, name string) []byte {
	for _, t := range tensors {
		if t.Name == name {
			return t.Data
		}
	}
	return nil
}
