package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/prepare"
)

// prepared is the part of a spec that prepare prints for a job that reads its shards.
func prepared(t *testing.T, stdout string) string {
	t.Helper()
	_, entry, ok := strings.Cut(stdout, "\n  - name:")
	if !ok {
		t.Fatalf("no entry for a job spec:\n%s", stdout)
	}
	return "  - name:" + entry
}

// contentOf is the digest of the rows of step 2.
func contentOf(t *testing.T, dir, spec string) string {
	t.Helper()
	r := millrace(t, dir, "preview", spec, "--step", "2")
	r.expect(t, 0)
	_, rest, ok := strings.Cut(r.stdout, "\ncontent ")
	if !ok {
		t.Fatalf("no content:\n%s", r.stdout)
	}
	content, _, _ := strings.Cut(rest, "\n")
	return content
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	dir := folder(t, "files: words/*.jsonl", "files: words/*.jsonl\n    shuffle: false")
	r := millrace(t, dir, "prepare", "job.yaml", "--out", "out", "--source", "words")
	r.expect(t, 0)
	if r.stderr != "" {
		t.Errorf("it prints to standard error: %s", r.stderr)
	}
	put(t, dir, "shards.yaml", "name: tiny\nseed: 7\nsources:\n"+prepared(t, r.stdout)+"    shuffle: false\nmix: {epochs: 1, weights: {words: 1}}\nbatch: {sequence_length: 128, sequences: 4}\n")
	put(t, dir, "files.yaml", "name: tiny\nseed: 7\nsources:\n  - {name: words, files: words/*.jsonl, shuffle: false}\nmix: {epochs: 1, weights: {words: 1}}\nbatch: {sequence_length: 128, sequences: 4}\n")
	want, got := contentOf(t, dir, "files.yaml"), contentOf(t, dir, "shards.yaml")
	if want != got {
		t.Errorf("step 2 of the shards has %s, of the files %s", got, want)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"no folder":    {[]string{"prepare", "job.yaml"}, exitUsage, []string{"--out"}},
		"size":         {[]string{"prepare", "job.yaml", "--out", "x", "--shard-size", "big"}, exitUsage, []string{`"big" is not a number of bytes`}},
		"small":        {[]string{"prepare", "job.yaml", "--out", "x", "--shard-size", "1k"}, exitUser, []string{"1048576 is the least"}},
		"source":       {[]string{"prepare", "job.yaml", "--out", "x", "--source", "word"}, exitUser, []string{`did you mean "words"?`}},
		"other shards": {[]string{"prepare", "job.yaml", "--out", "out", "--source", "words", "--shard-size", "1MiB"}, exitUser, []string{"--shard-size 134217728, not 1048576", "--out"}},
		"a file":       {[]string{"prepare", "job.yaml", "--out", "job.yaml"}, exitLost, []string{"job.yaml"}},
	} {
		t.Run(name, func(t *testing.T) { millrace(t, dir, c.args...).expect(t, c.code, c.says...) })
	}
}

// TestPrepareKilled kills prepare again and again, and compares its shards with those of an undisturbed run.
func TestPrepareKilled(t *testing.T) {
	t.Parallel()
	dir := folder(t, "words/*.jsonl", "big/*.jsonl")
	for _, name := range []string{"0", "1", "2", "3"} {
		put(t, dir, "big/"+name+".jsonl", strings.Repeat(lines(600), 60))
	}
	args := []string{"prepare", "job.yaml", "--source", "words", "--shard-size", "1MiB", "--out"}
	millrace(t, dir, append(args, "one")...).expect(t, 0)
	want, err := filepath.Glob(filepath.Join(dir, "one/words/shard-*"))
	if err != nil || len(want) < 5 {
		t.Fatalf("%d shards: %v", len(want), err)
	}
	for kills := range 3 {
		cmd := command(t.Context(), dir, append(args, "two")...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(hangs); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if manifest, _ := os.ReadFile(filepath.Join(dir, "two/words/_prepare.jsonl")); bytes.Count(manifest, []byte("\n")) > 1+kills {
				break
			}
		}
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	}
	r := millrace(t, dir, append(args, "two", "--json", "--workers", "3")...)
	r.expect(t, 0)
	var got prepare.Result
	decode(t, r.stdout, &got)
	if got.Shards != len(want) || got.Kept == 0 {
		t.Errorf("%d shards, %d finished before the last kill", got.Shards, got.Kept)
	}
	for _, path := range want {
		a, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "two/words", filepath.Base(path)))
		if err != nil || string(a) != string(b) {
			t.Errorf("%s is not what it is without kills (%v)", filepath.Base(path), err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "two/words/.shard-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestPrepareIntoItsData: what is written is not to be read as data the next time.
func TestPrepareIntoItsData(t *testing.T) {
	t.Parallel()
	dir := folder(t, "words/*.jsonl", "'words/**/*'", "notes/*.txt", "notes")
	for _, out := range []string{"words", "words/prepared", "notes/prepared"} {
		millrace(t, dir, "prepare", "job.yaml", "--out", out).expect(t, exitUser, "--out "+filepath.Join(dir, out), "would read what is written there")
	}
	millrace(t, dir, "prepare", "job.yaml", "--out", "prepared").expect(t, 0)

	dir = folder(t)
	millrace(t, dir, "prepare", "job.yaml", "--out", "out", "--source", "words").expect(t, 0)
	put(t, dir, "job.yaml", strings.Replace(good, "notes/*.txt", "out/words/shard-0000*.parquet", 1))
	millrace(t, dir, "prepare", "job.yaml", "--out", "out").expect(t, exitUser, "would read what is written there")
	millrace(t, dir, "prepare", "job.yaml", "--out", "out", "--source", "words").expect(t, 0) // which reads none of it
}

// TestPreparingRate: a source whose first chunk comes late was read all that time, and so was one behind it.
func TestPreparingRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newPreparing(&out, false)
		for _, source := range []string{"a", "b"} {
			time.Sleep(20 * time.Second)
			p.at(prepare.Progress{Source: source, Bytes: 60e6, Documents: 1})
			time.Sleep(20 * time.Second)
			p.at(prepare.Progress{Source: source, Done: 40e6, Bytes: 60e6, Documents: 7})
		}
		want := "a: 0.0 of 60.0 MB, 1 document\na: 40.0 of 60.0 MB, 7 documents, 1.0 MB/s, 20s left\n" +
			"b: 0.0 of 60.0 MB, 1 document\nb: 40.0 of 60.0 MB, 7 documents, 1.0 MB/s, 20s left\n"
		if got := out.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
