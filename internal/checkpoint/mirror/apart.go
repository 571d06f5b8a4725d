package mirror

import (
	"path/filepath"
	"strings"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// CheckApart refuses the URL of a mirror that would go where the log goes: to be made again from its
// mirror, the log is put aside, with all that is in its folder. The error is of class fault.User. Nothing is
// made or opened.
func CheckApart(dir, rawURL string) error {
	at, ok := object.Folder(rawURL)
	if !ok {
		return nil
	}
	at = resolved(at)
	for _, taken := range []string{dir, checkpoint.Aside(dir)} {
		if within(at, resolved(taken)) {
			return fault.Userf("the mirror %s is in %s, and would be put aside or removed with the log in %s, whose second copy it is: give it a folder outside, on another disk at best",
				rawURL, taken, dir)
		}
	}
	return nil
}

// within says whether a path is a folder or below it.
func within(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// resolved is a path without links, as far as it is there.
func resolved(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if there, err := filepath.EvalSymlinks(path); err == nil {
		return there
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolved(parent), filepath.Base(path))
	}
	return path
}
