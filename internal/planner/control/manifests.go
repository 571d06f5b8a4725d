package control

import (
	"bytes"
	"cmp"
	"fmt"
)

// Listing is what a manifest is made of.
type Listing struct {
	Folder   string       // that all files lie in, with its slash
	Files    []ListedFile // by rising name; the first ones, if they are too many
	Encoding []byte       // of the tokenizer's rank file, and of what decodes images
}

// ListedFile is a file of a Listing.
type ListedFile struct {
	Name        string // below the folder
	Size        uint64
	Chunks      uint64
	Fingerprint uint64 // its first 8 bytes
}

// The first loader that indexes a source freezes its manifest. All loaders learn its
// digest before they are asked to read, and one whose files are others says what they are.

// list notes the loader that froze a source, and says whether there is room for its listing.
func (d *data) list(source int, indexer string, bytes int) bool {
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
func (d *data) compareFiles(first, now *Indexed, loader string, read func([]byte) (Listing, error)) error {
	if bytes.Equal(first.Manifest, now.Manifest) {
		return nil
	}
	before := d.sources[now.Source].indexer
	if before == loader {
		before = "the same loader before"
	}
	return otherData("%s has other files than %s: %s", loader, before, difference(first, now, loader, before, read))
}

// difference names the first file that two loaders do not have alike, and how many more
// there are.
func difference(first, now *Indexed, here, there string, read func([]byte) (Listing, error)) string {
	a, err := read(first.Listing)
	b, errNow := read(now.Listing)
	if cmp.Or(err, errNow) != nil {
		return "their listings are damaged"
	}
	text, count := fewer(side{a, first.Files, there}, side{b, now.Files, here})
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
	Listing
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

func head(b []byte) []byte { return b[:min(len(b), 6)] }
