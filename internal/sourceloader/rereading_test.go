package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/compile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// flaky is a store whose reads fail, or read something else, as harm says of the n-th.
type flaky struct {
	store.Store
	harm  atomic.Pointer[func(n int64, p []byte) error] // nil: none
	opens atomic.Int64
}

func (f *flaky) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	h, err := f.Store.Open(ctx, obj)
	if harm := f.harm.Load(); err == nil && harm != nil {
		return &flakyHandle{h, f.opens.Add(1), *harm}, nil
	}
	return h, err
}

type flakyHandle struct {
	store.Handle
	n    int64
	harm func(int64, []byte) error
}

func (h *flakyHandle) ReadAt(p []byte, off int64) (int, error) {
	n, err := h.Handle.ReadAt(p, off)
	if bad := h.harm(h.n, p[:n]); bad != nil {
		return 0, bad
	}
	return n, err
}

// flakyLoader is a loader of a source of one file that was indexed, and what it says.
func flakyLoader(t *testing.T) (l *Loader, f *flaky, said *[]*pb.LoaderReport) {
	l = loaderOf(t, "", 60)
	f = &flaky{Store: l.store}
	l.store = store.NewMetered(f)
	said = heard(t, l)
	if err := l.index(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return l, f, said
}

// TestReadAgain: what goes wrong on the way, and bytes that are others when they are read again,
// leave no record out and end nothing: the report is that of an undisturbed reading. What two
// readings in a row find, counts.
func TestReadAgain(t *testing.T) {
	clean, _, said := flakyLoader(t)
	want := reportOf(t, clean, said, 0)
	if len(want.Skips) == 0 {
		t.Fatal("the source has no bad record")
	}
	spoil := func(p []byte) {
		if i := strings.Index(string(p), `"text"`); i >= 0 {
			p[i] = '#'
		}
	}
	for name, harm := range map[string]func(n int64, p []byte) error{
		"an I/O error": func(n int64, p []byte) error {
			if n == 1 {
				return fault.Lostf("reading: input/output error")
			}
			return nil
		},
		"a file that is away": func(n int64, p []byte) error {
			if n <= 2 {
				return fault.Userf("opening: %w", store.ErrNotExist)
			}
			return nil
		},
		"other bytes once": func(n int64, p []byte) error {
			if n == 1 {
				spoil(p)
			}
			return nil
		},
		"other bytes twice, not the same": func(n int64, p []byte) error {
			switch n {
			case 1:
				spoil(p)
			case 2:
				copy(p, "###")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, f, said := flakyLoader(t)
			f.harm.Store(&harm)
			if got := reportOf(t, l, said, 0); !proto.Equal(got, want) {
				t.Errorf("got %v\nwant %v", got, want)
			}
		})
	}
}

// TestLostForGood: what stays lost ends the reading after a while, as what it is, and what is
// different each time is the reading's fault.
func TestLostForGood(t *testing.T) {
	for name, c := range map[string]struct {
		harm  func(n int64, p []byte) error
		class fault.Class
		says  string
	}{
		"lost": {func(int64, []byte) error { return fault.Lostf("input/output error") }, fault.Lost, "input/output error"},
		"gone": {func(int64, []byte) error { return fault.Userf("opening: %w", store.ErrNotExist) }, fault.User, "it was there when the source was indexed"},
		"never the same": {func(n int64, p []byte) error {
			copy(p, fmt.Sprintf(`{"text":%d}`+"\n#", n+1000))
			return nil
		}, fault.Lost, "it is the reading that is at fault"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // there are seconds between its readings
				l, f, said := flakyLoader(t)
				f.harm.Store(&c.harm)
				if err := l.readBlock(t.Context(), request{id: blockID{0, 0}}); err != nil {
					t.Fatal(err)
				}
				failure := (*said)[len(*said)-1].GetFailure()
				if failure.GetClass() != c.class.String() || !strings.Contains(failure.GetMessage(), c.says) {
					t.Errorf("got %v; want class %v and %q", failure, c.class, c.says)
				}
			})
		})
	}
}

// TestFetchReadsAgain: a block that is not what it was planned is read once more before the
// loader says that its data is another.
func TestFetchReadsAgain(t *testing.T) {
	l, f, said := flakyLoader(t)
	want := reportOf(t, l, said, 0)
	spoil := func(n int64, p []byte) error {
		if i := strings.Index(string(p), "xxx"); i >= 0 && n == 1 {
			p[i] = 'y' // a good record of other text
		}
		return nil
	}
	f.harm.Store(&spoil)
	l.cache.forget(0)
	_, lazy := l.known(0)
	lazy.setLast(nil)
	id, taken := blockID{0, 0}, 0
	take := func(content) error { taken++; return nil }
	if err := l.checked(t.Context(), id, want.Sum, take); err != nil || taken != 1 {
		t.Errorf("after a second reading: %v, taken %d times", err, taken)
	}
	n := len(*said)
	if err := l.checked(t.Context(), id, want.Sum+1, take); !errors.Is(err, errOther) || taken != 1 || len(*said) != n+1 {
		t.Errorf("a block that is another for good: %v, taken %d times, %d reports", err, taken, len(*said)-n)
	}
}

// TestFetchNeverTheSame: a block that is good and something else at each reading is not said to be other
// data, but that the reading is at fault, with its source, its file and what was read; a later fetch
// reads it again.
func TestFetchNeverTheSame(t *testing.T) {
	l, f, said := flakyLoader(t)
	want := reportOf(t, l, said, 0)
	noise := func(n int64, p []byte) error {
		copy(p, strings.ReplaceAll(string(p), "xxx", strings.Repeat(string(rune('a'+(n-1)/2%20)), 3))) // two readings agree
		return nil
	}
	f.harm.Store(&noise)
	l.cache.forget(0)
	_, lazy := l.known(0)
	lazy.setLast(nil)
	id, taken := blockID{0, 0}, 0
	take := func(content) error { taken++; return nil }
	n := len(*said)
	err := l.checked(t.Context(), id, want.Sum, take)
	if fault.ClassOf(err) != fault.Lost || !errors.Is(err, errUnsteady) || taken != 0 || len(*said) != n+1 {
		t.Fatalf("%v, taken %d times, %d reports", err, taken, len(*said)-n)
	}
	failure := (*said)[n].GetFailure()
	for _, part := range []string{"block 0 (", want.Chunks[0].Place, fmt.Sprintf("planned with checksum %016x", want.Sum), "at fault and not the data"} {
		if failure.GetBlock() != 1 || failure.GetClass() != fault.Lost.String() || !strings.Contains(failure.GetMessage(), part) {
			t.Errorf("the planner hears %v; want %q of block 0", failure, part)
		}
	}
	whole := func(int64, []byte) error { return nil }
	f.harm.Store(&whole)
	if err := l.checked(t.Context(), id, want.Sum, take); err != nil || taken != 1 {
		t.Errorf("once it reads well: %v, taken %d times", err, taken)
	}
}

// saying is a function that fails as a whole, and says something else each time.
type saying struct{ calls *atomic.Int64 }

func (s saying) Call(context.Context, *format.Batch) (*format.Batch, []int32, error) {
	return nil, nil, fault.Userf("row %d: request_id %d: no such key", 7*s.calls.Load(), s.calls.Add(1))
}

// TestCallsFail: what a model server says of a call ends the reading at once, and what another function says of one when the
// next call fails as well, in whatever words: neither is the disk's fault.
func TestCallsFail(t *testing.T) {
	for step, most := range map[string]int64{
		`{call: {url: 'http://x/', request: '{"t": "{text}"}', give: {column: text, at: t}, answers: a}}`: 1,
		`{python: {function: 't:f'}}`: 2,
	} {
		rng := rand.New(rand.NewPCG(1, 1))
		var files store.Memory
		job := flowJob(t, rng, &files, step+", {tokenize: bytes}", false)
		files = store.Memory{}
		files.Put("d/0.jsonl", []byte("{\"text\":\"x\",\"k\":\"\"}\n"))
		text := []transform.Column{{Name: "text", Kind: format.String}}
		said := saying{new(atomic.Int64)}
		open := func(uint64, *jobspec.Source, int) (*transform.Function, error) {
			return &transform.Function{Name: "f", Kind: transform.MapFunction, In: text, Out: text, Caller: said}, nil
		}
		l := &Loader{opts: Options{Log: slog.New(slog.DiscardHandler)}, store: store.NewMetered(&files), shared: transform.NewShared(1, open)}
		l.setJob(compile.LoaderJob(job))
		l.cache = newCache(t.Context(), 1<<20, noDisk, l.load)
		var err error
		if l.executor, err = newExecutor(t.Context(), l.cache, 1); err != nil {
			t.Fatal(err)
		}
		w := &window{cache: l.cache, id: blockID{}}
		w.begin()
		_, err = l.load(t.Context(), w)
		w.count(0)
		if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "no such key") || said.calls.Load() != most {
			t.Errorf("%s: class %v after %d calls, want %d: %v", step, fault.ClassOf(err), said.calls.Load(), most, err)
		}
	}
}
