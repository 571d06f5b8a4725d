package spill

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// open returns a disk in its own folder, and its log.
func open(t *testing.T, limit int64) (*Disk, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	return Open(Options{Dir: t.TempDir(), Limit: limit, Log: slog.New(slog.NewTextHandler(log, nil))}), log
}

// put writes records, which must fit.
func put(t *testing.T, d *Disk, records [][]byte) *File {
	t.Helper()
	size := int64(0)
	for _, r := range records {
		size += int64(len(r)) + prefix
	}
	if err := d.Reserve(size); err != nil {
		t.Fatal(err)
	}
	f, err := d.Write(size, slices.Values(records))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// records returns n of any length: empty, a few bytes, more than a group, more than
// one write.
func records(rng *rand.Rand, n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		length := rng.IntN(40)
		switch rng.IntN(50) {
		case 0:
			length = rng.IntN(3 * groupBytes)
		case 1:
			length = rng.IntN(writeBytes + writeBytes/4)
		}
		all[i] = make([]byte, length)
		for k := 0; k+8 <= length; k += 8 {
			binary.LittleEndian.PutUint64(all[i][k:], rng.Uint64())
		}
	}
	return all
}

// TestRead reads records by any numbers, rising or not.
func TestRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	d, log := open(t, 1<<30)
	for range 20 {
		want := records(rng, 1+rng.IntN(500))
		f := put(t, d, want)
		size := int64(0)
		for _, r := range want {
			size += int64(len(r)) + prefix
		}
		if used, _, _ := d.Usage(); used != size || f.Bytes() > 16+size/100 {
			t.Errorf("%d bytes are on the disk and %d in memory for %d of records", used, f.Bytes(), size)
		}
		for range 20 {
			numbers := make([]uint32, rng.IntN(50))
			for k := range numbers {
				numbers[k] = uint32(rng.IntN(len(want)))
			}
			if rng.IntN(2) == 0 {
				slices.Sort(numbers)
			}
			seen := 0
			if err := f.Read(numbers, func(k int, record []byte) error {
				if k != seen || !bytes.Equal(record, want[numbers[k]]) {
					t.Fatalf("record %d came %d. as %d bytes, want %d", numbers[k], k, len(record), len(want[numbers[k]]))
				}
				seen++
				return nil
			}); err != nil || seen != len(numbers) {
				t.Fatalf("%d of %d records: %v", seen, len(numbers), err)
			}
		}
		if err := f.Read([]uint32{uint32(len(want))}, nil); err == nil || errors.Is(err, ErrUnreadable) {
			t.Errorf("a record that does not exist: %v", err)
		}
		stop := errors.New("stop")
		if err := f.Read([]uint32{0, 0}, func(int, []byte) error { return stop }); err != stop {
			t.Errorf("visit's error came back as %v", err)
		}
		f.Close()
	}
	if used, _, problem := d.Usage(); used != 0 || d.files != 0 || problem != "" || log.Len() > 0 {
		t.Errorf("after all was closed: %d bytes, %d files, problem %q, log %s", used, d.files, problem, log)
	}
}

// TestNothingStays: the folder is empty while files are open, and the files are for
// this user only.
func TestNothingStays(t *testing.T) {
	d, _ := open(t, 1<<20)
	f := put(t, d, [][]byte{[]byte("secret")})
	defer f.Close()
	if left, err := os.ReadDir(d.dir); err != nil || len(left) > 0 {
		t.Errorf("the folder holds %v: %v", left, err)
	}
	if info, err := f.file.(*os.File).Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
}

// faulty is a file in memory that can go wrong.
type faulty struct {
	data    []byte
	room    int // bytes that can be written
	noRoom  error
	reading error
}

func (f *faulty) Write(p []byte) (int, error) {
	if len(f.data)+len(p) > f.room {
		return 0, f.noRoom
	}
	f.data = append(f.data, p...)
	return len(p), nil
}

func (f *faulty) ReadAt(p []byte, at int64) (int, error) {
	if f.reading != nil {
		return 0, f.reading
	}
	return bytes.NewReader(f.data).ReadAt(p, at)
}

func (f *faulty) Close() error { return nil }

// TestDamage: bytes that changed, were lost, or are of another place are
// never returned, and this is logged once.
func TestDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	want := records(rng, 200)
	for name, damage := range map[string]func(f *faulty){
		"a bit":        func(f *faulty) { f.data[rng.IntN(len(f.data))] ^= 1 << rng.IntN(8) },
		"the end":      func(f *faulty) { f.data = f.data[:len(f.data)-1-rng.IntN(1000)] },
		"all":          func(f *faulty) { f.data = nil },
		"zeros":        func(f *faulty) { clear(f.data) },
		"other places": func(f *faulty) { copy(f.data, f.data[groupBytes:]) },
		"the disk":     func(f *faulty) { f.reading = syscall.EIO },
	} {
		for range 5 {
			d, log := open(t, 1<<30)
			disk := &faulty{room: 1 << 30}
			d.create = func(string) (file, error) { return disk, nil }
			f := put(t, d, want)
			damage(disk)
			refused := 0
			for k := range want {
				err := f.Read([]uint32{uint32(k)}, func(_ int, record []byte) error {
					if !bytes.Equal(record, want[k]) {
						t.Fatalf("%s: record %d differs from the one written", name, k)
					}
					return nil
				})
				if errors.Is(err, ErrUnreadable) {
					refused++
				} else if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if _, _, problem := d.Usage(); refused == 0 || !strings.Contains(problem, "reading back") || strings.Count(log.String(), "level=WARN") != 1 {
				t.Errorf("%s: %d records refused, problem %q, log %s", name, refused, problem, log)
			}
			if err := d.Reserve(1); err == nil {
				t.Errorf("%s: the disk is written to at once", name)
			}
		}
	}
}

// TestFullDisk: a write that fails releases its room and is logged once; later the
// disk is tried again, and a new failure after it worked is logged again.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := open(t, 1<<30)
		room := writeBytes
		d.create = func(string) (file, error) { return &faulty{room: room, noRoom: syscall.ENOSPC}, nil }
		write := func() error {
			if err := d.Reserve(3 * writeBytes); err != nil {
				return err
			}
			f, err := d.Write(3*writeBytes, slices.Values(slices.Repeat([][]byte{make([]byte, 1000)}, 3*writeBytes/1004)))
			if err == nil {
				f.Close()
			}
			return err
		}
		for range 3 {
			if err := write(); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a full disk is %v", err)
			}
			if used, _, problem := d.Usage(); used != 0 || d.files != 0 || !strings.Contains(problem, "no space") {
				t.Errorf("%d bytes of %d files, problem %q", used, d.files, problem)
			}
			if err := write(); err != errOff {
				t.Errorf("the disk is tried again at once: %v", err)
			}
			time.Sleep(retryAfter)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), d.dir) || !strings.Contains(log.String(), "--scratch-dir") {
			t.Errorf("%d warnings: %s", n, log)
		}
		room = 1 << 30
		if err := write(); err != nil {
			t.Errorf("with room again: %v", err)
		}
		if _, _, problem := d.Usage(); problem != "" {
			t.Errorf("with room again, the problem is still %s", problem)
		}
		room = 0
		write()
		if n := strings.Count(log.String(), "level=WARN"); n != 2 {
			t.Errorf("%d warnings after the second time: %s", n, log)
		}
	})
}

// TestLimit: bytes and files are limited, and closing files makes room.
func TestLimit(t *testing.T) {
	d, log := open(t, 1000)
	d.most = 2
	f := put(t, d, [][]byte{make([]byte, 596)})
	if err := d.Reserve(401); err != ErrFull {
		t.Errorf("more than is left: %v", err)
	}
	if err := d.Reserve(1001); err == nil || err == ErrFull {
		t.Errorf("more than there is: %v", err)
	}
	g := put(t, d, [][]byte{make([]byte, 96)})
	if err := d.Reserve(1); err != ErrFull {
		t.Errorf("a file too many: %v", err)
	}
	f.Close()
	if err := d.Reserve(800); err != nil {
		t.Errorf("after a file was closed: %v", err)
	}
	if _, err := d.Write(800, slices.Values([][]byte{make([]byte, 897)})); err != ErrFull {
		t.Errorf("more than was reserved and is left: %v", err)
	}
	g.Close()
	if used, limit, problem := d.Usage(); used != 0 || limit != 1000 || d.files != 0 || problem != "" {
		t.Errorf("%d of %d bytes, %d files, problem %q", used, limit, d.files, problem)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "resources.loader_disk") {
		t.Errorf("%d warnings: %s", n, log)
	}
}

// TestNoFolder: an unusable folder is reported with the first file, and used once it is there.
func TestNoFolder(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(t.TempDir(), "missing"), plain} {
		var log bytes.Buffer
		d := Open(Options{Dir: dir, Limit: 1 << 20, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if _, _, problem := d.Usage(); problem != "" || log.Len() > 0 {
			t.Errorf("%s: nobody asked, problem %q, log %s", dir, problem, &log)
		}
		if err := d.Reserve(10); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Write(10, slices.Values([][]byte{{1}})); err == nil {
			t.Fatalf("%s: wrote there", dir)
		}
		if _, _, problem := d.Usage(); !strings.Contains(problem, dir) || strings.Count(log.String(), "level=WARN") != 1 {
			t.Errorf("%s: problem %q, log %s", dir, problem, &log)
		}
		if dir == plain {
			continue
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		d.retry = time.Time{}
		f, err := d.Write(10, slices.Values([][]byte{{1}}))
		if err != nil {
			t.Fatalf("%s is there: %v", dir, err)
		}
		f.Close()
		if _, _, problem := d.Usage(); problem != "" {
			t.Errorf("%s is there: problem %q", dir, problem)
		}
	}
}

// TestDefaultFolder: without a name, a folder in memory is skipped.
func TestDefaultFolder(t *testing.T) {
	if _, inMemory, err := space("/dev/shm"); err != nil || !inMemory {
		t.Skipf("/dev/shm on %s is not a file system in memory: %v", runtime.GOOS, err)
	}
	t.Setenv("TMPDIR", "/dev/shm")
	if dir, _, err := folder(""); dir == "/dev/shm" || err == nil && dir != "/var/tmp" {
		t.Errorf("took %q: %v", dir, err)
	}
	if dir, free, err := folder("/dev/shm"); dir != "/dev/shm" || free <= 0 || err != nil {
		t.Errorf("asked for by name: %q with %d bytes: %v", dir, free, err)
	}
}

func TestOff(t *testing.T) {
	d, log := open(t, 0)
	if err := d.Reserve(1); err == nil || err == ErrFull || log.Len() > 0 {
		t.Errorf("a disk that is turned off: %v, log %s", err, log)
	}
}

// TestCloseWhileRead: reading a file that is being closed gives its bytes or
// ErrUnreadable, and does not mark the disk as failed.
func TestCloseWhileRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	d, log := open(t, 1<<30)
	for range 20 {
		want := records(rng, 300)
		f := put(t, d, want)
		var readers sync.WaitGroup
		for r := range 4 {
			readers.Go(func() {
				for k := r; ; k = (k + 1) % len(want) {
					err := f.Read([]uint32{uint32(k)}, func(_ int, record []byte) error {
						if !bytes.Equal(record, want[k]) {
							return io.ErrUnexpectedEOF
						}
						return nil
					})
					if err != nil {
						if !errors.Is(err, ErrUnreadable) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		runtime.Gosched()
		f.Close()
		readers.Wait()
	}
	if _, _, problem := d.Usage(); problem != "" || log.Len() > 0 {
		t.Errorf("problem %q, log %s", problem, log)
	}
}

// TestWriter: a file written record by record equals one written at once; room
// is reserved as it grows, and Discard leaves nothing.
func TestWriter(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	d, _ := open(t, 4<<20)
	all := records(rng, 500)
	begin := func() *Writer {
		t.Helper()
		if err := d.Reserve(0); err != nil {
			t.Fatal(err)
		}
		w, err := d.Create(0)
		if err != nil {
			t.Fatal(err)
		}
		for i, record := range all {
			if int(w.Len()) != i {
				t.Fatalf("the next record is %d, want %d", w.Len(), i)
			}
			if err := errors.Join(w.Reserve(int64(len(record)+prefix)), w.Add(record)); err != nil {
				t.Fatal(err)
			}
		}
		return w
	}
	f, err := begin().Finish()
	if err != nil {
		t.Fatal(err)
	}
	for k := range all {
		if err := f.Read([]uint32{uint32(k)}, func(_ int, record []byte) error {
			if !bytes.Equal(record, all[k]) {
				t.Errorf("record %d differs from the one written", k)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if used, _, _ := d.Usage(); used != f.Size() {
		t.Errorf("%d bytes are used by a file of %d", used, f.Size())
	}
	f.Close()
	w := begin()
	if err := w.Reserve(3 << 20); err != nil {
		t.Errorf("there is room: %v", err)
	}
	if err := d.Reserve(2 << 20); !errors.Is(err, ErrFull) {
		t.Errorf("a reservation was granted twice: %v", err)
	}
	if err := w.Reserve(1 << 30); err == nil || errors.Is(err, ErrFull) {
		t.Errorf("more than the limit: %v; closing files would not help", err)
	}
	w.Discard()
	if used, _, _ := d.Usage(); used != 0 || d.files != 0 {
		t.Errorf("%d bytes and %d files are left", used, d.files)
	}
}

// TestWriterFails: if the disk fails during a file, or at its end, nothing of the file
// stays.
func TestWriterFails(t *testing.T) {
	for _, room := range []int{0, writeBytes, 2 * writeBytes} {
		d, log := open(t, 1<<30)
		d.create = func(string) (file, error) { return &faulty{room: room, noRoom: syscall.ENOSPC}, nil }
		if err := d.Reserve(0); err != nil {
			t.Fatal(err)
		}
		w, err := d.Create(0)
		for i := 0; err == nil && i < 5*writeBytes/2000; i++ { // two and a half writes
			err = w.Add(make([]byte, 1000))
		}
		if err == nil {
			_, err = w.Finish()
		} else {
			w.Discard()
		}
		if used, _, problem := d.Usage(); !errors.Is(err, syscall.ENOSPC) || used != 0 || d.files != 0 || problem == "" {
			t.Errorf("room for %d: %v; %d bytes and %d files are left; problem %q\n%s", room, err, used, d.files, problem, log)
		}
	}
}
