package mirror_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// quiet drops what Pebble says.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}

// tamper changes the record of a step in the folder of a machine, so that no file's checksum tells.
func tamper(t *testing.T, m *machine, step int64) {
	t.Helper()
	db, err := pebble.Open("log", &pebble.Options{FS: m.disk, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	key := binary.BigEndian.AppendUint64([]byte("r"), uint64(step))
	if err := errors.Join(db.Set(key, []byte("other"), pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// repaired repairs the folder of a machine, and looks at the log.
func repaired(t *testing.T, m *machine, look func(log checkpoint.Log)) (did string) {
	t.Helper()
	did, err := mirror.Repair(t.Context(), m.options())
	if err != nil {
		t.Fatal(err)
	}
	log, err := checkpoint.Open("log", checkpoint.Options{FS: m.disk, ReadOnly: true, Whole: true})
	if err != nil {
		t.Fatalf("%s: %v", did, err)
	}
	look(log)
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	return did
}

// TestRepairFolder: damage in what comes before the last key frame is found, and the folder has all that the mirror
// has then: also one that was missing.
func TestRepairFolder(t *testing.T) {
	m := newMachine(&object.Memory{})
	log := m.open(t)
	appendSteps(t, log, 0, 3)
	if err := log.SetDigest(2, [32]byte{2}); err != nil {
		t.Fatal(err)
	}
	appendSteps(t, log, 3, 300) // more than the steps whose sum an opening reads
	await(t, log, func() bool { // tidying may be behind: a key frame after the first pack, of up to 256 slots
		framed := keys(t, m.store, "keyframe/")
		return len(framed) > 0 && slices.Max(framed) > "keyframe/0000000000000100" && len(keys(t, m.store, "pack/")) > 0
	})
	closeAll(t, log)
	tamper(t, m, 2)
	for _, of := range []*machine{m, newMachine(m.store)} {
		did := repaired(t, of, func(log checkpoint.Log) {
			wantTail(t, log, 0, 299)
			if digest, ok, err := log.ReadDigest(2); digest != [32]byte{2} || !ok || err != nil {
				t.Errorf("the digest of step 2: %x, %v, %v", digest, ok, err)
			}
		})
		if !strings.Contains(did, "steps 0 to 299") {
			t.Error(did)
		}
	}
	log = newMachine(m.store).open(t)
	if first, _ := log.First(); first == 0 {
		t.Error("a planner that takes over reads all of the mirror")
	}
	closeAll(t, log)
	// What is damaged in the mirror is left out, if a planner can go on without it.
	for _, kind := range []string{"pack/", "segment/"} { // of some slots both, if the log was closed meanwhile
		for _, key := range keys(t, m.store, kind) {
			if key < kind+"0000000000000100" {
				if err := m.store.Put(t.Context(), key, []byte("damaged")); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	tamper(t, m, 2)
	if did := repaired(t, m, func(log checkpoint.Log) { wantTail(t, log, 296, 299) }); strings.Contains(did, "steps 0 to") {
		t.Error(did)
	}
}

// TestEarlierLeftAll: an earlier build named the first step of its copy where it left all. A folder that has more, and
// would go on with other steps, is made again from the mirror.
func TestEarlierLeftAll(t *testing.T) {
	for what, repair := range map[string]bool{"opened": false, "repaired": true} {
		t.Run(what, func(t *testing.T) {
			all, late := copies(t)
			log := late.open(t)
			first, _ := log.First()
			if err := log.Truncate(first); err != nil {
				t.Fatal(err)
			}
			for step := int64(5); step < 30; step++ {
				var frame []byte
				if checkpoint.Begins(log) {
					frame = []byte("frame of another branch")
				}
				if err := log.Append(step, fmt.Appendf(nil, "another record of step %d", step), frame); err != nil {
					t.Fatal(err)
				}
			}
			want := branchOf(t, log)
			closeAll(t, log)
			if repair {
				repaired(t, all, func(log checkpoint.Log) {
					if got := branchOf(t, log); got != want {
						t.Errorf("it has %s, want %s", got, want)
					}
				})
				return
			}
			wantSame(t, want, all, late)
		})
	}
}

// TestCheckApart: a mirror does not go away with the log whose copy it is.
func TestCheckApart(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "log")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink("log", filepath.Join(root, "link")), os.Symlink(root, filepath.Join(root, "up"))); err != nil {
		t.Fatal(err)
	}
	for where, refused := range map[string]bool{
		"log": true, "log/": true, "log/mirror": true, "log/a/../b/c": true, "link": true, "link/mirror": true, "up/log/mirror": true,
		"log.replaced": true, "log.replaced/mirror": true,
		"mirror": false, "logs": false, "log.mirror": false, "up/mirror": false, "log/../mirror": false, "": false,
	} {
		for _, of := range []string{dir, dir + "/", filepath.Join(root, "up/log")} {
			err := mirror.CheckApart(of, "file://"+root+"/"+where)
			if (err != nil) != refused || err != nil && fault.ClassOf(err) != fault.User {
				t.Errorf("%q of %s: %v", where, of, err)
			}
		}
	}
	for _, url := range []string{"", "s3://bucket/log", "file://"} {
		if err := mirror.CheckApart(dir, url); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(root, "*")); err != nil || len(left) != 3 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// TestCompare: a mirror that ends before its folder is found, and a folder that is behind its mirror.
func TestCompare(t *testing.T) {
	here := newMachine(&object.Memory{})
	log := here.open(t)
	appendSteps(t, log, 0, 10)
	closeAll(t, log)
	older := &object.Memory{}
	for _, kind := range []string{"segment/", "keyframe/", "pack/"} {
		for _, key := range keys(t, here.store, kind) {
			data, err := here.store.Get(t.Context(), key, object.Whole)
			if err := errors.Join(err, older.Put(t.Context(), key, data)); err != nil {
				t.Fatal(err)
			}
		}
	}
	there := newMachine(here.store)
	closeAll(t, there.open(t))
	log = here.open(t)
	appendSteps(t, log, 10, 20)
	closeAll(t, log)
	ofOther := there.options()
	ofOther.Store = &object.Memory{}
	ofOther.Log.FS, ofOther.Log.Identity = vfs.NewMem(), [32]byte{9}
	other, err := mirror.Open(t.Context(), ofOther)
	if err != nil {
		t.Fatal(err)
	}
	appendSteps(t, other, 0, 3)
	closeAll(t, other)
	for what, c := range map[string]struct {
		of     *machine
		store  object.Store
		behind bool
		want   string // of an error of class user; "" for none
	}{
		"as they are":              {here, here.store, false, ""},
		"a folder that is behind":  {there, here.store, true, ""},
		"an older mirror":          {here, older, false, "it ends before slot"},
		"the mirror of another":    {here, ofOther.Store, false, "identity"},
		"an older one, for a copy": {there, older, false, ""},
	} {
		opts := c.of.options()
		opts.Store, opts.Log.Identity = c.store, [32]byte{}
		behind, err := mirror.Compare(t.Context(), opts)
		if behind != c.behind || (err != nil) != (c.want != "") || err != nil && (fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: behind %v, %v", what, behind, err)
		}
	}
}
