package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// slowness is how many times as long as a Get the lease may stay as it is beyond leaseTime: a writer renews it by a
// Get and a Put, with a List now and then.
const slowness = 4

// sight is what a look at a mirror shows. It does not stay as it is while somebody writes.
type sight struct {
	lease string // "" if there is none
	head  uint64 // the slot that comes next
	log   bool   // there is a log
}

// watcher finds out, by looks at a mirror, whether somebody writes it.
type watcher struct {
	store object.Store
	tried *tried
	began time.Time     // when the last look began
	seen  sight         // what it showed
	since time.Time     // when the first look that showed the same was over; zero before it
	still time.Duration // for how long nothing has changed, at least
	slow  time.Duration // the longest Get of the looks that showed the same
}

// tried is a store that knows when the last attempt at a Get began.
type tried struct {
	object.Store
	began time.Time
}

func (t *tried) Get(ctx context.Context, key string, r object.Range) ([]byte, error) {
	t.began = time.Now()
	return t.Store.Get(ctx, key, r)
}

func newWatcher(s object.Store) *watcher {
	t := &tried{}
	return &watcher{store: beneath(s, &t.Store, t), tried: t}
}

// beneath puts a store, which calls the one that inner is set to, before s, so that it sees each attempt where s repeats them.
func beneath(s object.Store, inner *object.Store, outer object.Store) object.Store {
	r, ok := s.(object.Retry)
	if !ok {
		*inner = s
		return outer
	}
	*inner, r.Store = r.Store, outer
	return r
}

// look says whether it sees something else than the look before. After an error the next one is the first again, as
// a writer could not renew its lease then.
func (w *watcher) look(ctx context.Context) (changed bool, err error) {
	defer func() {
		if err != nil {
			w.since, w.still = time.Time{}, 0
		}
	}()
	w.began = time.Now()
	data, err := w.store.Get(ctx, lease, object.Whole)
	if err != nil && !errors.Is(err, object.ErrNotExist) {
		return false, err
	}
	took := time.Since(w.tried.began)
	if time.Since(w.began) > leaseTime+slowness*took {
		w.since = time.Time{} // attempts before failed: as after an error
	}
	c, err := list(ctx, w.store)
	if err != nil {
		return false, err
	}
	now := sight{string(data), c.end(), !c.empty()}
	if first := w.since.IsZero(); first || now != w.seen {
		w.seen, w.since, w.still, w.slow = now, time.Now(), 0, took
		return !first, nil
	}
	w.still, w.slow = w.began.Sub(w.since), max(w.slow, took)
	return false, nil
}

// free says whether nobody writes, as far as the looks show: who did gave the lease back, with the slot that still
// comes next (versions before did not say the slot), or has not renewed it for longer than that takes.
func (w *watcher) free() bool {
	return w.seen.lease == leaseFree || w.seen.lease == fmt.Sprintf("%s %d", leaseFree, w.seen.head) ||
		w.still > leaseTime+slowness*w.slow
}

// pause waits until the next look is due.
func (w *watcher) pause(ctx context.Context) error {
	select {
	case <-time.After(time.Until(w.began.Add(leaseEvery))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CheckFree refuses a mirror that somebody writes now, from another folder or machine, with an error of class
// fault.User: its lease is being renewed. It changes nothing, so that it comes before Open, which brings the folder to
// where the mirror stands. It takes leaseTime or longer where a lease was not given back, unless its writer had this
// folder: that one is gone, or Open finds the folder locked. It returns the slot that came next, as AwaitFree does.
func CheckFree(ctx context.Context, opts Options) (head uint64, err error) {
	w := newWatcher(opts.Store)
	for {
		changed, err := w.look(ctx)
		if err != nil {
			return 0, err
		}
		if w.seen.lease == "" || w.free() || opts.signed(w.seen.lease) {
			return w.seen.head, nil
		}
		if changed {
			return 0, fault.Userf("the mirror %s is being written by another planner, which renews its lease: stop that one first, or have this one stand by (millrace planner --standby), so that it takes over when the other one is gone; give another job a mirror of its own", opts.Store)
		}
		if err := w.pause(ctx); err != nil {
			return 0, err
		}
	}
}

// AwaitFree waits until the mirror has a log whose writer does not renew its lease any more and
// writes nothing, or ctx ends. It returns the slot that came next: who finds another one there
// afterwards has to wait again, as somebody writes. Errors of the store are waited out, and so is a log that
// Log.Accept does not take: trouble, which may be nil, is called with the first of those in a row, and with nil when
// there is none any more.
func AwaitFree(ctx context.Context, opts Options, trouble func(error)) (head uint64, err error) {
	w, of, troubled := newWatcher(opts.Store), owner{opts: &opts}, false
	for {
		_, err := w.look(ctx)
		if err == nil {
			err = of.check(ctx, w.seen)
		}
		if failed := err != nil; failed != troubled && ctx.Err() == nil {
			if troubled = failed; trouble != nil {
				trouble(err)
			}
		}
		if err == nil && w.seen.log && w.free() {
			return w.seen.head, nil
		}
		if err := w.pause(ctx); err != nil {
			return 0, err
		}
	}
}

// owner knows whether the log that is in a mirror is the caller's. A log stays its job's: it is read once.
type owner struct {
	opts  *Options
	tried bool
	head  uint64 // the slot that came next then
	known bool
	err   error // of Options.accept
}

// check returns Options.accept's error for the log that is seen; nil while it has no step.
func (o *owner) check(ctx context.Context, seen sight) error {
	if !seen.log {
		*o = owner{opts: o.opts}
	}
	if o.known || o.tried && o.head == seen.head || !seen.log || o.opts.Log.Accept == nil {
		return o.err
	}
	frame, err := logFrame(ctx, o.opts.Store)
	if unread(err) {
		return err
	}
	o.tried, o.head = true, seen.head
	o.known, o.err = frame != nil, o.opts.accept(frame) // what is damaged, Resume says
	return o.err
}

// signature is a file in the folder of a log: the number of who wrote the mirror from there last, and where the folder
// was. Only a writer leaves it, so that a folder which was filled from the mirror has none, and that of a copy is about
// another folder. A file system that is not the operating system's, as tests have, gets none.
const signature = "WRITER"

// sign leaves the number of this writer in the folder. If that fails, the next start there watches the lease.
func (l *Log) sign() {
	if place := folder(l.opts.Dir); l.opts.Log.FS == nil && place != "" {
		_ = os.WriteFile(filepath.Join(l.opts.Dir, signature), fmt.Appendf(nil, "%x %s", l.writer, place), 0o600)
	}
}

// signed says whether the writer that has a lease wrote from this folder.
func (o *Options) signed(held string) bool {
	if o.Log.FS != nil {
		return false
	}
	text, err := os.ReadFile(filepath.Join(o.Dir, signature))
	writer, place, ok := strings.Cut(string(text), " ")
	return err == nil && ok && writer != "" && place == folder(o.Dir) && strings.HasPrefix(held, writer+" ")
}

// folder tells a folder from its copies: by its machine, device and number there. "" if that is not known.
func folder(dir string) string {
	info, err := os.Stat(dir)
	host, hostErr := os.Hostname()
	if errors.Join(err, hostErr) != nil {
		return ""
	}
	at, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d %d %s", at.Dev, at.Ino, host)
}
