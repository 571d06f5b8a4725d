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

// Roots are what a source that joins a running job may reach of the machines that read it.
type Roots struct {
	Data []string // folders, files and buckets that its files, tokenizers, templates and answers are read from
	Code []string // those that its Python functions and their interpreters may be in: these, and others that no data is read from
}

// RootsAt are those of an operator who has named folders, for data and code.
func RootsAt(folders []string) Roots { return Roots{Data: folders, Code: folders} }

// Roots are those of a job whose operator names none: for data the spec's folder, what its sources' files begin with
// before a wildcard, its tokenizers' and templates' files, and where its answers are kept; for code the folders of its
// Python modules and interpreters, too.
func (j *Job) Roots() Roots {
	data := []string{absolute(j.Dir)}
	var code []string
	for _, s := range j.ResolvedSources() {
		for _, pattern := range s.Files {
			data = append(data, fixedPart(pattern))
		}
		data = append(data, s.Programs()...)
		code = append(code, s.Code()...)
	}
	code = append(code, data...)
	slices.Sort(data)
	slices.Sort(code)
	return Roots{Data: slices.Compact(data), Code: slices.Compact(code)}
}

// CheckRoots refuses a source whose files, by their names, are outside of roots. Where links
// lead, only who reads them can see.
func (j *Job) CheckRoots(s Source, roots Roots) error {
	own := *j
	own.Sources = []Source{s}
	s = own.ResolvedSources()[0]
	check := func(name, path string, roots []string) error {
		if slices.ContainsFunc(roots, func(root string) bool { return under(root, path) }) {
			return nil
		}
		return fault.Userf("source %q: %s is outside of the folders that sources which join may be read from: %s; put its files there, or start the service with --allow-root",
			s.Name, name, strings.Join(roots, ", "))
	}
	for _, name := range s.Files {
		if err := check(name, fixedPart(name), roots.Data); err != nil {
			return err
		}
	}
	for _, name := range s.Programs() {
		if err := check(name, absolute(localName(name)), roots.Data); err != nil {
			return err
		}
	}
	for _, name := range s.Code() {
		if err := check(name, name, roots.Code); err != nil {
			return err
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
// and answers, if its paths are resolved.
func (s *Source) Programs() (files []string) {
	for _, t := range s.Transforms {
		if step, ok := t.(programmed); ok {
			files = append(files, step.programs(s.Transforms)...)
		}
	}
	return files
}

// Code is the folders of the Python modules and interpreters of a source, if its paths are resolved.
func (s *Source) Code() (folders []string) {
	for _, t := range s.Transforms {
		if step, ok := t.(*Python); ok {
			folders = append(folders, step.code()...)
		}
	}
	return folders
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
