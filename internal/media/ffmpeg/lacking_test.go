package ffmpeg

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// TestLacking: what a child cannot get from its machine is of class lost and names the limit; all else that it says is of its file.
func TestLacking(t *testing.T) {
	most := Limits{Output: 1 << 20, Pixels: 1 << 20, Memory: 512 << 20, Time: time.Minute}
	for said, want := range map[string]struct {
		class fault.Class
		words string
	}{
		"ffmpeg: error while loading shared libraries: libx.so.1: failed to map segment from shared object": {fault.Lost, "ulimit -v"},
		"file:/proc/self/fd/3: Too many open files":                                                         {fault.Lost, "ulimit -n"},
		"pthread_create() failed: Resource temporarily unavailable":                                         {fault.Lost, "ulimit -u"},
		"Error while decoding stream #0:0: Resource temporarily unavailable":                                {fault.User, "ffmpeg refuses it"},
		"file:/proc/self/fd/3: Invalid data found when processing input":                                    {fault.User, "ffmpeg refuses it"},
	} {
		program := filepath.Join(t.TempDir(), "ffmpeg")
		if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\necho '%s' >&2\nexit 1\n", said), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := (&Tool{Path: program}).Sound(t.Context(), []byte("a file"), 60, most)
		if fault.ClassOf(err) != want.class || !strings.Contains(err.Error(), want.words) || !strings.Contains(err.Error(), said[:20]) {
			t.Errorf("%q: %v (%v), want %v with %q", said, err, fault.ClassOf(err), want.class, want.words)
		}
	}
	const none = "another line\nError while decoding: Cannot allocate memory"
	if lacking([]byte(none), false) != "" { // of a block that is too large on every machine
		t.Error("memory that every machine refuses is said to be lacking")
	}
	if why := lacking([]byte(none), true); !strings.HasPrefix(why, "Error while") || !strings.Contains(why, "ulimit -v") {
		t.Errorf("memory that a limit refuses: %q", why)
	}
	for _, errno := range []syscall.Errno{syscall.EFBIG, syscall.EAGAIN, syscall.EMFILE, syscall.EIO} {
		err := usedUp("starting ffmpeg", os.NewSyscallError("call", errno))
		if fault.ClassOf(err) != fault.Lost || strings.Contains(err.Error(), "raise") == (errno == syscall.EIO) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
