package sourceloader

import (
	"bytes"
	"context"
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
)

// listingLimit bounds the listing of a source, in bytes: some 75,000 files, in a message
// that the planner takes. It serves errors alone, so of more files the first ones do.
const listingLimit = rpc.MaxControl / 2

// indexed is what the planner learns of a source's files.
func (s *Source) indexed(i uint32) (*pb.SourceIndexed, error) {
	listing, err := proto.Marshal(listingOf(&s.Manifest))
	return &pb.SourceIndexed{
		Source: i, Blocks: uint64(s.Order.Blocks()), Manifest: s.digest[:],
		Files: uint64(len(s.Manifest.Files)), Bytes: uint64(s.Manifest.Bytes()), Listing: listing,
	}, err
}

func listingOf(m *order.Manifest) *pb.Listing {
	l := &pb.Listing{Folder: m.Folder(), Encoding: m.Encoding[:]}
	room := listingLimit
	for i := range m.Files {
		f := &m.Files[i]
		x := &pb.ListedFile{
			Name: f.URI[len(l.Folder):], Size: uint64(f.Size), Chunks: uint64(f.Chunks),
			Fingerprint: binary.BigEndian.Uint64(f.Fingerprint[:]),
		}
		if room -= proto.Size(x) + 4; room < 0 {
			break
		}
		l.Files = append(l.Files, x)
	}
	return l
}

// freeze notes what the manifest of a source has to be.
func (l *Loader) freeze(f *pb.FrozenSource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(f.Source) < len(l.sources) {
		l.sources[f.Source].frozen.Store(&f.Manifest)
	}
}

// source opens source i once. If its files are not those that the job was planned
// with, the planner learns what they are, once, and nobody reads them.
func (l *Loader) source(ctx context.Context, i uint32) (*Source, error) {
	src, lazy, err := l.open(ctx, i)
	if err != nil {
		return nil, err
	}
	if frozen := lazy.frozen.Load(); frozen == nil || bytes.Equal(*frozen, src.digest[:]) {
		return src, nil
	}
	if !lazy.told.Swap(true) {
		l.opts.Log.Error("this loader's files are not those that the job was planned with", "source", src.Spec.Name)
		if err := l.tellIndexed(i, src); err != nil {
			return nil, err
		}
	}
	return nil, errOther
}

func (l *Loader) tellIndexed(i uint32, src *Source) error {
	x, err := src.indexed(i)
	if err != nil {
		return err
	}
	return l.send(&pb.LoaderReport{Report: &pb.LoaderReport_Indexed{Indexed: x}})
}
