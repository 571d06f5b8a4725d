package prepare

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/regular"
)

// Files beside the shards. Readers of a folder leave names out that begin with . or _.
const (
	manifestName = "_prepare.jsonl"
	skippedName  = "_skipped.jsonl"
	unfinished   = "."
)

// manifestVersion is that of the shards: what they hold for the same input. It rises with every
// change of their bytes.
const manifestVersion = 1

// header is the first line of a manifest: what the shards are a function of.
type header struct {
	Version    int    `json:"millrace_prepare"`
	Source     string `json:"source"`
	Folder     string `json:"folder"` // of the files; they may move
	Files      int    `json:"files"`
	Bytes      int64  `json:"bytes"`
	Input      string `json:"input"`  // digest of the files and of what the steps load
	Recipe     string `json:"recipe"` // the steps
	Seed       uint64 `json:"seed"`   // of functions
	ShardBytes int64  `json:"shard_bytes"`
	Groups     int    `json:"groups"`
}

// Skip is a bad record that was left out.
type Skip struct {
	Source string `json:"source,omitempty"`
	File   string `json:"file"`
	Row    int64  `json:"row"`
	Reason string `json:"reason"`
}

// entry is a later line: a group whose shards are finished.
type entry struct {
	Group    int     `json:"group"`
	Shards   []Shard `json:"shards"`
	Records  uint64  `json:"records"`
	Filtered uint64  `json:"filtered"`
	Empty    uint64  `json:"empty"`
	Skipped  []Skip  `json:"skipped,omitempty"`
}

// manifest is the file that says which groups are done. It is safe for concurrent use.
type manifest struct {
	dir  string
	head header

	mu      sync.Mutex // guards the fields below
	file    *os.File
	entries map[int]entry
}

// openManifest reads the manifest of a folder, or begins one.
func openManifest(dir string, head header) (*manifest, error) {
	m := &manifest{dir: dir, head: head, entries: map[int]entry{}}
	path := m.path()
	data, err := regular.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = m.begin()
	case err != nil:
		err = writing(path, err)
	default:
		err = m.goOn(data)
	}
	if err != nil {
		return nil, err
	}
	if m.file, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0); err != nil {
		return nil, writing(path, err)
	}
	return m, nil
}

func (m *manifest) path() string { return filepath.Join(m.dir, manifestName) }

// begin writes the header, into a folder that has no data.
func (m *manifest) begin() error {
	there, err := filepath.Glob(filepath.Join(strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(m.dir), "*.parquet"))
	if err == nil && len(there) > 0 {
		return fault.Userf("%s has Parquet files (such as %s) and no %s: prepare did not write them; name another folder with --out, or empty this one",
			m.dir, filepath.Base(there[0]), manifestName)
	}
	if err := os.Remove(filepath.Join(m.dir, skippedName)); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a run that gave no shard
		return writing(m.dir, err)
	}
	var line bytes.Buffer
	if err := encode(&line, m.head); err != nil {
		return err
	}
	return m.replace(line.Bytes())
}

// goOn takes up a manifest that is there. A last line that was not written to its end does not count.
func (m *manifest) goOn(data []byte) error {
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	lines := bytes.Split(bytes.TrimSuffix(whole, []byte("\n")), []byte("\n"))
	var was header
	if err := json.Unmarshal(lines[0], &was); err != nil || was.Version == 0 {
		return m.damaged(1)
	}
	if err := m.head.differs(&was, m.dir); err != nil {
		return err
	}
	for i, line := range lines[1:] {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil || e.Group < 0 || e.Group >= m.head.Groups {
			return m.damaged(i + 2)
		}
		m.entries[e.Group] = e
	}
	if len(whole) < len(data) {
		return m.replace(whole)
	}
	return nil
}

func (m *manifest) damaged(line int) error {
	return fault.Userf("%s:%d is damaged: it says which shards are finished; delete the folder to prepare the source again", m.path(), line)
}

// differs says why shards that were begun with another header are not those that are wanted now.
func (h *header) differs(was *header, dir string) error {
	what := ""
	switch {
	case was.Version != h.Version:
		what = fmt.Sprintf("by another version (%d, not %d)", was.Version, h.Version)
	case was.Source != h.Source:
		what = fmt.Sprintf("from source %q, not %q", was.Source, h.Source)
	case was.Recipe != h.Recipe:
		what = "with other steps: " + firstDifference(was.Recipe, h.Recipe)
	case was.Seed != h.Seed:
		what = fmt.Sprintf("with seed %d, not %d, which its functions are given", was.Seed, h.Seed)
	case was.Input != h.Input:
		what = fmt.Sprintf("from other data: %d files of %d bytes in %s then, %d of %d in %s now, or another tokenizer or function", was.Files, was.Bytes, was.Folder, h.Files, h.Bytes, h.Folder)
	case was.ShardBytes != h.ShardBytes:
		what = fmt.Sprintf("with --shard-size %d, not %d", was.ShardBytes, h.ShardBytes)
	default:
		return nil
	}
	return fault.Userf("the shards in %s were made %s; name another folder with --out, put back what they were made with, or delete the folder to prepare the source again", dir, what)
}

// firstDifference is the first line in which two texts differ.
func firstDifference(was, now string) string {
	a, b := strings.Split(was, "\n"), strings.Split(now, "\n")
	for i := range max(len(a), len(b)) {
		x, y := "", ""
		if i < len(a) {
			x = strings.TrimSpace(a[i])
		}
		if i < len(b) {
			y = strings.TrimSpace(b[i])
		}
		if x != y {
			return fmt.Sprintf("%q then, %q now", x, y)
		}
	}
	return "in white space"
}

// done returns the entry of a group, if its shards are there and are what they were. Else
// it is to be made, and add compares what that came to.
func (m *manifest) done(group int) (entry, bool) {
	m.mu.Lock()
	e, ok := m.entries[group]
	m.mu.Unlock()
	if !ok {
		return e, false
	}
	for _, s := range e.Shards {
		if sum, size, err := digest(filepath.Join(m.dir, s.Name)); err != nil || size != s.Bytes || sum != s.SHA256 {
			return e, false
		}
	}
	return e, true
}

// digest is the SHA-256 of a file.
func digest(path string) (sum string, size int64, err error) {
	file, err := regular.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	h := sha256.New()
	size, err = io.Copy(h, file)
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// add notes that a group is done. One that was done before has to have come to the same.
func (m *manifest) add(e entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was, again := m.entries[e.Group]; again {
		if !slices.Equal(was.Shards, e.Shards) {
			return fmt.Errorf("group %d of %s came to other shards than before, %v and not %v: its steps do not give the same for the same records", e.Group, m.dir, e.Shards, was.Shards)
		}
		return nil
	}
	var line bytes.Buffer
	err := encode(&line, e)
	if err == nil {
		_, err = m.file.Write(line.Bytes())
	}
	if err = errors.Join(err, m.file.Sync()); err != nil {
		return writing(m.path(), err)
	}
	m.entries[e.Group] = e
	return nil
}

// noGroup is the number of none.
const noGroup = -1

// skipped counts the bad records so far, without those of a group that is being made: it may have been done before.
func (m *manifest) skipped(making int) (n int, first Skip) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := -1
	for _, e := range m.entries {
		if e.Group == making {
			continue
		}
		n += len(e.Skipped)
		if len(e.Skipped) > 0 && (at < 0 || e.Group < at) {
			at, first = e.Group, e.Skipped[0]
		}
	}
	return n, first
}

// all returns the groups that are done, in their order.
func (m *manifest) all() (all []entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.Group, b.Group) })
	return all
}

// finish writes the manifest again, in the order of the groups, and the skip ledger beside it. The
// same input gives the same two files, but for the folder of the source's files.
func (m *manifest) finish() error {
	var lines, ledger bytes.Buffer
	err := encode(&lines, m.head)
	for _, e := range m.all() {
		err = errors.Join(err, encode(&lines, e))
		for _, s := range e.Skipped {
			s.Source = m.head.Source
			err = errors.Join(err, encode(&ledger, s))
		}
	}
	if err == nil && ledger.Len() > 0 {
		err = replace(filepath.Join(m.dir, skippedName), ledger.Bytes())
	}
	if err == nil {
		err = m.replace(lines.Bytes())
	}
	return err
}

// remove takes the manifest of a folder without shards away.
func (m *manifest) remove() error {
	if err := os.Remove(m.path()); err != nil {
		return writing(m.path(), err)
	}
	return nil
}

// encode writes one line of JSON, with texts as they are.
func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (m *manifest) replace(data []byte) error { return replace(m.path(), data) }

func (m *manifest) close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}

// replace puts data in place of a file, which is the old or the new one at any time.
func replace(path string, data []byte) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, unfinished+"prepare-*")
	if err != nil {
		return writing(path, err)
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(writing(path, err), os.Remove(tmp.Name()))
	}
	return syncFolder(dir)
}

// syncFolder makes the names in a folder last.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return writing(dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return writing(dir, err)
	}
	return nil
}
