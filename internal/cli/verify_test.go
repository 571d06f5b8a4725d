package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/memlog"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/testdata"
)

// holes are n records, of which every seventh is bad, and the last quarter altogether.
func holes(n int) string {
	var data strings.Builder
	for i, line := range slices.Collect(strings.Lines(lines(n))) {
		if i%7 == 3 || i > n*3/4 {
			line = fmt.Sprintf("{\"id\": %d, \"text\": [1, 2]}\n", i)
		}
		data.WriteString(line)
	}
	return data.String()
}

// TestVerifySkips: what the log says that each step left out is what the reference leaves
// out, whatever else a job does with its sources.
func TestVerifySkips(t *testing.T) {
	t.Parallel()
	const policy = "bad_records: {policy: skip, limit: 100000}\n    chunk_bytes: 900"
	epochs := []string{"mix:\n", "mix:\n  epochs: 3\n  exhausted: renormalize\n"}
	for name, c := range map[string]struct {
		edits   []string
		changes string
	}{
		"plain":                            {words("bad.jsonl", policy), ""},
		"epochs":                           {append(words("bad.jsonl", policy), epochs...), ""},
		"a limit that is reached":          {append(words("bad.jsonl", policy+"\n    limit: 30"), epochs...), ""},
		"a limit that is not":              {append(words("bad.jsonl", policy+"\n    limit: 5000"), epochs...), ""},
		"data that is passed over":         {words("bad.jsonl", policy), `{"step":4,"skip":3}` + "\n"},
		"records that are banned":          {words("bad.jsonl", policy+"\n    limit: 30"), `{"step":3,"ban":{"source":"words","file":"bad.jsonl","row":1}}` + "\n" + `{"step":3,"ban":{"source":"words","file":"bad.jsonl","row":2}}` + "\n"},
		"a source that joins":              {nil, `{"step":5,"add":{"source":{"name":"bad","files":"bad.jsonl","bad_records":{"policy":"skip","limit":100000}},"weight":0.5}}` + "\n"},
		"no packing, order of the files":   {append(words("bad.jsonl", policy+"\n    shuffle: {enabled: false}"), "sequences: 4}", "sequences: 4, packing: false}"), ""},
		"long samples wait for each other": {append(words("bad.jsonl", policy), "sequences: 4}", "sequences: 4, outliers: {above: [50], together: 3, wait: 6}}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, c.edits...)
			put(t, dir, "bad.jsonl", holes(260))
			put(t, dir, "changes.jsonl", c.changes)
			millrace(t, dir, "run", "job.yaml", "--steps", "30", "--log-dir", "log", "--changes", "changes.jsonl").expect(t, 0)
			r := millrace(t, dir, "verify", "job.yaml", "--log-dir", "log", "--changes", "changes.jsonl")
			r.expect(t, 0)
			if !strings.Contains(r.stdout, "bad records that were left out, of ") {
				t.Errorf("it says\n%s", r.stdout)
			}
		})
	}
}

// TestVerifyRealSkips: the same, of files that were found broken in the world.
func TestVerifyRealSkips(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(testdata.Dir(t), "corrupt")
	texts, err := filepath.Glob(filepath.Join(broken, "json/JSONTestSuite/n_*.json"))
	if err != nil || len(texts) < 100 {
		t.Fatalf("%d texts, %v", len(texts), err)
	}
	var data strings.Builder
	good := slices.Collect(strings.Lines(lines(600)))
	for i, path := range texts {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data.WriteString(good[i%len(good)])
		data.WriteString(strings.NewReplacer("\n", " ", "\r", " ").Replace(string(b)) + "\n")
	}
	dir := folder(t, words("bad.jsonl", "bad_records: {policy: skip, limit: 100000}")...)
	put(t, dir, "bad.jsonl", data.String())
	millrace(t, dir, "run", "job.yaml", "--steps", "20", "--log-dir", "log").expect(t, 0)
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, 0)
	if n := len(skippedLines(t, dir, "log", 20)); n < 50 {
		t.Errorf("%d records were left out", n)
	}
}

// TestVerifyGaps: steps that could not be checked are named, with the reason.
func TestVerifyGaps(t *testing.T) {
	for what, c := range map[string]struct {
		write func(log checkpoint.Log) error
		want  string
	}{
		"not delivered": {func(log checkpoint.Log) error { return framed(log, 0, 10, 7) },
			"steps 7 to 9 were not checked: planned, and not delivered when the service stopped"},
		"a digest is lost": {func(log checkpoint.Log) error {
			return errors.Join(framed(log, 0, 5, 4), log.Append(5, nil, nil), log.SetDigest(5, [32]byte{5}))
		}, "step 4 was not checked: the log has no digest of what was delivered"},
		"another log's": {func(log checkpoint.Log) error { return framed(log, 8, 12, 12) },
			"steps 0 to 7 were not checked: the log begins with step 8: the job came there from a token of another log"},
		"cut": {func(log checkpoint.Log) error { return errors.Join(framed(log, 0, 12, 12), log.Trim(9)) },
			"steps 0 to 7 were not checked: the log let go of those before step 8 (--log-retain)"},
		"all was left": {func(log checkpoint.Log) error {
			return errors.Join(framed(log, 0, 12, 12), log.Truncate(0), framed(log, 30, 33, 32))
		}, "steps 0 to 29 were not checked: the branch that is written begins with step 30, as the job went on there from a token to which no branch of the log leads\n" +
			"step 32 was not checked: planned, and not delivered when the service stopped"},
	} {
		log, err := new(memlog.Store).Open(checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.write(log); err != nil {
			t.Fatal(err)
		}
		last, _ := log.Last()
		g := gaps{log: log}
		for step := range last + 1 {
			if _, ok, _ := log.ReadDigest(step); !ok {
				g.add(step)
			}
		}
		if got := strings.Join(g.lines(last), "\n"); !strings.HasPrefix(got, c.want) || strings.Count(got, "\n") != strings.Count(c.want, "\n") {
			t.Errorf("%s: it says\n%s\nwant\n%s", what, got, c.want)
		}
	}
}

// framed appends steps, some with a key frame, and digests of those before one.
func framed(log checkpoint.Log, from, to, digests int64) error {
	for step := from; step < to; step++ {
		var frame []byte
		if step == from || step%4 == 0 {
			frame = []byte("frame")
		}
		if err := log.Append(step, nil, frame); err != nil {
			return err
		}
		if step < digests {
			if err := log.SetDigest(step, [32]byte{byte(step)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestVerifyOtherSkips: a ledger that names another record, one too many or one too few is
// found, with its source, file and row.
func TestVerifyOtherSkips(t *testing.T) {
	t.Parallel()
	dir := folder(t, words("bad.jsonl", "bad_records: {policy: skip, limit: 1000}")...)
	put(t, dir, "bad.jsonl", holes(260))
	millrace(t, dir, "run", "job.yaml", "--steps", "12", "--log-dir", "log").expect(t, 0)
	for name, c := range map[string]struct {
		spoil func([]token.Skip) []token.Skip
		want  string
	}{
		"one too few":                   {func(s []token.Skip) []token.Skip { return s[1:] }, "the reference leaves it out as a bad record"},
		"one too many":                  {func(s []token.Skip) []token.Skip { return append(s, s[0]) }, "the log says that it was left out as a bad record"},
		"another row":                   {func(s []token.Skip) []token.Skip { s[0].Row++; return s }, "the log says that it was left out as a bad record"},
		"another file":                  {func(s []token.Skip) []token.Skip { s[0].File = "/x/y.jsonl"; return s }, "/x/y.jsonl row "},
		"of a source that is not there": {func(s []token.Skip) []token.Skip { s[0].Source = 9; return s }, "source 9"},
		"in another folder":             {func(s []token.Skip) []token.Skip { s[0].File = "/mnt/b/bad.jsonl"; return s }, ""},
	} {
		log := spoiledLedger(t, dir, strings.ReplaceAll(name, " ", "-"), c.spoil)
		r := millrace(t, dir, "verify", "job.yaml", "--log-dir", log)
		if c.want == "" {
			r.expect(t, 0)
			continue
		}
		r.expect(t, exitDiffers, c.want, "step ", " row ")
		if !strings.Contains(r.stderr, "bad.jsonl row") && name != "another file" {
			t.Errorf("%s: it names no file:\n%s", name, r.stderr)
		}
	}
}

// spoiledLedger makes a copy of a log, whole but for the first step that left records out.
func spoiledLedger(t testing.TB, dir, name string, spoil func([]token.Skip) []token.Skip) string {
	t.Helper()
	from, err := checkpoint.Open(filepath.Join(dir, "log"), checkpoint.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	job, err := load(extensions{}, filepath.Join(dir, "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := reference.Manifests(t.Context(), sources(), reference.Program{}, job)
	if err != nil {
		t.Fatal(err)
	}
	to, err := checkpoint.Open(filepath.Join(dir, name), checkpoint.Options{Identity: batch.Root(job.Identity(), batch.Combine(manifests))})
	if err != nil {
		t.Fatal(err)
	}
	last, _ := from.Last()
	spoiled := false
	err = from.Records(0, last+1, func(step int64, data []byte) error {
		record, err := token.DecodeRecord(data)
		if err != nil {
			return err
		}
		if len(record.Skips) > 0 && !spoiled {
			spoiled, record.Skips = true, spoil(record.Skips)
			data = record.Encode()
		}
		at, frame, ok, err := from.Frame(step)
		if !ok || at != step {
			frame = nil
		}
		if err == nil {
			err = to.Append(step, data, frame)
		}
		if digest, ok, _ := from.ReadDigest(step); ok && err == nil {
			err = to.SetDigest(step, digest)
		}
		return err
	})
	if err != nil || !spoiled {
		t.Fatalf("spoiled %v, %v", spoiled, err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}
