// Package ffmpeg has FFmpeg make sounds and pictures of files that are not decoded in this
// process: one child process for each file, with limits.
//
// It owns the child's arguments, its input and output, and its end. It never looks for a
// file by itself: the input is in memory, and the child may open nothing else. Playlists
// and every protocol but that of files are switched off.
//
// # Determinism
//
// The child has one thread and uses no instructions that only some processors have
// (-cpuflags 0), so that what it makes is a function of the input and of the program. What
// the program says of its version and how it was built is Tool.Digest, a part of a job's
// identity: another build may round in another way.
//
// # Failures
//
// What FFmpeg refuses, and output beyond the limit, are of class fault.User and of the
// file alone. A child that takes too long, or too much memory, is killed: that depends on
// the machine, and is of class fault.Lost. So is one that outgrows its share of a memory.Room, and one that
// cannot begin or go on for a limit of the machine, such as that of open files.
package ffmpeg

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/memory"
)

// Tool is an FFmpeg that was found. It is safe for concurrent use.
type Tool struct {
	Path    string
	Prober  string   // ffprobe; "" if it was not looked for
	Version string   // ffmpeg version 5.1.9 ...
	Digest  [32]byte // of all that it says of its build, and of revision
}

// Limits bound one child.
type Limits struct {
	Output int64         // bytes
	Pixels int           // of a picture of the input
	Memory int64         // bytes
	Time   time.Duration // wall clock
	// Lease is for the memory of the child, its input and its output. It grows with them; a child for which it
	// does not grow is killed, with ErrNoRoom. Nil: there is no limit.
	Lease *memory.Lease
	// Beside is the memory that the caller takes for what it makes of the output, part of the lease; nil: none. It is
	// called while the child runs.
	Beside func() int64
}

// beside adds memory to what is taken beside a child.
func (l Limits) beside(more func() int64) Limits {
	before := l.Beside
	l.Beside = func() int64 {
		n := more()
		if before != nil {
			n += before()
		}
		return n
	}
	return l
}

// ErrNoRoom says that a child took more than its lease, and others take the rest: the file may be tried again
// with a larger one. Its class is fault.Lost.
var ErrNoRoom = fault.Lostf("there is no room for the memory of ffmpeg beside others")

// Find looks for ffmpeg in PATH, and asks for its version.
func Find(ctx context.Context) (*Tool, error) {
	path, err := exec.LookPath("ffmpeg")
	if err != nil {
		return nil, fault.Userf("ffmpeg is not in PATH: install it (package ffmpeg of Debian and Ubuntu), the same version on every machine that runs loaders")
	}
	out, err := exec.CommandContext(ctx, path, "-version").Output()
	if err != nil {
		return nil, fault.Lostf("asking %s for its version: %w", path, err)
	}
	first, _, _ := strings.Cut(string(out), " Copyright")
	return &Tool{Path: path, Version: first, Digest: sha256.Sum256(append(out, revision))}, nil
}

// revision is raised when this package takes other files, or makes other bytes of them: 2 refuses files that are cut off.
const revision = 2

// maxBlock is the most memory that FFmpeg takes in one piece. It is no part of Limits: what
// goes beyond it is refused on every machine.
const maxBlock = 1 << 30

// containers are the formats that are opened: those that hold their data themselves.
const containers = "aac,ac3,aiff,amr,asf,au,avi,caf,eac3,flac,flv,gif,matroska,mov,mp3,mpeg,mpegts,mpegvideo,ogg,w64,wav,wv"

// Sound returns the first sound of a file as WAV of 32 bits, with its own rate and channels.
// What is beyond seconds is cut off.
func (t *Tool) Sound(ctx context.Context, data []byte, seconds int, l Limits) ([]byte, error) {
	if err := whole(data); err != nil {
		return nil, err
	}
	out := &limited{most: l.Output}
	full := func() bool { // up to a second: a sound may begin later than its file
		const rate = 28 // of bytes, in the header
		return len(out.data) >= rate+4 && int64(len(out.data)) >= int64(seconds-1)*int64(binary.LittleEndian.Uint32(out.data[rate:]))
	}
	err := t.convert(ctx, data, nil, []string{"-map", "0:a:0", "-t", fmt.Sprint(seconds), "-c:a", "pcm_s32le", "-f", "wav"}, out, full, l.beside(out.taken.Load))
	return out.data, err
}

// Frames returns pictures of the first video of a file as BMP of 24 bits, in their order: the
// key frames, or each frame whose number is a multiple of every if that is above 0; at most most of them.
func (t *Tool) Frames(ctx context.Context, data []byte, every, most int, l Limits) (frames [][]byte, err error) {
	if err := whole(data); err != nil {
		return nil, err
	}
	choice := "select=eq(pict_type\\,I)"
	if every > 0 {
		choice = fmt.Sprintf("select=not(mod(n\\,%d))", every)
	}
	var given atomic.Int64
	full := func() bool { return len(frames) == most }
	err = t.pictures(ctx, data, nil, []string{"-vf", choice + ",format=bgr24", "-frames:v", fmt.Sprint(most)}, full, l.beside(given.Load), func(bmp []byte) error {
		if given.Add(int64(len(bmp))) > l.Output {
			return fault.Userf("ffmpeg gave more than %d bytes", l.Output)
		}
		frames = append(frames, bytes.Clone(bmp))
		return nil
	})
	if err == nil && len(frames) == 0 {
		err = fault.Userf("the video has no such picture: it is empty or damaged")
	}
	return frames, err
}

// pictures has a child make pictures of the first video, as BMP of 24 bits, and calls each for every one of
// them; before and options are arguments before and behind the input, full is that of convert.
func (t *Tool) pictures(ctx context.Context, data []byte, before, options []string, full func() bool, l Limits, each func(bmp []byte) error) error {
	options = append([]string{"-map", "0:v:0", "-sws_flags", "bitexact+accurate_rnd+full_chroma_int", "-vsync", "passthrough"}, options...)
	out := &bitmaps{most: 4*l.Pixels + 4096, each: each} // rows are padded to 4 bytes
	if err := t.convert(ctx, data, before, append(options, "-c:v", "bmp", "-f", "image2pipe"), out, full, l.beside(out.taken.Load)); err != nil {
		return err
	}
	if len(out.rest) > 0 {
		return fmt.Errorf("ffmpeg gave %d bytes that are not a picture", len(out.rest))
	}
	return nil
}

// bitmaps is a Writer that takes BMP files, one behind the other.
type bitmaps struct {
	rest  []byte // of a file that is not whole yet
	most  int
	each  func(bmp []byte) error
	taken atomic.Int64 // memory of rest
}

func (w *bitmaps) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	w.taken.Store(int64(cap(w.rest)))
	from := 0
	for len(w.rest)-from >= 6 {
		b := w.rest[from:]
		size := int(b[2]) | int(b[3])<<8 | int(b[4])<<16 | int(b[5])<<24
		if b[0] != 'B' || b[1] != 'M' || size < 54 || size > w.most {
			return 0, fmt.Errorf("ffmpeg gave %d bytes that are not a picture", len(b))
		}
		if len(b) < size {
			break
		}
		if err := w.each(b[:size:size]); err != nil {
			return 0, err
		}
		from += size
	}
	w.rest = w.rest[:copy(w.rest, w.rest[from:])]
	return len(p), nil
}

// input are the arguments of either program before the input.
func (t *Tool) input(l Limits) []string {
	return []string{
		"-cpuflags", "0", "-max_alloc", fmt.Sprint(maxBlock), "-threads", "1",
		"-protocol_whitelist", "file", "-format_whitelist", containers, "-max_pixels", fmt.Sprint(l.Pixels),
	}
}

// convert has FFmpeg make something of data; before and options are arguments before and behind the input. full
// says whether the output ended by an option: what comes behind in the file is not looked at then, and how far
// FFmpeg reads on is chance.
func (t *Tool) convert(ctx context.Context, data []byte, before, options []string, out io.Writer, full func() bool, l Limits) error {
	args := append([]string{"-nostdin", "-hide_banner", "-v", "error", "-xerror", "-filter_threads", "1"}, t.input(l)...)
	args = append(append(args, before...), "-i", "file:"+inputPath)
	said := &limited{most: maxWords, drop: true}
	err := t.run(ctx, t.Path, data, append(append(args, options...), "-bitexact", "-threads", "1", "pipe:1"), out, said, l)
	if err == nil && !full() {
		err = early(said.data)
	}
	return err
}

// maxWords is what is kept of what a child says.
const maxWords = 64 << 10

// run has a program make its output of data. An error of out ends the child, and is returned.
func (t *Tool) run(ctx context.Context, program string, data []byte, args []string, out io.Writer, said *limited, l Limits) error {
	in, err := inMemory(data)
	if err != nil {
		return usedUp("making the input of ffmpeg", err)
	}
	defer in.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, l.Time, fault.Lostf("ffmpeg took longer than %v", l.Time))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.ExtraFiles = &ending{out, end}, said, []string{"LC_ALL=C"}, []*os.File{in}
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return usedUp("starting ffmpeg", err)
	}
	expendable(cmd.Process.Pid)
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if why := watch(cmd.Process.Pid, l.beside(func() int64 { return int64(len(data)) }), done); why != nil {
			end(why)
		}
	}()
	err = cmd.Wait()
	close(done)
	<-watched
	return failure(ctx, err, said.data)
}

// failure says why a child failed, nil if it did not.
func failure(ctx context.Context, err error, said []byte) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	exit, stopped := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return nil
	case stopped && exit.Exited():
		if why := lacking(said, memoryBounded()); why != "" {
			return fault.Lostf("ffmpeg: %s", why)
		}
		return fault.Userf("ffmpeg refuses it: %s", words(said))
	}
	return fault.Lostf("ffmpeg: %w: %s", err, words(said))
}

// places are numbers that differ from run to run.
var places = regexp.MustCompile(` @ 0x[0-9a-f]+`)

// words are the first line of what a child said.
func words(said []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	line = strings.ToValidUTF8(places.ReplaceAllString(line, ""), "?")
	return line[:min(len(line), 300)]
}

// limited takes bytes up to a limit.
type limited struct {
	data  []byte
	most  int64
	drop  bool         // what is more, without an error
	taken atomic.Int64 // memory of data, with what it was copied from
}

func (w *limited) Write(p []byte) (int, error) {
	if int64(len(w.data)+len(p)) <= w.most {
		before := cap(w.data)
		if w.data = append(w.data, p...); cap(w.data) != before {
			w.taken.Store(int64(before + cap(w.data)))
		}
		return len(p), nil
	}
	if w.drop {
		return len(p), nil
	}
	return 0, fault.Userf("ffmpeg gave more than %d bytes", w.most)
}

// ending ends a child when what it gives is refused.
type ending struct {
	to  io.Writer
	end func(error)
}

func (w *ending) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err != nil {
		w.end(err)
	}
	return n, err
}

// watch looks at the memory of a process until done, and returns why it has to end: it takes more than its limit,
// or, with what is taken beside it, than it gets.
func watch(pid int, l Limits, done <-chan struct{}) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	had := int64(0)
	defer func() { memory.Outside(-had) }()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
			resident, own := memoryOf(pid)
			memory.Outside(own - had)
			had = own
			if resident > l.Memory {
				return fault.Lostf("ffmpeg took more than %d MiB of memory", l.Memory>>20)
			}
			if !l.Lease.Grow(own + l.Beside()) {
				return ErrNoRoom
			}
		}
	}
}

// spool writes data to a file and goes back to its beginning.
func spool(file *os.File, data []byte) (*os.File, error) {
	_, err := io.Copy(file, bytes.NewReader(data))
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
