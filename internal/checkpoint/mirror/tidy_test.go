package mirror_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/object"
)

// spoiled is a store in which an object is damaged, or missing.
type spoiled struct {
	object.Store
	key     atomic.Value // of the object, "" for none
	missing bool
}

func (s *spoiled) Get(ctx context.Context, key string, r object.Range) ([]byte, error) {
	data, err := s.Store.Get(ctx, key, r)
	if key != s.key.Load() || err != nil {
		return data, err
	}
	if s.missing {
		return nil, fmt.Errorf("reading %s: %w", key, object.ErrNotExist)
	}
	data[len(data)/2] ^= 1
	return data, nil
}

// lines takes what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// with is the number of warnings that name an object.
func (l *lines) with(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), key)
}

// tidied is a log of a machine, whose warnings are taken.
func tidied(t *testing.T, m *machine) (*mirror.Log, *lines) {
	warned := &lines{}
	opts := m.options()
	opts.Log.Logger = slog.New(slog.NewTextHandler(warned, nil))
	log, err := mirror.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log, warned
}

// TestTidySegment: a segment that cannot be read keeps the others of its pack from being packed, and no other. One
// warning says so.
func TestTidySegment(t *testing.T) {
	for what, missing := range map[string]bool{"damaged": false, "missing": true} {
		t.Run(what, func(t *testing.T) {
			store := &spoiled{Store: &object.Memory{}, missing: missing}
			store.key.Store("segment/0000000000000015")
			log, warned := tidied(t, newMachine(store))
			for next := int64(0); next < 200; next += 20 {
				appendSteps(t, log, next, next+20)
				await(t, log, func() bool { return len(keys(t, store, "segment/")) < 40 })
			}
			await(t, log, func() bool { return warned.with("segment/0000000000000015") > 0 })
			closeAll(t, log)
			if n := warned.with("segment/0000000000000015"); n != 1 {
				t.Errorf("%d warnings: %s", n, &warned.text)
			}
			wantTail(t, newMachine(store).open(t), 192, 199)
		})
	}
}

// TestTidyFrame: objects of a trimmed log go away also where a key frame among them cannot be read, and that one with
// them.
func TestTidyFrame(t *testing.T) {
	store := &spoiled{Store: &object.Memory{}}
	log, warned := tidied(t, newMachine(store))
	frames := func() []string { return keys(t, store, "keyframe/") }
	for next := int64(0); next < 600; next += 20 {
		appendSteps(t, log, next, next+20)
		await(t, log, func() bool { return len(keys(t, store, "segment/")) < 40 })
		if next == 200 {
			all := frames()
			store.key.Store(all[len(all)-1]) // until a log is trimmed, earlier ones are let go of unread
		}
		if next >= 200 {
			if err := log.Trim(next - 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	key := store.key.Load().(string)
	await(t, log, func() bool { return frames()[0] > key })
	closeAll(t, log)
	if n := warned.with(key); n != 1 {
		t.Errorf("%d warnings: %s", n, &warned.text)
	}
	if packs := keys(t, store, "pack/"); packs[0] < "pack/0000000000000100" {
		t.Errorf("%d packs are left: %v", len(packs), packs)
	}
	if r, err := mirror.Check(t.Context(), store); err != nil || r.Readable != nil || len(r.Damage) > 0 {
		t.Errorf("the mirror: %v, %+v", err, r)
	}
}
