package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/millrace-data/millrace/internal/fault"
)

// Directory is a Store in a folder of a file system that several machines may share: an
// object is a file, which is written under another name, synced, and then given its own.
// A version is its size and the time of its last write. A call that the file system does not
// come back from is given up (see within).
type Directory struct {
	root  string
	calls *calls
}

var _ Store = Directory{}

// Files and folders are their user's, as those of a log are.
const (
	folderMode = 0o700
	fileMode   = 0o600
)

// NewDirectory returns the store in a folder, which it makes.
func NewDirectory(root string) (Directory, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return Directory{}, fault.Userf("the folder %s: %w", root, err)
	}
	d := Directory{abs, &calls{limit: defaultSilence}}
	_, err = within(context.Background(), d.calls, func() (none struct{}, err error) { return none, makeFolder(abs) })
	return d, wrap(d, "making the folder of", ".", fileError(err, "write"))
}

// String implements Store.
func (d Directory) String() string { return "file://" + d.root }

func (d Directory) path(key string) string { return filepath.Join(d.root, filepath.FromSlash(key)) }

// Get implements Store.
func (d Directory) Get(ctx context.Context, key string, r Range) ([]byte, error) {
	err := checkCall(ctx, key)
	var data []byte
	if err == nil {
		data, err = within(ctx, d.calls, func() ([]byte, error) { return readRange(d.path(key), r) })
	}
	return data, wrap(d, "reading", key, fileError(err, "read"))
}

func readRange(path string, r Range) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fs.ErrNotExist
	case r.Version != "" && r.Version != versionOf(info):
		return nil, fault.As(fault.User, ErrChanged)
	}
	from, to := r.clip(info.Size())
	data := make([]byte, to-from)
	_, err = io.ReadFull(io.NewSectionReader(f, from, to-from), data)
	return data, err
}

func versionOf(info fs.FileInfo) string {
	return fmt.Sprintf("%d-%d", info.Size(), info.ModTime().UnixNano())
}

// Stat implements Store.
func (d Directory) Stat(ctx context.Context, key string) (Info, error) {
	err := checkCall(ctx, key)
	if err != nil {
		return Info{}, wrap(d, "looking up", key, err)
	}
	info, err := within(ctx, d.calls, func() (fs.FileInfo, error) { return os.Stat(d.path(key)) })
	if err == nil && info.IsDir() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Info{}, wrap(d, "looking up", key, fileError(err, "read"))
	}
	return Info{key, info.Size(), versionOf(info)}, nil
}

// Put implements Store.
func (d Directory) Put(ctx context.Context, key string, data []byte) error {
	err := checkCall(ctx, key)
	if err == nil {
		err = d.write(ctx, key, data, os.Rename)
	}
	return wrap(d, "writing", key, fileError(err, "write"))
}

// PutIfAbsent implements Store: a name is given by a link, which is refused if it is taken.
func (d Directory) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	err := checkCall(ctx, key)
	if err == nil {
		err = d.write(ctx, key, data, os.Link)
	}
	return wrap(d, "creating", key, fileError(err, "write"))
}

// write writes an object, which name gives its name.
func (d Directory) write(ctx context.Context, key string, data []byte, name func(from, to string) error) error {
	path, data := d.path(key), bytes.Clone(data) // a call that was given up may be at it after the caller has it back
	_, err := within(ctx, d.calls, func() (none struct{}, err error) { return none, writeFile(path, data, name) })
	return err
}

// writeFile makes a file durable under another name, and names it by name.
func writeFile(path string, data []byte, name func(from, to string) error) (err error) {
	dir := filepath.Dir(path)
	if err := makeFolder(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, temporary+"*")
	if err != nil {
		return err
	}
	defer func() {
		if removed := os.Remove(f.Name()); err == nil && !errors.Is(removed, fs.ErrNotExist) {
			err = removed // a rename took it away
		}
	}()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := name(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// makeFolder makes a folder and those above it. They stay after a crash.
func makeFolder(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(filepath.Dir(dir))
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// List implements Store.
func (d Directory) List(ctx context.Context, prefix, after string) ([]Info, error) {
	all, err := within(ctx, d.calls, func() ([]Info, error) { return d.list(ctx, prefix, after) })
	return all, wrap(d, "listing", prefix, fileError(err, "read"))
}

func (d Directory) list(ctx context.Context, prefix, after string) (all []Info, err error) {
	folder := d.root
	if at := strings.LastIndexByte(prefix, '/'); at > 0 {
		folder = d.path(prefix[:at])
	}
	err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // nothing is below it, or it was removed meanwhile
		}
		if err = errors.Join(err, ctx.Err()); err != nil || e.IsDir() || strings.HasPrefix(e.Name(), temporary) {
			return err
		}
		rel, err := filepath.Rel(d.root, path)
		key := filepath.ToSlash(rel)
		if err != nil || !strings.HasPrefix(key, prefix) || key <= after {
			return err
		}
		info, err := e.Info()
		if err == nil {
			all = append(all, Info{key, info.Size(), versionOf(info)})
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Key, b.Key) }) // by key, not by folder
	return all, err
}

// Delete implements Store.
func (d Directory) Delete(ctx context.Context, key string) error {
	err := checkCall(ctx, key)
	if err == nil {
		_, err = within(ctx, d.calls, func() (none struct{}, err error) { return none, os.Remove(d.path(key)) })
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return wrap(d, "removing", key, fileError(err, "write"))
}

// fileError gives an error of the operating system its class: of one who wanted to read or to write.
func fileError(err error, to string) error {
	switch {
	case err == nil, fault.ClassOf(err) != fault.Bug:
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fault.Userf("%w: %w", ErrNotExist, err)
	case errors.Is(err, fs.ErrExist):
		return fault.As(fault.User, ErrExists)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault.Userf("%w: %w: give this user the right to %s the folder", ErrDenied, err, to)
	}
	return fault.As(fault.Lost, err)
}
