package sourceloader

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// ban takes in all banned records. Blocks of a source with new ones are read
// again when they are asked for: only then is it seen which samples these are.
func (l *Loader) ban(bans []*pb.Ban) {
	l.mu.Lock()
	same := 0
	for same < min(len(bans), len(l.bans)) && proto.Equal(bans[same], l.bans[same]) {
		same++
	}
	var changed []uint32
	for _, b := range slices.Concat(l.bans[same:], bans[same:]) { // of another planner there may be fewer
		changed = append(changed, b.Source)
	}
	l.bans = bans
	l.mu.Unlock()
	for _, source := range changed {
		l.cache.forget(source)
	}
}

// bansKnown is the number of banned records.
func (l *Loader) bansKnown() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint32(len(l.bans))
}

// bannedIn returns the banned records of a source.
func (l *Loader) bannedIn(source uint32, src *Source) (Bans, error) {
	l.mu.Lock()
	bans := l.bans
	l.mu.Unlock()
	return src.Banned(source, bans)
}

// Banned returns those of a job's banned records that are of this source, its
// number source, by file, and how many bans of the job that takes into account.
func (s *Source) Banned(source uint32, all []*pb.Ban) (Bans, error) {
	bans := Bans{known: uint32(len(all))}
	for _, b := range all {
		if b.Source != source {
			continue
		}
		file, err := s.Manifest.Find(b.File)
		if err != nil {
			return bans, fmt.Errorf("source %q: record %d of %s is banned: %w", s.Spec.Name, b.Row, b.File, err)
		}
		bans.Add(file, b.Row, b.Id)
	}
	return bans, nil
}

// find answers which file of a source a person means.
func (l *Loader) find(ctx context.Context, f *pb.FindFile) error {
	found := &pb.FileFound{Source: f.Source, Name: f.Name}
	src, err := l.source(ctx, f.Source)
	if err == nil {
		var file int
		if file, err = src.Manifest.Find(f.Name); err == nil {
			found.Path = src.Manifest.Name(int32(file))
			found.Below = uint64(format.RowsBelow(src.Format, src.Manifest.Files[file].Object))
		}
	}
	if err != nil {
		found.Problem = err.Error()
	}
	return l.send(&pb.LoaderReport{Report: &pb.LoaderReport_Found{Found: found}})
}
