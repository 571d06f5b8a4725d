package worker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

// lacks is a module whose functions find no more of something as long as there is a file beside it.
const lacks = `
import errno, mmap, os
import millrace

def full():
    return os.path.exists(os.path.join(os.path.dirname(__file__), "full"))

grow, real = os.ftruncate, mmap.mmap

def ftruncate(file, size):
    if full():
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return grow(file, size)

def mapped(file, size, *more):
    if os.path.exists(os.path.join(os.path.dirname(__file__), "unmapped")):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    return real(file, size, *more)

os.ftruncate, mmap.mmap = ftruncate, mapped

@millrace.transform
def large(text: str) -> str:
    return text * (4 << 20)

@millrace.transform(kind="map_batches")
def larges(text: list[str]) -> list[str]:
    return [t * (4 << 20) for t in text]

@millrace.transform
def memory(text: str) -> str:
    if full():
        import resource
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        raise MemoryError
    return text

@millrace.transform
def broken(text: str) -> str:
    raise MemoryError("it asks for 1 PiB")

@millrace.transform
def files(text: str) -> str:
    if full():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "x")
    return text

@millrace.transform(kind="map_batches")
def disk(text: list[str]) -> list[str]:
    if full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x")
    return text

@millrace.transform
def threads(text: str) -> str:
    if full():
        raise RuntimeError("can't start new thread")
    return text

@millrace.transform
class Begins:
    def __init__(self):
        if full():
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE), "x")

    def __call__(self, text: str) -> str:
        return text
`

// TestLacking: what a worker's machine has no more of is no row's fault, and no function's: the error is of class lost and names
// the limit, and the same function serves once there is more.
func TestLacking(t *testing.T) {
	opt := options(t)
	opt.Workers = 1
	for name, c := range map[string]struct{ file, says, look string }{
		"large":   {"full", "growing shared memory to 4194", "ulimit -f"},
		"larges":  {"unmapped", "growing shared memory to ", "ulimit -v"},
		"memory":  {"full", "MemoryError (lack.py:", "ulimit -v"},
		"files":   {"full", "Too many open files", "ulimit -n"},
		"disk":    {"full", "No space left on device", "TMPDIR"},
		"threads": {"full", "can't start new thread", "ulimit -u"},
		"Begins":  {"full", "Too many open files in system", "fs.file-max"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for the pauses between attempts
			opt := opt
			opt.Functions = []string{"lack:" + name}
			file := filepath.Join(withModule(t, &opt, "lack", lacks), c.file)
			if err := os.WriteFile(file, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := open(t, opt).Function(t.Context(), Use{Name: "lack:" + name})
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = f.Call(t.Context(), texts("a"))
			if _, given := errors.AsType[*LostError](err); !given && !errors.Is(err, fault.ErrTried) || fault.ClassOf(err) != fault.Lost {
				t.Errorf("%v (%v), want one of class lost that was tried", err, fault.ClassOf(err))
			} else if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.look) {
				t.Errorf("%v, want words of %q and %q", err, c.says, c.look)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if out, _, err := f.Call(t.Context(), texts("a")); err != nil || out.Len() != 1 || out.Bad(0) != nil {
				t.Errorf("then it gives %v", err)
			}
		})
	}
}

// TestMemoryOfARecord: where memory is not bounded only what is far too much is refused, as on every machine, so that a MemoryError is
// of the record.
func TestMemoryOfARecord(t *testing.T) {
	opt := options(t)
	if mode, err := os.ReadFile("/proc/sys/vm/overcommit_memory"); err != nil || strings.TrimSpace(string(mode)) == "2" {
		t.Skip("this system bounds memory")
	}
	opt.Workers, opt.Functions = 1, []string{"lack:broken"}
	withModule(t, &opt, "lack", lacks)
	f, err := open(t, opt).Function(t.Context(), Use{Name: "lack:broken"})
	if err != nil {
		t.Fatal(err)
	}
	if out, _, err := f.Call(t.Context(), texts("a")); err != nil || out.Bad(0) == nil || !strings.Contains(out.Bad(0).Error(), "it asks for 1 PiB") {
		t.Errorf("%v, %v", out.Bad(0), err)
	}
}

// TestLackingElsewhere: a pool says of a worker that its machine has no more of something what it says of one that something
// else ended.
func TestLackingElsewhere(t *testing.T) {
	opt := options(t)
	opt.Workers, opt.Functions = 1, []string{"lack:memory"}
	if err := os.WriteFile(filepath.Join(withModule(t, &opt, "lack", lacks), "full"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e := open(t, opt)
	f, err := e.Function(t.Context(), Use{Name: "lack:memory"})
	if err != nil {
		t.Fatal(err)
	}
	in := texts("a")
	c := &call{in: in, columns: in.Columns(), count: in.Len()}
	r := f.rows(c, 0, 0)
	data := make([]byte, f.size(r))
	encode(data, r.columns, f.in, r.lo, r.hi, nil)
	o, err := e.Run(t.Context(), Attempt{Use: Use{Name: "lack:memory"}, Batch: data})
	if err != nil || o.Death == nil || !o.Death.Outside || !strings.Contains(o.Death.Why, "ulimit -v") {
		t.Errorf("%+v, %v", o, err)
	}
}
