package mirror_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// unreadable is a store that lists all, and denies the reading of some.
type unreadable struct {
	object.Store
	prefix string
	reads  int
}

func (u *unreadable) Get(ctx context.Context, key string, part object.Range) ([]byte, error) {
	if strings.HasPrefix(key, u.prefix) {
		u.reads++
		return nil, fault.Userf("reading %s: %w", key, object.ErrDenied)
	}
	return u.Store.Get(ctx, key, part)
}

// TestDenied: what the store does not let one read is neither damaged nor mended: one error says so, after the first read.
func TestDenied(t *testing.T) {
	m := newMachine(&object.Memory{})
	log := m.open(t)
	appendSteps(t, log, 0, 300)
	await(t, log, func() bool { return len(keys(t, m.store, "pack/")) > 0 && len(keys(t, m.store, "keyframe/")) > 0 })
	closeAll(t, log)
	for _, prefix := range []string{"", "segment/", "pack/", "keyframe/"} {
		store := &unreadable{Store: m.store, prefix: prefix}
		if r, err := mirror.Check(t.Context(), store); !errors.Is(err, object.ErrDenied) || r != nil || strings.Contains(err.Error(), "damaged") || store.reads != 1 {
			t.Errorf("%q: check: %+v, %v, after %d reads that were denied", prefix, r, err, store.reads)
		}
		if prefix == "pack/" || prefix == "segment/" {
			continue // a repair may need none of them
		}
		opts := m.options()
		opts.Store = store
		if did, err := mirror.Repair(t.Context(), opts); !errors.Is(err, object.ErrDenied) || did != "" || strings.Contains(err.Error(), "damaged") {
			t.Errorf("%q: repair: %s, %v", prefix, did, err)
		}
	}
}

// TestDeniedSegments: a mirror without a key frame whose segments cannot be read is not mended either.
func TestDeniedSegments(t *testing.T) {
	m := newMachine(&object.Memory{})
	log := m.open(t)
	appendSteps(t, log, 0, 3)
	closeAll(t, log)
	for _, key := range keys(t, m.store, "keyframe/") {
		if err := m.store.Put(t.Context(), key, []byte("damaged")); err != nil {
			t.Fatal(err)
		}
	}
	opts := m.options()
	opts.Store = &unreadable{Store: m.store, prefix: "segment/"}
	if did, err := mirror.Repair(t.Context(), opts); !errors.Is(err, object.ErrDenied) || did != "" || strings.Contains(err.Error(), "damaged") {
		t.Errorf("%s, %v", did, err)
	}
}
