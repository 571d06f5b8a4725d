package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/millrace-data/millrace/internal/fault"
)

// Local reads the file system of this machine. It takes paths, absolute or
// relative to the process, and file:// URIs. Links are followed, to files and
// to directories; a directory that contains itself through a link is an error.
// The zero value is ready, has no state and is safe for concurrent use.
type Local struct{}

var _ Store = Local{}

// List implements Store. An existing file of exactly this name has precedence, so that
// a file called a[1].txt needs no escapes. Hidden files and directories (names
// that begin with . or _, such as _SUCCESS) are left out of directories and
// globs, unless a component of the pattern begins with . or _.
func (Local) List(ctx context.Context, uri string) ([]Object, error) {
	path, err := localPath(uri)
	if err != nil {
		return nil, err
	}
	var names []string
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		names, err = walk(ctx, path, nil)
	case err == nil:
		names = []string{path}
	case errors.Is(err, fs.ErrNotExist) && isGlob(path):
		names, err = glob(path)
	}
	if err != nil {
		return nil, localError("listing "+uri, err)
	}
	if len(names) == 0 {
		return nil, noFiles(uri)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	objects := make([]Object, len(names))
	for i, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("listing %s: %w", uri, err)
		}
		if objects[i], err = statLocal(name); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// Stat implements Store.
func (Local) Stat(ctx context.Context, uri string) (Object, error) {
	if err := ctx.Err(); err != nil {
		return Object{}, fmt.Errorf("looking up %s: %w", uri, err)
	}
	path, err := localPath(uri)
	if err != nil {
		return Object{}, err
	}
	return statLocal(path)
}

// Open implements Store. A handle whose file becomes shorter while it is open
// reports that as ErrChanged; bytes appended after Open are not seen.
func (Local) Open(ctx context.Context, obj Object) (Handle, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("opening %s: %w", obj.URI, err)
	}
	path, err := localPath(obj.URI)
	if err != nil {
		return nil, err
	}
	// Stat precedes the open: opening a pipe would wait for a writer.
	if _, err := statLocal(path); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, localError("opening "+obj.URI, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(localError("opening "+obj.URI, err), file.Close())
	}
	if err := checkVersion(obj, localObject(path, info)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &localHandle{ctx: ctx, file: file, uri: obj.URI, size: info.Size()}, nil
}

type localHandle struct {
	ctx  context.Context
	file *os.File
	uri  string
	size int64 // as it was at Open
}

func (h *localHandle) ReadAt(p []byte, off int64) (int, error) {
	if err := h.ctx.Err(); err != nil {
		return 0, fmt.Errorf("reading %s: %w", h.uri, err)
	}
	want, eof := clip(p, off, h.size)
	n, err := h.file.ReadAt(want, off)
	switch {
	case n == len(want) && eof:
		return n, io.EOF
	case n == len(want):
		return n, nil
	case err == io.EOF:
		return n, fault.Userf("reading %s: the file ends at byte %d but had %d when it was opened: %w; keep data files unchanged while a job runs",
			h.uri, off+int64(n), h.size, ErrChanged)
	}
	return n, localError(fmt.Sprintf("reading %s at byte %d", h.uri, off), err)
}

func (h *localHandle) Close() error { return h.file.Close() }

// clip cuts p to the bytes of a file of size bytes from off on, and reports whether
// that is less than requested.
func clip(p []byte, off, size int64) (want []byte, eof bool) {
	if rest := max(size-off, 0); off >= 0 && int64(len(p)) > rest {
		return p[:rest], true
	}
	return p, false
}

func checkVersion(obj, now Object) error {
	if obj.Version == "" || obj.Version == now.Version {
		return nil
	}
	what := "it was written again (same size)"
	if obj.Size != now.Size {
		what = fmt.Sprintf("its size was %d bytes and is %d", obj.Size, now.Size)
	}
	return fault.Userf("opening %s: %w: %s; restore it, or start the job again on the new data", obj.URI, ErrChanged, what)
}

func statLocal(path string) (Object, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Object{}, localError("looking up "+path, err)
	}
	if !info.Mode().IsRegular() {
		return Object{}, fault.Userf("looking up %s: it is a %s, not a file; name a file, or list the directory", path, kindOf(info.Mode()))
	}
	return localObject(path, info), nil
}

func localObject(path string, info fs.FileInfo) Object {
	version := fmt.Sprintf("%d-%d", info.Size(), info.ModTime().UnixNano())
	return Object{URI: path, Size: info.Size(), Version: version}
}

func kindOf(mode fs.FileMode) string {
	if mode.IsDir() {
		return "directory"
	}
	return "device, pipe or socket"
}

// localPath turns a path or file URI into an absolute path.
func localPath(uri string) (string, error) {
	path := uri
	if rest, ok := strings.CutPrefix(uri, "file://"); ok {
		rest = strings.TrimPrefix(rest, "localhost")
		unescaped, err := url.PathUnescape(rest)
		if err != nil {
			return "", fault.Userf("%s: not a file URI: %w (valid: file:///data/c4.jsonl, or the plain path)", uri, err)
		}
		if !strings.HasPrefix(unescaped, "/") {
			return "", fault.Userf("%s: a file URI holds an absolute path (valid: file:///data/c4.jsonl, or the plain path)", uri)
		}
		path = unescaped
	} else if i := strings.Index(uri, "://"); i > 0 && !strings.Contains(uri[:i], "/") {
		return "", noScheme(uri, uri[:i])
	}
	if path == "" {
		return "", fault.Userf("a file name is empty: %w", ErrNotExist)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("making %s absolute: %w", path, err)
	}
	return abs, nil
}

// fetches are commands that copy the files of a scheme to this machine.
var fetches = map[string]string{
	"gs":    "gcloud storage rsync --recursive gs://BUCKET/PATH DIR",
	"hf":    "hf download --repo-type dataset REPO --local-dir DIR",
	"http":  "curl -O URL",
	"https": "curl -O URL",
}

// noScheme refuses a URI of a scheme other than file.
func noScheme(uri, scheme string) error {
	how := ""
	if fetch := fetches[strings.ToLower(scheme)]; fetch != "" {
		how = ", such as with `" + fetch + "`"
	}
	return fault.Userf("%s: only local files and buckets (s3://) are read, not %s://: mount the storage, or copy the files to this machine%s, and name the folder (valid: a path, file:///path or s3://BUCKET/PATH)",
		uri, scheme, how)
}

// walk returns all files below dir. above holds the real paths of the
// directories that lead here, so that a loop of links is found.
func walk(ctx context.Context, dir string, above []string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if slices.Contains(above, real) {
		return nil, fault.Userf("%s leads back to %s through a link; remove the link or name the files", dir, real)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		if isHidden(entry.Name()) {
			continue
		}
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return nil, err
		case info.IsDir():
			below, err := walk(ctx, name, append(above[:len(above):len(above)], real))
			if err != nil {
				return nil, err
			}
			names = append(names, below...)
		case info.Mode().IsRegular():
			names = append(names, name)
		}
	}
	return names, nil
}

func glob(pattern string) ([]string, error) {
	if !doublestar.ValidatePathPattern(pattern) {
		return nil, badGlob(pattern)
	}
	if err := boundGlob(pattern); err != nil {
		return nil, err
	}
	matches, err := doublestar.FilepathGlob(pattern, doublestar.WithFilesOnly(), doublestar.WithFailOnIOErrors())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(matches, func(name string) bool { return globHides(pattern, name) }), nil
}

func badGlob(pattern string) error {
	return fault.Userf("the pattern %s is malformed; close each [ and {, or write \\[ and \\{ for the characters", pattern)
}

// mostAlternatives of a pattern: each of them is looked for.
const mostAlternatives = 4096

// boundGlob refuses a pattern whose braces stand for more patterns than that, as {a,b}{a,b} does for four.
func boundGlob(pattern string) error {
	all, open := 1, []int{} // all patterns, and the alternatives of the braces that are open
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case c == '{':
			open = append(open, 1)
		case c == ',' && len(open) > 0:
			open[len(open)-1]++
		case c == '}' && len(open) > 0:
			all = min(all*open[len(open)-1], mostAlternatives+1)
			open = open[:len(open)-1]
		}
	}
	if all > mostAlternatives {
		return fault.Userf("the braces of the pattern %s stand for more than %d patterns: write several patterns, or use *", pattern, mostAlternatives)
	}
	return nil
}

// isGlob reports whether the name has a wildcard.
func isGlob(name string) bool { return strings.ContainsAny(name, `*?[{\`) }

func isHidden(base string) bool {
	return strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

// globHides reports whether name, a match of pattern, has a hidden component
// after the part of the pattern that has no wildcards.
func globHides(pattern, name string) bool {
	base, wild := doublestar.SplitPattern(pattern)
	below := strings.TrimPrefix(strings.TrimPrefix(name, base), "/")
	for part := range strings.SplitSeq(below, "/") {
		if isHidden(part) && !strings.Contains("/"+wild, "/"+part[:1]) {
			return true
		}
	}
	return false
}

func noFiles(uri string) error {
	if isGlob(uri) {
		return fault.Userf("%s: %w matches this pattern; * does not cross directories, ** does, and hidden files are left out", uri, ErrNotExist)
	}
	return fault.Userf("%s: %w in this directory or below it (hidden ones are left out)", uri, ErrNotExist)
}

// localError classifies an error of the operating system: names and
// permissions are user errors, everything else is a lost disk.
func localError(operation string, err error) error {
	switch {
	case fault.ClassOf(err) != fault.Bug:
		return fmt.Errorf("%s: %w", operation, err)
	case errors.Is(err, fs.ErrNotExist):
		if at, is := errors.AsType[*fs.PathError](err); is {
			if target, linked := os.Readlink(at.Path); linked == nil {
				return fault.Userf("%s: %w: %s is a link to %s, which is not there: mend or remove the link", operation, ErrNotExist, at.Path, target)
			}
		}
		return fault.Userf("%s: %w: %w: check the path", operation, ErrNotExist, err)
	case errors.Is(err, fs.ErrPermission):
		return fault.Userf("%s: %w: give this user the right to read it", operation, err)
	case errors.Is(err, syscall.ELOOP):
		return fault.Userf("%s: %s leads back to itself through a link; remove the link or name the files", operation, loopOf(err))
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fault.Lostf("%s: %w: allow more of them (ulimit -n)", operation, err)
	case errors.Is(err, fs.ErrClosed), errors.Is(err, fs.ErrInvalid):
		return fmt.Errorf("%s: %w", operation, err)
	}
	return fault.Lostf("%s: %w", operation, err)
}

// loopOf returns the path of a loop of links: of a path that a glob has
// walked, the beginning.
func loopOf(err error) string {
	failed, _ := errors.AsType[*fs.PathError](err)
	if failed == nil {
		return "a path"
	}
	if filepath.IsAbs(failed.Path) {
		return failed.Path
	}
	parts := strings.Split(failed.Path, "/")
	return strings.Join(parts[:min(len(parts), 3)], "/")
}
