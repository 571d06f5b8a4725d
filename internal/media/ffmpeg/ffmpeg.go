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
// the machine, and is of class fault.Lost. So is one that outgrows its share of a memory.Room.
package ffmpeg

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	Version string   // ffmpeg version 5.1.9 ...
	Digest  [32]byte // of all that it says of its build
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
	return &Tool{Path: path, Version: first, Digest: sha256.Sum256(out)}, nil
}

// maxBlock is the most memory that FFmpeg takes in one piece. It is no part of Limits: what
// goes beyond it is refused on every machine.
const maxBlock = 1 << 30

// containers are the formats that are opened: those that hold their data themselves.
const containers = "aac,ac3,aiff,amr,asf,au,avi,caf,eac3,flac,flv,gif,matroska,mov,mp3,mpeg,mpegts,mpegvideo,ogg,w64,wav,wv"

// Sound returns the first sound of a file as WAV of 32 bits, with its own rate and channels.
// What is beyond seconds is cut off.
func (t *Tool) Sound(ctx context.Context, data []byte, seconds int, l Limits) ([]byte, error) {
	return t.run(ctx, data, []string{"-map", "0:a:0", "-t", fmt.Sprint(seconds), "-c:a", "pcm_s32le", "-f", "wav"}, l)
}

// Frames returns pictures of the first video of a file as BMP of 24 bits, in their order: the
// key frames, or each frame whose number is a multiple of every if that is above 0; at most most of them.
func (t *Tool) Frames(ctx context.Context, data []byte, every, most int, l Limits) (frames [][]byte, err error) {
	choice := "select=eq(pict_type\\,I)"
	if every > 0 {
		choice = fmt.Sprintf("select=not(mod(n\\,%d))", every)
	}
	out, err := t.run(ctx, data, []string{
		"-map", "0:v:0", "-vf", choice + ",format=bgr24", "-sws_flags", "bitexact+accurate_rnd+full_chroma_int", "-vsync", "passthrough",
		"-frames:v", fmt.Sprint(most), "-c:v", "bmp", "-f", "image2pipe",
	}, l)
	for len(out) > 0 && err == nil {
		size := 0
		if len(out) >= 6 && out[0] == 'B' && out[1] == 'M' {
			size = int(out[2]) | int(out[3])<<8 | int(out[4])<<16 | int(out[5])<<24
		}
		if size < 54 || size > len(out) {
			return nil, fmt.Errorf("ffmpeg gave %d bytes that are no picture", len(out))
		}
		frames, out = append(frames, out[:size:size]), out[size:]
	}
	if err == nil && len(frames) == 0 {
		err = fault.Userf("the video has no such picture: it is empty or damaged")
	}
	return frames, err
}

// run has a child make its output of data.
func (t *Tool) run(ctx context.Context, data []byte, args []string, l Limits) ([]byte, error) {
	in, err := inMemory(data)
	if err != nil {
		return nil, fault.Lostf("making the input of ffmpeg: %w", err)
	}
	defer in.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, l.Time, fault.Lostf("ffmpeg took longer than %v", l.Time))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	args = append([]string{
		"-nostdin", "-hide_banner", "-v", "error", "-xerror", "-cpuflags", "0", "-max_alloc", fmt.Sprint(maxBlock), "-threads", "1", "-filter_threads", "1",
		"-protocol_whitelist", "file", "-format_whitelist", containers, "-max_pixels", fmt.Sprint(l.Pixels), "-i", "file:" + inputPath,
	}, args...)
	cmd := exec.CommandContext(ctx, t.Path, append(args, "-bitexact", "-threads", "1", "pipe:1")...)
	out, said := &limited{most: l.Output, over: func() { end(fault.Userf("ffmpeg gave more than %d bytes", l.Output)) }}, &limited{most: 4096}
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.ExtraFiles = out, said, []string{"LC_ALL=C"}, []*os.File{in}
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, fault.Lostf("starting ffmpeg: %w", err)
	}
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if why := watch(cmd.Process.Pid, l, func() int64 { return int64(len(data)) + out.taken.Load() }, done); why != nil {
			end(why)
		}
	}()
	err = cmd.Wait()
	close(done)
	<-watched
	return out.data, failure(ctx, err, said.data)
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
	over  func()       // called when there are more; nil: the rest is dropped
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
	if w.over == nil {
		return len(p), nil
	}
	w.over()
	return 0, io.ErrShortBuffer
}

// watch looks at the memory of a process until done, and returns why it has to end: it takes more than its limit,
// or, with what is taken beside it, than it gets.
func watch(pid int, l Limits, beside func() int64, done <-chan struct{}) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
			resident, own := memoryOf(pid)
			if resident > l.Memory {
				return fault.Lostf("ffmpeg took more than %d MiB of memory", l.Memory>>20)
			}
			if !l.Lease.Grow(own + beside()) {
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
