package mirror

import (
	"context"
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/object"
)

// The names of objects: a folder for each kind, then slots in 16 hexadecimal digits, so
// that the order of names is that of slots.
const (
	segments = "segment/"
	frames   = "keyframe/"
	packs    = "pack/"
	probes   = "probe/"
	refusals = "refused/" // a writer's number follows the slot
)

func segmentName(slot uint64) string { return fmt.Sprintf("%s%016x", segments, slot) }
func refusalName(slot, writer uint64) string {
	return fmt.Sprintf("%s%016x-%016x", refusals, slot, writer)
}
func frameName(slot uint64) string { return fmt.Sprintf("%s%016x", frames, slot) }

// run is a pack: the slots from <= slot < to.
type run struct{ from, to uint64 }

func (r run) name() string            { return fmt.Sprintf("%s%016x-%016x", packs, r.from, r.to) }
func (r run) covers(slot uint64) bool { return r.from <= slot && slot < r.to }

// listSlots returns the slots of the objects of a kind from one on, in order.
func listSlots(ctx context.Context, s object.Store, kind string, from uint64) (slots []uint64, err error) {
	after := ""
	if from > 0 {
		after = fmt.Sprintf("%s%016x", kind, from-1)
	}
	all, err := s.List(ctx, kind, after)
	for _, o := range all {
		var slot uint64
		if _, err := fmt.Sscanf(strings.TrimPrefix(o.Key, kind), "%016x", &slot); err == nil && o.Key == fmt.Sprintf("%s%016x", kind, slot) {
			slots = append(slots, slot)
		}
	}
	return slots, err
}

// listRuns returns all packs, by their first slot, the shortest first.
func listRuns(ctx context.Context, s object.Store) (runs []run, err error) {
	all, err := s.List(ctx, packs, "")
	for _, o := range all {
		var r run
		if _, err := fmt.Sscanf(o.Key, packs+"%016x-%016x", &r.from, &r.to); err == nil && o.Key == r.name() && r.from < r.to {
			runs = append(runs, r)
		}
	}
	return runs, err
}
