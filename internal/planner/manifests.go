package planner

import (
	"bytes"
	"cmp"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// The first loader that indexes a source freezes its manifest. All loaders are told its
// digest before they are asked to read, and one whose files are others says what they are.

// String names a loader in messages.
func (l *loaderSession) String() string {
	if l.id == l.address {
		return "loader " + l.id
	}
	return fmt.Sprintf("loader %s (%s)", l.id, l.address)
}

// sourceIndexed takes what a loader says its files of a source are: the first one's are
// the source's, and all others' have to be the same.
func (p *Planner) sourceIndexed(l *loaderSession, x *pb.SourceIndexed) {
	if int(x.Source) >= len(p.indexed) || len(x.Manifest) != 32 || x.Blocks == 0 {
		p.fail(fmt.Errorf("a loader indexed source %d with %d blocks, which cannot be", x.Source, x.Blocks))
		return
	}
	if p.indexed[x.Source] == nil {
		p.freeze(l, x)
	} else if err := p.data.compareFiles(p.indexed[x.Source], x, l.String()); err != nil {
		p.fail(p.inSource(x.Source, err))
	}
	p.start()
}

// freeze takes what a loader said of a source as what the source is.
func (p *Planner) freeze(l *loaderSession, x *pb.SourceIndexed) {
	p.indexed[x.Source] = x
	if !p.data.list(x.Source, l.String(), len(x.Listing)) {
		x.Listing = nil
	}
	for _, other := range p.loaders {
		other.out.Put(frozenOrder(int(x.Source), x))
	}
}

func frozenOrder(source int, x *pb.SourceIndexed) *pb.LoaderOrder {
	return &pb.LoaderOrder{Order: &pb.LoaderOrder_Frozen{Frozen: &pb.FrozenSource{Source: uint32(source), Manifest: x.Manifest}}}
}

// inSource names the source that an error is about.
func (p *Planner) inSource(i uint32, err error) error {
	return fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", p.sources[i].Name, err))
}

// list notes the loader that froze a source, and says whether there is room for its listing.
func (d *data) list(source uint32, indexer string, bytes int) bool {
	s := &d.sources[source]
	if s.indexer = indexer; d.listed+bytes > listingsLimit {
		return false
	}
	s.listed = bytes
	d.listed += bytes
	return true
}

// compareFiles says how a loader's files differ from those of the one that indexed the
// source first.
func (d *data) compareFiles(first, now *pb.SourceIndexed, loader string) error {
	if bytes.Equal(first.Manifest, now.Manifest) {
		return nil
	}
	before := d.sources[now.Source].indexer
	if before == loader {
		before = "the same loader before"
	}
	return otherData("%s has other files than %s: %s", loader, before, difference(first, now, loader, before))
}

// difference names the first file that two loaders do not have alike, and how many more
// there are.
func difference(first, now *pb.SourceIndexed, here, there string) string {
	var a, b pb.Listing
	if cmp.Or(proto.Unmarshal(first.Listing, &a), proto.Unmarshal(now.Listing, &b)) != nil {
		return "their listings are damaged"
	}
	text, count := fewer(side{&a, first.Files, there}, side{&b, now.Files, here})
	switch {
	case count > 1:
		return fmt.Sprintf("%s; %d files differ", text, count)
	case count == 1:
		return text
	case !bytes.Equal(a.Encoding, b.Encoding) && len(first.Listing) > 0:
		return fmt.Sprintf("the tokenizer's rank file, or the image decoder, differs: %x for %s, %x for %s", head(b.Encoding), here, head(a.Encoding), there)
	}
	return fmt.Sprintf("%d files of %d bytes (manifest %x) for %s, %d files of %d bytes (manifest %x) for %s; the lists are too long to say which differ",
		now.Files, now.Bytes, head(now.Manifest), here, first.Files, first.Bytes, head(first.Manifest), there)
}

// side is what one loader lists.
type side struct {
	*pb.Listing
	all uint64 // files that it has; not all may be listed
	who string
}

// file says which file comes as the i-th and what it is.
func (s side) file(i int) (name, said string, end bool) {
	if i >= len(s.Files) {
		return "", "", true
	}
	f := s.Files[i]
	return s.Folder + f.Name, fmt.Sprintf("size %d, chunks %d, fingerprint %016x", f.Size, f.Chunks, f.Fingerprint), false
}

// whole says whether all files are listed.
func (s side) whole() bool { return uint64(len(s.Files)) == s.all }

// fewer are the differences of two sides whose files lie in the same folder, or each in
// one of its own: whichever are less.
func fewer(first, now side) (text string, count int) {
	text, count = differences(first, now)
	folder := first.Folder
	if first.Folder = now.Folder; folder == now.Folder {
		return text, count
	}
	if other, n := differences(first, now); n < count {
		return other, n
	}
	return text, count
}

// differences compares two listings, both by rising name, as far as both go: what the
// first difference is, and how many there are.
func differences(first, now side) (text string, count int) {
	note := func(format string, args ...any) {
		if count++; count == 1 {
			text = fmt.Sprintf(format, args...)
		}
	}
	for i, j := 0, 0; ; {
		a, before, endA := first.file(i)
		b, after, endB := now.file(j)
		switch {
		case endA && (endB || !first.whole()) || endB && !now.whole():
			return text, count
		case endB || !endA && a < b:
			note("%s (%s) is missing for %s and there for %s", a, before, now.who, first.who)
			i++
		case endA || b < a:
			note("%s (%s) is there for %s and missing for %s", b, after, now.who, first.who)
			j++
		default:
			if before != after {
				note("%s has %s for %s, and %s for %s", b, after, now.who, before, first.who)
			}
			i, j = i+1, j+1
		}
	}
}
