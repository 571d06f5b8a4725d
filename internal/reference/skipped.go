package reference

import "slices"

// Skip is a bad record that its source's policy leaves out.
type Skip struct {
	Source int    // its number
	Seq    int64  // block that the record is in
	File   string // its URI
	Name   string // below the common folder of the source's files
	Row    int64
	Reason string
}

// skip leaves out a record of the block that is being read.
func (s *source) skip(file int, row int64, err error) {
	f := int32(file)
	s.bad = append(s.bad, Skip{Seq: s.block, File: s.Manifest.Files[f].URI, Name: s.Manifest.Name(f), Row: row, Reason: err.Error()})
}

// endEpoch forgets the bad records that the source's limit passes over: those of the
// blocks behind the last one that gave a sample in the epoch.
func (s *source) endEpoch() {
	if s.spec.Limit > 0 {
		s.bad = slices.DeleteFunc(s.bad, func(x Skip) bool { return x.Seq > s.gave })
	}
}

// leftOut are the bad records that the step is the first to leave out: those up to the
// last block it drew from.
func (s *source) leftOut(number int) (list []Skip) {
	if len(s.blocks) == 0 {
		return nil
	}
	n := 0
	for n < len(s.bad) && s.bad[n].Seq <= s.position() {
		s.bad[n].Source = number
		n++
	}
	list, s.bad = s.bad[:n:n], s.bad[n:]
	return list
}
