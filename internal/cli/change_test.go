package cli

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
)

// changing is a folder with the good job, and the data of a source that may join.
func changing(t testing.TB, edits ...string) string {
	t.Helper()
	dir := folder(t, edits...)
	put(t, dir, "more/0.jsonl", lines(80))
	put(t, dir, "more/sub/0.jsonl", lines(40))
	put(t, dir, "words/a/x.jsonl", lines(7))
	put(t, dir, "words/b/x.jsonl", lines(8))
	put(t, dir, "more.yaml", "name: more # and more\nfiles: more/0.jsonl\nlimit: 1k\nlong: {max: 100}\n")
	return dir
}

// running is a served job that a trainer has joined, with a few steps ahead.
func running(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	s := serve(t, dir, args...)
	if _, err := open(t, s, client.Options{Prefetch: -1}); err != nil {
		t.Fatal(err)
	}
	return s
}

// verb runs a verb whose first argument is the service's address.
func (s *server) verb(t testing.TB, dir, verb string, args ...string) result {
	t.Helper()
	return millrace(t, dir, append(append(strings.Fields(verb), s.address), args...)...)
}

// TestChangeVerbs makes every kind of change to a job that runs, and replays the
// journal with the reference.
func TestChangeVerbs(t *testing.T) {
	t.Parallel()
	dir := changing(t)
	s := running(t, dir, "--log-dir", "log", "--loaders", "2")
	for _, c := range []struct {
		verb string
		args []string
		want string
	}{
		{"mix set", []string{"words=1", "notes=3", "--step", "20"}, "from step 20 on: the mix is notes=3 words=1"},
		{"mix schedule", []string{"--step", "24"}, "from step 24 on: the mix is the job spec's again"},
		{"source pause", []string{"notes", "--step", "21", "--reason", "to see"}, `from step 21 on: source "notes" is paused`},
		{"source resume", []string{"notes", "--step", "23"}, `from step 23 on: source "notes" goes on where it was`},
		{"source add", []string{"--entry", "more.yaml", "--weight", "0.2", "--step", "25"}, "from step 25 on: a source joins with 0.2 of the mix"},
		{"source drop", []string{"more", "--step", "30"}, `from step 30 on: source "more" is dropped for good`},
		{"batch", []string{"--sequences", "8", "--step", "26"}, "from step 26 on: global batches have sequences=8"},
		{"batch", []string{"--sequence-length", "256", "--sequences", "4", "--step", "28"}, "from step 28 on: global batches have sequence_length=256 sequences=4"},
		{"topology", []string{"dp=4", "tp=2", "--step", "27"}, "from step 27 on: the ranks are those of a mesh with dp=4 tp=2"},
		{"skip", []string{"--steps", "3", "--step", "22"}, "from step 22 on: the data of 3 steps is passed over"},
		{"ban", []string{"words", "1.jsonl", "0", "--step", "20"}, `from step 20 on: 1.jsonl row 0 of source "words" is banned, if there is such a record`},
		{"change", []string{`{"pause":"words","step":9}`, "--step", "31", "--job", "job.yaml"}, `from step 31 on: source "words" is paused`},
	} {
		r := s.verb(t, dir, c.verb, c.args...)
		r.expect(t, 0)
		if !strings.HasPrefix(r.stdout, c.want) {
			t.Errorf("%s %v prints %s, want %s", c.verb, c.args, r.stdout, c.want)
		}
	}
	for verb, args := range map[string][]string{"mix set": {"words=1", "notes=1", "more=1"}, "source resume": {"more"}} {
		s.verb(t, dir, verb, append(args, "--step", "31")...).expect(t, exitUser, `source "more" was dropped, which is for good`)
	}
	late := s.verb(t, dir, "skip", "--steps", "1", "--step", "1")
	if late.expect(t, 0); !regexp.MustCompile(`^from step [2-9] on \(step 1 is planned already\): `).MatchString(late.stdout) {
		t.Errorf("a change for a step that is planned prints %s", late.stdout)
	}
	status := s.verb(t, dir, "status")
	status.expect(t, 0)
	if !strings.Contains(status.stdout, `change {"step":31,"pause":"words"}`) || strings.Contains(status.stdout, "notes (paused)") {
		t.Errorf("the status is\n%s", status.stdout)
	}
	journal := s.verb(t, dir, "changes")
	journal.expect(t, 0)
	if n := strings.Count(journal.stdout, "\n"); n != 13 || !strings.Contains(journal.stdout, `{"step":21,"pause":"notes","reason":"to see"}`) {
		t.Fatalf("the journal is\n%s", journal.stdout)
	}
	put(t, dir, "journal.jsonl", journal.stdout)
	s.stop(t)
	if logged := millrace(t, dir, "changes", "--log-dir", "log"); logged.stdout != journal.stdout {
		t.Errorf("the log's changes are\n%s%s, want\n%s", logged.stdout, logged.stderr, journal.stdout)
	}
	want := millrace(t, dir, "reference", "job.yaml", "--steps", "33", "--changes", "journal.jsonl").digest(t)
	for _, args := range [][]string{{"--log-dir", "log"}, {"--changes", "journal.jsonl", "--processes"}} {
		r := millrace(t, dir, append([]string{"run", "job.yaml", "--steps", "33"}, args...)...)
		if got := r.digest(t); got != want {
			t.Errorf("run %v ends with %s, the reference with %s", args, got, want)
		}
		if !strings.Contains(r.stdout, "for 8 ranks (dp 4 x cp 1 x pp 1 x tp 2)") || !strings.Contains(r.stdout, "more (dropped)") || !strings.Contains(r.stdout, "words (paused)") {
			t.Errorf("the summary is\n%s", r.stdout)
		}
	}
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, 0)
}

// TestChangesRefused: a change that cannot be is refused, with what would be valid,
// and the job goes on as it was.
func TestChangesRefused(t *testing.T) {
	t.Parallel()
	dir := changing(t, "words/*.jsonl", "words/**/*.jsonl")
	put(t, dir, "taken.yaml", "name: words\nfiles: more/0.jsonl\n")
	put(t, dir, "wrong.yaml", "name: more\nfils: more/0.jsonl\n")
	put(t, dir, "absent.yaml", "name: more\nfiles: more/9.jsonl\n")
	put(t, dir, "list.yaml", "- just\n- a list\n")
	put(t, dir, "broken.yaml", "name: [\n")
	put(t, dir, "long.yaml", "name: more\nfiles: more/0.jsonl\nlong: {rule: truncate, max: 500}\n")
	put(t, dir, "empty.yaml", "name: more\nfiles: empty.jsonl\n")
	put(t, dir, "empty.jsonl", "")
	other := folder(t, "seed: 7", "seed: 8")
	s := running(t, dir)
	s.verb(t, dir, "source pause", "words", "--step", "50").expect(t, 0)
	for _, c := range []struct {
		verb string
		args []string
		want []string
	}{
		{"source pause", []string{"word"}, []string{`no source "word"`, `did you mean "words"?`}},
		{"source pause", []string{"zzz"}, []string{`no source "zzz"`, "valid are words, notes"}},
		{"source pause", []string{"notes", "--step", "50"}, []string{`without source "notes" no source with a weight is left`, "give weight to another first"}},
		{"source resume", []string{"notes"}, []string{`source "notes" is not paused`}},
		{"mix set", []string{"word=1"}, []string{`no source "word"`, `did you mean "words"?`}},
		{"mix set", []string{"words=1", "--step", "50"}, []string{"all weight is on sources that are paused or dropped", "resume one of them first"}},
		{"mix set", []string{"words=1"}, []string{`does not go with the change "pause" of step 50`}},
		{"topology", []string{"dp=3"}, []string{"4 rows are not a multiple of dp 3", "dp 2 and 4"}},
		{"batch", []string{"--sequence-length", "64"}, []string{"too short for source", "up to 128", "128 or more", "long: {max: 64}"}},
		{"batch", []string{"--sequence-length", "20000000"}, []string{"batch.sequence_length", "20000000 tokens", "at most 16777216"}},
		{"batch", []string{"--sequences", "2000000000"}, []string{"batch.sequences: 2000000000 rows", "at most 1048576"}},
		{"batch", []string{"--sequences", "5"}, []string{"5 rows are not a multiple of dp 2", "4 and 6 rows"}},
		{"ban", []string{"words", "9.jsonl", "0"}, []string{`source "words"`, `no file "9.jsonl"`, "a valid one is"}},
		{"ban", []string{"words", "x.jsonl", "0"}, []string{`2 files end with "x.jsonl"`, "give more of the path"}},
		{"ban", []string{"words", "1.jsonl", "99999999"}, []string{`source "words"`, "has no record 99999999", "below ", "explain"}},
		{"ban", []string{"word", "0.jsonl", "0"}, []string{`did you mean "words"?`}},
		{"source add", []string{"--entry", "taken.yaml", "--weight", "0.1"}, []string{`there is a source "words" already`, "another name"}},
		{"source add", []string{"--entry", "wrong.yaml", "--weight", "0.1"}, []string{"fils", "files"}},
		{"source add", []string{"--entry", "absent.yaml", "--weight", "0.1"}, []string{"9.jsonl", "no such file"}},
		{"source add", []string{"--entry", "nope.yaml", "--weight", "0.1"}, []string{"nope.yaml", "no such file"}},
		{"source add", []string{"--entry", "list.yaml", "--weight", "0.1"}, []string{"list.yaml is not a source entry", "name: NAME"}},
		{"source add", []string{"--entry", "broken.yaml", "--weight", "0.1"}, []string{"broken.yaml", "[1:"}},
		{"source add", []string{"--entry", "long.yaml", "--weight", "0.1"}, []string{"more", "500", "128"}},
		{"source add", []string{"--entry", "empty.yaml", "--weight", "0.1"}, []string{"the source cannot join", `source "more" is empty`, "empty.jsonl"}},
		{"skip", []string{"--steps", "1", "--job", filepath.Join(other, "job.yaml")}, []string{"a change to spec", "this service runs"}},
	} {
		r := s.verb(t, dir, c.verb, c.args...)
		r.expect(t, exitUser, c.want...)
		if r.stdout != "" {
			t.Errorf("%s %v is refused, and prints %s", c.verb, c.args, r.stdout)
		}
	}
	// After all these a good source can still join, and the journal has what was made.
	s.verb(t, dir, "source add", "--entry", "more.yaml", "--weight", "0.1", "--step", "60").expect(t, 0)
	s.verb(t, dir, "source pause", "more", "--step", "55").expect(t, exitUser, `source "more" joins after step 55`)
	if journal := s.verb(t, dir, "changes"); strings.Count(journal.stdout, "\n") != 2 {
		t.Errorf("the journal is\n%s", journal.stdout)
	}
	s.verb(t, dir, "source drop", "words").expect(t, exitUser, `the change "pause" of step 50`, "was dropped already")
	s.verb(t, dir, "source drop", "words", "--step", "50").expect(t, 0)
	s.verb(t, dir, "source drop", "words", "--step", "50").expect(t, exitUser, `source "words" was dropped already`)
	s.verb(t, dir, "source resume", "words", "--step", "70").expect(t, exitUser, `source "words" was dropped, which is for good`)
}

// TestCancel takes changes back that are still to come; the job is then what it would
// have been without them.
func TestCancel(t *testing.T) {
	t.Parallel()
	dir := changing(t)
	put(t, dir, "c.jsonl", `{"step":0,"skip":1}`+"\n"+`{"step":33,"skip":1}`+"\n"+`{"step":33,"skip":2}`+"\n")
	s := running(t, dir, "--log-dir", "log", "--changes", "c.jsonl")
	s.verb(t, dir, "source pause", "words", "--step", "31").expect(t, 0)
	s.verb(t, dir, "source resume", "words", "--step", "35").expect(t, 0)
	s.verb(t, dir, "source add", "--entry", "more.yaml", "--weight", "0.1", "--step", "36").expect(t, 0)
	s.verb(t, dir, "topology", "dp=4", "--step", "40", "--reason", "more").expect(t, 0)
	for _, c := range []struct {
		arg  string
		code int
		want string
	}{
		{"31", exitUser, `the change "resume" of step 35 builds on it`},
		{"32", exitUser, "no change for step 32"},
		{"33", exitUser, "2 changes for step 33"},
		{"36", exitUser, "drop it at the same step"},
		{"0", exitUser, "already, with the change: another one can be made for step"},
		{`{"step":37,"pause":"notes"}`, exitUser, `no change {"step":37,"pause":"notes"} to cancel; pending are {"step":31`},
		{`{"step":0,"skp":1}`, exitUsage, `did you mean "skip"?`},
		{"-3", exitUsage, ""},
	} {
		s.verb(t, dir, "cancel", "--", c.arg).expect(t, c.code, c.want)
	}
	for arg, want := range map[string]string{
		`{"step":33,"skip":2}`: "from step 33 on: no change; it is cancelled that the data of 2 steps is passed over",
		"40":                   "from step 40 on: no change; it is cancelled that the ranks are those of a mesh with dp=4",
	} {
		r := s.verb(t, dir, "cancel", arg, "--reason", "not now")
		if r.expect(t, 0); !strings.HasPrefix(r.stdout, want) {
			t.Errorf("cancel %s prints %s, want %s", arg, r.stdout, want)
		}
	}
	s.verb(t, dir, "cancel", "35").expect(t, 0)
	s.verb(t, dir, "cancel", "31").expect(t, 0)
	s.verb(t, dir, "cancel", `{"step":31,"pause":"words"}`).expect(t, exitUser, "was cancelled already")
	pending := s.verb(t, dir, "changes", "--pending")
	if pending.expect(t, 0); strings.Count(pending.stdout, "\n") != 2 || !strings.HasPrefix(pending.stdout, `{"step":33,"skip":1}`+"\n"+`{"step":36,"add":`) {
		t.Errorf("pending are\n%s", pending.stdout)
	}
	journal := s.verb(t, dir, "changes")
	if journal.expect(t, 0); strings.Count(journal.stdout, "\n") != 11 || !strings.Contains(journal.stdout, `{"step":40,"cancel":{"step":40,"topology":{"dp":4},"reason":"more"},"reason":"not now"}`) {
		t.Errorf("the journal is\n%s", journal.stdout)
	}
	put(t, dir, "journal.jsonl", journal.stdout)
	s.stop(t)
	if logged := millrace(t, dir, "changes", "--log-dir", "log"); logged.stdout != journal.stdout {
		t.Errorf("the log's changes are\n%s%s, want\n%s", logged.stdout, logged.stderr, journal.stdout)
	}
	put(t, dir, "left.jsonl", `{"step":0,"skip":1}`+"\n"+pending.stdout)
	want := millrace(t, dir, "reference", "job.yaml", "--steps", "42", "--changes", "left.jsonl").digest(t)
	for _, args := range []string{"reference", "run --log-dir log", "run --changes c.jsonl --log-dir log", "run --changes journal.jsonl --processes", "run --changes journal.jsonl --log-dir new"} {
		args := strings.Fields(args)
		if args[0] == "reference" {
			args = append(args, "--changes", "journal.jsonl")
		}
		if got := millrace(t, dir, append([]string{args[0], "job.yaml", "--steps", "42"}, args[1:]...)...).digest(t); got != want {
			t.Errorf("%v ends with %s, want %s", args, got, want)
		}
	}
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, 0)
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "new").expect(t, 0)
	put(t, dir, "late.jsonl", `{"step":33,"cancel":{"step":33,"skip":1}}`)
	millrace(t, dir, "run", "job.yaml", "--changes", "late.jsonl", "--log-dir", "log").expect(t, exitUser, "late.jsonl:1:", "comes too late", "has the steps before 4")
	millrace(t, dir, "run", "job.yaml", "--changes", "late.jsonl").expect(t, exitUser, "late.jsonl:1:", "give both, in this order")
}

// TestChangeWhen: a change comes too early before any trainer has joined, and too
// late for a job that failed or has ended.
func TestChangeWhen(t *testing.T) {
	t.Parallel()
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		millrace(t, "", "skip", "127.0.0.1:1", "--steps", "1").expect(t, exitLost, "connection refused", "is a service running there")
	})
	t.Run("no trainer", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		s := serve(t, dir)
		// The service answers a tenth of the time before it is over.
		s.verb(t, dir, "skip", "--steps", "1", "--timeout", "5s").expect(t, exitLost, "no trainer has joined yet", "waiting for the first trainer to join")
		// It waits for one.
		cmd := command(t.Context(), dir, "skip", s.address, "--steps", "1", "--step", "20")
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		stderr, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stderr).ReadString('\n'); err != nil || !strings.Contains(line, "waiting up to 5m0s for one") {
			t.Errorf("it prints %q, %v", line, err)
		}
		if _, err := open(t, s, client.Options{Prefetch: -1}); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || !strings.HasPrefix(stdout.String(), "from step 20 on: the data of 1 step is passed over") {
			t.Errorf("%v, it prints %s", err, stdout.String())
		}
	})
	t.Run("failed", func(t *testing.T) {
		t.Parallel()
		dir := folder(t, words("bad.jsonl")...)
		put(t, dir, "bad.jsonl", strings.Replace(lines(50), `"text"`, `"text`, 1))
		s := serve(t, dir)
		c, err := open(t, s, client.Options{})
		if err == nil {
			_, err = c.Next(t.Context())
		}
		refused(t, err, "bad.jsonl:1:")
		s.verb(t, dir, "skip", "--steps", "1").expect(t, exitUser, `source "words"`, "bad.jsonl:1:")
	})
	t.Run("ended", func(t *testing.T) {
		t.Parallel()
		dir := folder(t, "notes: 0.25}", "notes: 0.25}\n  epochs: 1", "sequences: 4", "sequences: 400", "dp: 2", "dp: 1")
		s := serve(t, dir)
		c, err := open(t, s, client.Options{})
		for err == nil { // before, nobody may know it
			_, err = c.Next(t.Context())
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		r := s.verb(t, dir, "skip", "--steps", "1")
		r.expect(t, exitUser, "the data ends after step", "none left to change")
	})
}

// TestEndsPaused: a job whose schedule moves all weight to sources that are paused ends
// there, and says why everywhere. The sixth step has what was carried into it.
func TestEndsPaused(t *testing.T) {
	t.Parallel()
	dir := folder(t, "  weights: {words: 0.75, notes: 0.25}", "  stages:\n    - {from: 0, weights: {words: 0.75, notes: 0.25}}\n    - {from: 5, weights: {words: 1}}")
	put(t, dir, "pause.jsonl", `{"step":2,"pause":"words"}`+"\n")
	const why = "ended at step 6: all sources with weight are paused or dropped (words): to go on, start from a token of a step before, with --changes"
	r := millrace(t, dir, "run", "job.yaml", "--changes", "pause.jsonl", "--log-level", "warn")
	r.expect(t, 0, "level=WARN", "the data ends early", "paused or dropped (words)")
	if !strings.Contains(r.stdout, why) {
		t.Errorf("the summary does not say why the data ends:\n%s", r.stdout)
	}
	if got, want := r.digest(t), millrace(t, dir, "reference", "job.yaml", "--changes", "pause.jsonl").digest(t); got != want {
		t.Errorf("the job ends with %s, the reference with %s", got, want)
	}
	s := running(t, dir, "--changes", "pause.jsonl", "--prefetch", "8")
	for deadline := time.Now().Add(hangs); ; time.Sleep(20 * time.Millisecond) {
		r := s.verb(t, dir, "status")
		if strings.Contains(r.stdout, why) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the status does not say why the data ends:\n%s", r.stdout)
		}
	}
	put(t, dir, "on.jsonl", `{"step":2,"pause":"words"}`+"\n"+`{"step":5,"resume":"words"}`+"\n")
	on := millrace(t, dir, "run", "job.yaml", "--changes", "on.jsonl", "--steps", "8")
	if on.digest(t); strings.Contains(on.stdout, "ended at step") {
		t.Errorf("a job that goes on prints\n%s", on.stdout)
	}
}

// TestChangeFiles: a file that cannot be is refused before the first step, with
// the place in the file.
func TestChangeFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, changes string
		want          []string
	}{
		{"not JSON", "\n# note\nfive\n", []string{"c.jsonl:3:", "invalid character"}},
		{"two on a line", `{"pause":"words"} {"skip":1}`, []string{"c.jsonl:1:", "more than one JSON object"}},
		{"unknown field", `{"weight":{"words":1}}`, []string{"c.jsonl:1:", `did you mean "weights"?`, "valid is such as"}},
		{"negative weight", `{"weights":{"words":-1}}`, []string{"c.jsonl:1:", `weight of source "words" is -1`}},
		{"unknown source", "{\"skip\":1}\n" + `{"step":5,"pause":"word"}`, []string{"c.jsonl:2:", `"pause":"word"`, `did you mean "words"?`}},
		{"not in this order", `{"step":3,"resume":"words"}` + "\n" + `{"step":5,"pause":"words"}`, []string{"c.jsonl:1:", `source "words" is not paused`}},
		{"topology", `{"step":3,"topology":{"dp":3}}`, []string{"c.jsonl:1:", "4 rows are not a multiple of dp 3"}},
		{"unknown file", `{"step":3,"ban":{"source":"words","file":"7.jsonl","row":1}}`, []string{"c.jsonl:1:", `no file "7.jsonl"`}},
		{"wrong source", `{"step":3,"add":{"source":{"name":"x","files":"nope.jsonl"},"weight":0.1}}`, []string{"c.jsonl:1:", "nope.jsonl", "no such file"}},
		{"paused for good", `{"step":3,"drop":"words"}` + "\n" + `{"step":4,"drop":"notes"}`, []string{"c.jsonl:2:", `without source "notes" no source with a weight is left`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := changing(t)
			put(t, dir, "c.jsonl", c.changes)
			r := millrace(t, dir, "run", "job.yaml", "--changes", "c.jsonl", "--log-dir", "log")
			r.expect(t, exitUser, c.want...)
			if r.stdout != "" {
				t.Errorf("the job ran:\n%s", r.stdout)
			}
			if _, err := os.Stat(filepath.Join(dir, "log")); err == nil {
				if left := millrace(t, dir, "changes", "--log-dir", "log"); left.stdout != "" {
					t.Errorf("the log keeps some of them:\n%s", left.stdout)
				}
			}
		})
	}
	dir := folder(t)
	for _, verb := range []string{"run", "serve", "planner", "reference"} {
		millrace(t, dir, verb, "job.yaml", "--changes", "nope.jsonl").expect(t, exitUser, "nope.jsonl", "no such file")
	}
	put(t, dir, "late.jsonl", "\n"+`{"step":3,"add":{"source":{"name":"late","files":"late/*.jsonl"},"weight":0.1}}`)
	for _, args := range []string{"reference job.yaml", "plan job.yaml --steps 6", "preview job.yaml --step 5", "explain job.yaml --step 5", "verify job.yaml --steps 6 --digest " + strings.Repeat("0", 64)} {
		millrace(t, dir, append(strings.Fields(args), "--changes", "late.jsonl")...).expect(t, exitUser, "late.jsonl:2:", "the source cannot join", "late/*.jsonl", "no such file")
	}
	millrace(t, dir, "run", "job.yaml", "--steps", "6", "--log-dir", "log").expect(t, 0)
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "log", "--changes", "late.jsonl").expect(t, exitUser, "late.jsonl:2:", "late/*.jsonl", "no such file")
}

// TestChangesGoOn: a log has the changes of a file once, and goes on without it.
func TestChangesGoOn(t *testing.T) {
	t.Parallel()
	dir := changing(t)
	put(t, dir, "c.jsonl", `{"step":2,"ban":{"source":"words","file":"1.jsonl","row":0}}
{"step":4,"skip":1}
{"step":4,"skip":1}
{"step":6,"add":{"source":{"name":"more", "files": "more/0.jsonl"},"weight":0.3}}
{"step":12,"topology":{"dp":1}}
`)
	want := millrace(t, dir, "reference", "job.yaml", "--changes", "c.jsonl", "--steps", "20").digest(t)
	millrace(t, dir, "run", "job.yaml", "--changes", "c.jsonl", "--log-dir", "log", "--steps", "7", "--save-token", "7.json").digest(t)
	for _, args := range []string{
		"--steps 20 --changes c.jsonl --log-dir log", "--steps 20 --log-dir log", "--steps 13 --resume 7.json --log-dir log", "--steps 13 --resume 7.json",
		"--steps 13 --resume 7.json --log-dir new", "--steps 13 --resume 7.json --changes c.jsonl --processes",
	} {
		r := millrace(t, dir, append([]string{"run", "job.yaml"}, strings.Fields(args)...)...)
		if got := r.digest(t); got != want {
			t.Errorf("run %s ends with %s, want %s", args, got, want)
		}
	}
	logged := millrace(t, dir, "changes", "--log-dir", "log")
	if n := strings.Count(logged.stdout, "\n"); n != 5 {
		t.Errorf("the log has %d changes:\n%s", n, logged.stdout)
	}
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, 0)
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "new", "--changes", "c.jsonl").expect(t, 0)
	put(t, dir, "late.jsonl", `{"step":3,"pause":"notes"}`)
	millrace(t, dir, "run", "job.yaml", "--changes", "late.jsonl", "--log-dir", "log").
		expect(t, exitUser, "late.jsonl:1:", "has the steps before", "valid is step 2")
}

// TestChangesPast: a service that goes on from a token takes a file with changes
// that the token has, and refuses one that it does not have.
func TestChangesPast(t *testing.T) {
	t.Parallel()
	dir := changing(t)
	const past = `{"step":1,"ban":{"source":"words","file":"1.jsonl","row":0}}
{"step":2,"skip":1}
{"step":2,"skip":1}
{"step":2,"weights":{"words":2,"notes":1}}
{"step":3,"add":{"source":{"name":"more","files":"more/0.jsonl"},"weight":0.3}}
{"step":3,"pause":"notes"}
{"step":4,"resume":"notes"}
{"step":4,"sequences":8}
{"step":5,"topology":{"tp":1}}
{"step":6,"drop":"more"}
`
	const later = `{"step":7,"pause":"notes"}` + "\n" + `{"step":12,"skip":1}` + "\n"
	put(t, dir, "past.jsonl", past)
	put(t, dir, "all.jsonl", past+later)
	put(t, dir, "later.jsonl", later)
	millrace(t, dir, "run", "job.yaml", "--changes", "past.jsonl", "--steps", "7", "--save-token", "7.json").digest(t)
	want := millrace(t, dir, "reference", "job.yaml", "--changes", "all.jsonl", "--steps", "16").digest(t)
	for _, args := range []string{"all.jsonl", "later.jsonl", "all.jsonl --processes", "all.jsonl --log-dir new"} {
		r := millrace(t, dir, append(strings.Fields("run job.yaml --steps 9 --resume 7.json --changes"), strings.Fields(args)...)...)
		if got := r.digest(t); got != want {
			t.Errorf("with %s it ends with %s, want %s", args, got, want)
		}
	}
	explained := millrace(t, dir, "explain", "job.yaml", "--step", "9", "--resume", "7.json", "--changes", "all.jsonl")
	if explained.expect(t, 0); explained.stdout != millrace(t, dir, "explain", "job.yaml", "--step", "9", "--changes", "all.jsonl").stdout {
		t.Errorf("step 9 is explained otherwise from a token:\n%s", explained.stdout)
	}
	for _, c := range []string{
		`{"step":1,"ban":{"source":"words","file":"1.jsonl","row":9}}`, `{"step":6,"skip":1}`, `{"step":3,"weights":{"notes":2,"words":2}}`, `{"step":3,"schedule":true}`,
		`{"step":4,"add":{"source":{"name":"x","files":"more/0.jsonl"},"weight":0.1}}`, `{"step":6,"pause":"words"}`, `{"step":0,"drop":"notes"}`,
		`{"step":5,"sequence_length":512}`, `{"step":6,"topology":{"dp":4}}`,
	} {
		put(t, dir, "c.jsonl", strings.Split(past, "\n")[4]+"\n"+c+"\n") // the source that joins is part of the token
		for _, args := range [][]string{{"run", "--steps", "2"}, {"explain", "--step", "8"}} {
			args = append([]string{args[0], "job.yaml", "--resume", "7.json", "--changes", "c.jsonl"}, args[1:]...)
			millrace(t, dir, args...).expect(t, exitUser, "c.jsonl:2: the change "+c, "token of step 7 did not have it", "leave it out")
		}
	}
}

// TestShapesRefused: rows that cannot be cut over the ranks of a mesh are refused
// when they are asked for, not when a step of them is planned.
func TestShapesRefused(t *testing.T) {
	t.Parallel()
	dir := changing(t, "topology: {dp: 2}", "topology: {dp: 2, cp: 2}")
	for _, c := range []struct {
		change string
		want   []string
	}{
		{`{"step":3,"sequence_length":1002}`, []string{"batch.sequence_length: 1002 is not a multiple of 2 * cp = 4", "1000 and 1004"}},
		{`{"step":3,"sequence_length":132}` + "\n" + `{"step":4,"topology":{"cp":4}}`, []string{"c.jsonl:2:", "132 is not a multiple of 2 * cp = 8", "128 and 136"}},
		{`{"step":3,"topology":{"cp":4}}` + "\n" + `{"step":4,"sequence_length":132}`, []string{"c.jsonl:2:", "132 is not a multiple of 2 * cp = 8"}},
	} {
		put(t, dir, "c.jsonl", c.change)
		millrace(t, dir, "run", "job.yaml", "--changes", "c.jsonl", "--steps", "6").expect(t, exitUser, c.want...)
	}
	put(t, dir, "c.jsonl", `{"step":3,"sequence_length":132}`)
	r := millrace(t, dir, "run", "job.yaml", "--changes", "c.jsonl", "--steps", "6")
	if want := millrace(t, dir, "reference", "job.yaml", "--changes", "c.jsonl", "--steps", "6").digest(t); r.digest(t) != want {
		t.Errorf("the digest is %s, want %s", r.digest(t), want)
	}
}
