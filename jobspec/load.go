package jobspec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/regular"
)

// Option changes how a spec is read.
type Option func(*options)

type options struct {
	filter func(string) error
	cost   func(string) error

	strategy, rowMethod, policy func(name string) error

	env    func(string) (string, bool)
	files  bool // look whether files are there
	source func(*Job, int) Findings
	data   func(*Job) []Finding
}

// CheckFilter has every filter expression compiled by check, so that what is
// wrong with one is reported at its place.
func CheckFilter(check func(expression string) error) Option {
	return func(o *options) { o.filter = check }
}

// CheckSource has the files of each source, and the steps that read them, looked at by
// check, where nothing else is wrong with the source. Of what check finds Field is a
// field of the source, such as files.
func CheckSource(check func(job *Job, source int) Findings) Option {
	return func(o *options) { o.source = check }
}

// CheckData has the data of a spec without errors looked at. Of what is found, Field says
// where: the file and the line are those of the field.
func CheckData(check func(*Job) []Finding) Option {
	return func(o *options) { o.data = check }
}

// Env takes variables from lookup in place of the process's environment.
func Env(lookup func(name string) (value string, set bool)) Option {
	return func(o *options) { o.env = lookup }
}

// NoVariables refuses variables: what others sent would have those of this process in it.
func NoVariables() Option { return Env(nil) }

// Load reads and checks the spec at path. The error, if any, is of class
// fault.User, or as Findings.Err has it, and wraps Findings: all that is wrong, in one go. Warnings alone
// are no error; Lint returns them.
func Load(path string, opts ...Option) (*Job, error) {
	src, dir, err := read(path)
	if err != nil {
		return nil, err
	}
	job, findings := Parse(path, src, dir, opts...)
	if err := findings.Err(); err != nil {
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("loading the job spec:\n%w", err))
	}
	return job, nil
}

// Lint reads and checks the spec at path, and looks whether its files are
// there. The job is nil if anything but a warning is found.
func Lint(path string, opts ...Option) (*Job, Findings) {
	src, dir, err := read(path)
	if err != nil {
		return nil, Findings{{File: path, Message: err.Error()}}
	}
	return Parse(path, src, dir, append(opts, func(o *options) { o.files = true })...)
}

func read(path string) (src []byte, dir string, err error) {
	dir, err = filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, "", fmt.Errorf("finding the folder of the job spec: %w", err)
	}
	src, err = regular.Text(path)
	if info, e := os.Stat(path); e == nil && info.IsDir() {
		return nil, "", fault.Userf("reading the job spec: %s is a folder, and a job spec is a YAML file: name that one", path)
	}
	if err != nil {
		return nil, "", fault.Userf("reading the job spec: %w", err)
	}
	return src, dir, nil
}

// Parse checks the text of a spec. name is what findings call the file, dir the
// folder that relative paths are relative to. The job is nil if anything but a
// warning is found. Parse is pure but for variables of the environment.
func Parse(name string, src []byte, dir string, opts ...Option) (*Job, Findings) {
	o := options{env: systemEnv}
	for _, set := range opts {
		set(&o)
	}
	r := newReport(name)
	job := build(r, src, dir, o)
	findings := r.sorted()
	if findings.Err() != nil {
		return nil, findings
	}
	return job, findings
}

// build takes the text through all stages; see the package comment.
func build(r *report, src []byte, dir string, o options) *Job {
	root := readYAML(src, r)
	if root == nil {
		return nil
	}
	job := &Job{Dir: dir}
	d := decoder{report: r, env: o.env, extra: map[string]any{}}
	r.places[""] = root.at
	d.object(root, &specObject, reflect.ValueOf(job).Elem(), "")
	if r.wrong[""] {
		return nil
	}
	d.derive(job)
	c := checker{report: r, job: job, filter: o.filter, cost: o.cost, named: o.strategy, rowMethod: o.rowMethod, policy: o.policy}
	for _, rule := range rules {
		rule.check(&c)
	}
	if o.files {
		job.checkFiles(r)
	}
	for i := range job.Sources {
		deriveChain(&job.Sources[i])
	}
	if o.source != nil {
		c.sources(o.source)
	}
	if o.data != nil && r.count[false] == 0 {
		for _, f := range o.data(job) {
			r.found(f.Field, f)
		}
	}
	return job
}

// sources has each source looked at that has no error yet.
func (c *checker) sources(check func(*Job, int) Findings) {
	for i := range c.job.Sources {
		at := itemField("sources", i)
		if !c.sound(at, "batch.sequence_length", "batch.context_split") {
			continue
		}
		for _, f := range check(c.job, i) {
			c.found(at+"."+f.Field, f)
		}
	}
}

// CheckFiles looks whether the files that a job names are there: rank files,
// and at least one file for each entry of a source's files. It looks at local
// paths only; those with a scheme (s3://...) are the store's to check. The
// findings have no lines; those of Lint do.
func CheckFiles(job *Job) Findings {
	r := newReport("")
	job.checkFiles(r)
	return r.sorted()
}

func (j *Job) checkFiles(r *report) {
	for i, s := range j.ResolvedSources() {
		at := itemField("sources", i)
		for k, path := range s.Files {
			if field := itemField(at+".files", k); r.sound(field) {
				checkFile(r, field, path)
			}
		}
		for k, t := range s.Transforms {
			if step, ok := t.(located); ok {
				step.locate(r, at+"."+s.StepField(k))
			}
		}
	}
}

func checkVocabulary(r *report, field, path, valid string) {
	if strings.Contains(path, "://") {
		return
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		r.error(field, "there is no file "+strconv.Quote(path), valid)
	}
}

// checkFile looks for a file, a directory or a match of a glob.
func checkFile(r *report, field, path string) {
	if strings.Contains(path, "://") {
		if m := storeQuery.FindStringSubmatch(path); m != nil {
			r.error(field, "the URL of a source's files takes no "+m[1]+"=", "set AWS_ENDPOINT_URL_S3 and AWS_REGION where the job is read, and write s3://BUCKET/PATH")
		}
		return
	}
	_, absent := os.Stat(path)
	if absent == nil {
		return
	}
	written := filepath.ToSlash(path)
	switch {
	case strings.HasPrefix(written, "~/") || strings.Contains(written, "/~/"):
		r.error(field, "~ is not the home folder here", "write ${HOME} for it")
		return
	case plainVariable.MatchString(written):
		name := plainVariable.FindStringSubmatch(written)[1]
		r.error(field, fmt.Sprintf("$%s is no variable here", name), fmt.Sprintf("write ${%s} for it", name))
		return
	case oneSlash.MatchString(written):
		scheme := oneSlash.FindStringSubmatch(written)[1]
		r.error(field, fmt.Sprintf("%s:/ begins no URL", scheme), fmt.Sprintf("write %s:// with two slashes", scheme))
		return
	case ranges.MatchString(written):
		r.error(field, "no file matches "+strconv.Quote(path), "{000..123} is not a range here, write [0-9], * or {000,001}")
		return
	}
	if target, err := os.Readlink(path); err == nil && errors.Is(absent, fs.ErrNotExist) {
		r.error(field, fmt.Sprintf("%q is a link to %q, which is not there", path, target), "mend the link, or name a file, a directory or a glob")
		return
	}
	if !strings.ContainsAny(path, `*?[{\`) {
		r.error(field, "there is no file or directory "+strconv.Quote(path), "name a file, a directory or a glob")
		return
	}
	checkGlob(r, field, path)
}

// checkGlob looks for a match of a glob. What a walk meets on its way, such as a
// folder that leads back to itself through a link, is the store's to name.
func checkGlob(r *report, field, path string) {
	base, pattern := doublestar.SplitPattern(filepath.ToSlash(path))
	found := func(options ...doublestar.GlobOption) (match string, err error) {
		return match, doublestar.GlobWalk(os.DirFS(base), pattern, func(name string, _ fs.DirEntry) error {
			match = name
			return errMatch
		}, append(options, doublestar.WithFailOnIOErrors())...)
	}
	_, err := found(doublestar.WithFilesOnly())
	switch {
	case errors.Is(err, doublestar.ErrBadPattern):
		r.error(field, fmt.Sprintf("the glob %q is malformed", path), "valid are *, ?, [..], {..} and **")
		return
	case err != nil && !errors.Is(err, fs.ErrNotExist): // a match, or what the store has to say
		return
	}
	remedy := "valid is a glob with at least one match; ** crosses directories"
	if folder, err := found(); errors.Is(err, errMatch) {
		remedy = fmt.Sprintf("it matches directories only, such as %q: add /** for the files in them", filepath.Join(base, folder))
	}
	r.error(field, "no file matches "+strconv.Quote(path), remedy)
}

// What is written in other tools: a variable without braces, a URL that lost a slash.
var (
	plainVariable = regexp.MustCompile(`(?:^|/)\$([A-Za-z_]\w*)(?:/|$)`)
	oneSlash      = regexp.MustCompile(`(?:^|/)(s3|https?):/`)
)

// storeQuery is what the URL of a mirror may say of where its store is.
var storeQuery = regexp.MustCompile(`^s3://.*?[?&](endpoint|region|path_style)=`)

// ranges are a shell's way to count, which other loaders know.
var ranges = regexp.MustCompile(`\{\d+\.\.\d+\}`)

// errMatch ends a walk at the first match.
var errMatch = errors.New("a file matches")
