package jobspec

import (
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/millrace-data/millrace/internal/fault"
)

// Roots are the folders that a source which joins the job is read from, unless the operator
// names others: the spec's own, what its sources' files begin with before a wildcard, and its
// tokenizers' files and Python functions.
func (j *Job) Roots() []string {
	roots := []string{absolute(j.Dir)}
	for _, s := range j.ResolvedSources() {
		for _, pattern := range s.Files {
			roots = append(roots, fixedPart(pattern))
		}
		roots = append(roots, s.Programs()...)
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

// CheckRoots refuses a source whose files, by their names, are outside of roots. Where links
// lead, only who reads them can see.
func (j *Job) CheckRoots(s Source, roots []string) error {
	own := *j
	own.Sources = []Source{s}
	s = own.ResolvedSources()[0]
	for i, name := range append(slices.Clone(s.Files), s.Programs()...) {
		path := absolute(localName(name))
		if i < len(s.Files) {
			path = fixedPart(name)
		}
		if !slices.ContainsFunc(roots, func(root string) bool { return under(root, path) }) {
			return fault.Userf("source %q: %s is outside of the folders that sources which join may be read from: %s; put its files there, or start the service with --allow-root",
				s.Name, name, strings.Join(roots, ", "))
		}
	}
	return j.checkServers(s)
}

// checkServers refuses a source that would send records to a model server, or a variable of the loaders' environment,
// which the job's own sources do not.
func (j *Job) checkServers(s Source) error {
	own := j.calls()
	for _, call := range s.calls() {
		if !slices.ContainsFunc(own, func(c *Call) bool {
			return c.server() == call.server() && (call.TokenEnv == "" || c.TokenEnv == call.TokenEnv)
		}) {
			with := ""
			if call.TokenEnv != "" {
				with = " with the token in " + call.TokenEnv
			}
			return fault.Userf("source %q: no call step of the job spec asks %s%s, and a source that joins may ask no other server: put the change that adds it into a file for --changes, and start the service again",
				s.Name, call.server(), with)
		}
	}
	return nil
}

// calls are the steps of all sources that ask model servers.
func (j *Job) calls() (all []*Call) {
	for i := range j.Sources {
		all = append(all, j.Sources[i].calls()...)
	}
	return all
}

func (s *Source) calls() (all []*Call) {
	for _, t := range s.Transforms {
		if call, ok := t.(*Call); ok {
			all = append(all, call)
		}
	}
	return all
}

// Programs are the files and folders that the steps of a source read, such as tokenizers, chat templates
// and Python modules, if its paths are resolved.
func (s *Source) Programs() (files []string) {
	for _, t := range s.Transforms {
		if step, ok := t.(programmed); ok {
			files = append(files, step.programs(s.Transforms)...)
		}
	}
	return files
}

// fixedPart is the part of a pattern that has no wildcard.
func fixedPart(pattern string) string {
	path := localName(pattern)
	if strings.ContainsAny(pattern, `*?[{\`) {
		path, _ = doublestar.SplitPattern(path)
	}
	return absolute(path)
}

// localName is the path of a file:// URI, escapes and all, and any other name as it is.
func localName(name string) string {
	if rest, ok := strings.CutPrefix(name, "file://"); ok {
		return strings.TrimPrefix(rest, "localhost")
	}
	return name
}

// storeName is the folder of an object store of file://, as it is opened, and the URL of any other, without steps
// back and with what its query says of where the store is.
func storeName(name string) string {
	u, err := url.Parse(name)
	switch {
	case err != nil || !strings.Contains(name, "://"):
		return absolute(name)
	case u.Scheme == "file":
		return absolute(u.Path)
	}
	at := strings.TrimSuffix(u.Scheme+"://"+u.Host+path.Clean("/"+u.Path), "/")
	if u.RawQuery != "" {
		at += "?" + u.RawQuery
	}
	return at
}

// absolute is a path in full; a URI of another store stays.
func absolute(path string) string {
	if strings.Contains(path, "://") {
		return strings.TrimSuffix(path, "/")
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return whole
}

// under says whether a path is a root or below it. A bucket whose URL has another query may be another one's.
func under(root, path string) bool {
	var of, asked string
	if strings.Contains(path, "://") {
		root, of, _ = strings.Cut(root, "?")
		path, asked, _ = strings.Cut(path, "?")
	}
	return of == asked && (path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/"))
}
