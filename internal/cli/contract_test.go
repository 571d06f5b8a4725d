package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/status"
)

// TestDigests holds every way to run a job against the reference.
func TestDigests(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	want := millrace(t, dir, "reference", "job.yaml", "--steps", "20").digest(t)
	if !strings.HasPrefix(want, "digest step=20 ") {
		t.Fatalf("reference ends with %s", want)
	}
	for _, args := range []string{
		"", "--json", "--loaders 3", "--constructors 2", "--loaders 2 --constructors 2 --prefetch 9",
		"--processes", "--processes --loaders 2 --constructors 2 --json", "--log-dir log",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			r := millrace(t, dir, append(strings.Fields("run job.yaml --steps 20"), strings.Fields(args)...)...)
			if got := r.digest(t); got != want {
				t.Errorf("run %s ends with %s, want %s", args, got, want)
			}
			if r.stderr != "" {
				t.Errorf("run %s prints to standard error: %s", args, r.stderr)
			}
		})
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	want := millrace(t, dir, "run", "job.yaml", "--steps", "20").digest(t)
	millrace(t, dir, "run", "job.yaml", "--steps", "10", "--save-token", "token.json").digest(t)
	var f tokenFile
	raw, err := os.ReadFile(filepath.Join(dir, "token.json"))
	if err != nil {
		t.Fatal(err)
	}
	decode(t, string(raw), &f)
	if f.Job != "tiny" || f.Step != 10 || len(f.Token) == 0 {
		t.Errorf("the token file is %s", raw)
	}
	put(t, dir, "raw.token", string(f.Token)) // as Client.State returns it
	for _, args := range [][]string{{"token.json"}, {"raw.token"}, {"token.json", "--processes"}, {"token.json", "--constructors", "2"}} {
		args = append([]string{"run", "job.yaml", "--steps", "10", "--resume"}, args...)
		if got := millrace(t, dir, args...).digest(t); got != want {
			t.Errorf("%v ends with %s, want %s", args, got, want)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".millrace-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over beside the token: %v (%v)", left, err)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	millrace(t, dir, "run", "job.yaml", "--steps", "3", "--save-token", "token.json").digest(t)
	raw, err := os.ReadFile(filepath.Join(dir, "token.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f tokenFile
	decode(t, string(raw), &f)
	edited := func(edit func(f *tokenFile)) string {
		g := f
		g.Token = append([]byte{}, f.Token...)
		edit(&g)
		data, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for name, data := range map[string]string{
		"cut":       edited(func(f *tokenFile) { f.Token = f.Token[:len(f.Token)/2] }),
		"garbage":   edited(func(f *tokenFile) { f.Token = []byte("not a token at all") }),
		"no token":  `{"job": "tiny"}`,
		"cut file":  string(raw[:len(raw)/2]),
		"empty":     "",
		"not JSON":  "digest step=3",
		"cut bytes": string(f.Token[:len(f.Token)-1]),
		"wrong mix": strings.Replace(string(raw), "{", "[", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			put(t, dir, name+".json", data)
			millrace(t, dir, "run", "job.yaml", "--resume", name+".json").expect(t, exitUser, "resume token", "damaged", "--save-token")
		})
	}
	t.Run("every byte", func(t *testing.T) { // whatever is in a token: no panic, no bug, no hang
		t.Parallel()
		for at := 0; at < len(f.Token); at += 1 + len(f.Token)/12 {
			name := fmt.Sprintf("flip%d.json", at)
			put(t, dir, name, edited(func(f *tokenFile) { f.Token[at] ^= 0x55 }))
			if r := millrace(t, dir, "run", "job.yaml", "--steps", "2", "--resume", name); r.code != 0 && r.code != exitUser {
				t.Errorf("byte %d of the token flipped: exit code %d: %s", at, r.code, r.stderr)
			}
		}
	})
	t.Run("other job", func(t *testing.T) {
		t.Parallel()
		other := folder(t, "seed: 7", "seed: 8")
		millrace(t, other, "run", "job.yaml", "--resume", filepath.Join(dir, "token.json")).
			expect(t, exitUser, "resume token is of job", "must be the same", "start the service with the spec")
	})
	t.Run("other data", func(t *testing.T) {
		t.Parallel()
		other := folder(t)
		put(t, other, "words/0.jsonl", lines(149))
		millrace(t, other, "run", "job.yaml", "--resume", filepath.Join(dir, "token.json")).
			expect(t, exitUser, "data of job", "changed since the resume token", "put the files back")
	})
	t.Run("unwritable", func(t *testing.T) {
		t.Parallel()
		r := millrace(t, dir, "run", "job.yaml", "--save-token", "nowhere/token.json")
		r.expect(t, exitUser, filepath.Join(dir, "nowhere/token.json")+": no such file or directory", "--save-token in a folder that is there")
		if r.stdout != "" {
			t.Errorf("the job ran before the token's path was found wrong:\n%s", r.stdout)
		}
		disk := fullDisk(t)
		put(t, disk, "token.json", "") // no room for more
		r = millrace(t, dir, "run", "job.yaml", "--save-token", filepath.Join(disk, "token.json"))
		r.expect(t, exitLost, "no space left", "has room")
		if left, err := os.ReadDir(disk); err != nil || len(left) != 2 || r.stdout != "" {
			t.Errorf("the disk has %v (%v), the job did\n%s", left, err, r.stdout)
		}
		millrace(t, dir, "run", "job.yaml", "--save-token", "words").expect(t, exitUser, "words: it is a folder", "--save-token")
		millrace(t, dir, "run", "job.yaml", "--resume", "nope.json").expect(t, exitUser, "nope.json", "--save-token")
	})
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		if _, err := os.Stat("/dev/full"); err != nil {
			t.Skip("there is no /dev/full here")
		}
		r := millrace(t, dir, "run", "job.yaml", "--steps", "2", "--save-token", "/dev/full")
		r.expect(t, exitLost, "/dev/full", "no space left", "--save-token")
		if !digestLast.MatchString(r.stdout) {
			t.Errorf("the digest is lost with the token:\n%s", r.stdout)
		}
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		for _, verb := range []string{"run", "reference"} {
			cmd := command(t.Context(), dir, verb, "job.yaml", "--steps", "2")
			cmd.Stdout = full
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if cmd.Run(); cmd.ProcessState.ExitCode() != exitLost || !strings.Contains(stderr.String(), "writing to standard output") {
				t.Errorf("%s without room for its digest: exit code %d: %s", verb, cmd.ProcessState.ExitCode(), stderr.String())
			}
		}
	})
}

func TestRunJSON(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := millrace(t, dir, "run", "job.yaml", "--steps", "5", "--json")
	r.digest(t)
	all := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(all) != 7 {
		t.Fatalf("%d lines for 5 steps, a run and a digest:\n%s", len(all), r.stdout)
	}
	var tokens int64
	for i, line := range all[:5] {
		var s stepJSON
		decode(t, line, &s)
		tokens += s.Tokens
		if s.Step != int64(i) || s.Sources["words"]+s.Sources["notes"] != s.Tokens || s.Fill <= 0 || s.Fill > 1 || len(s.Digest) != 64 || s.Bytes <= 0 {
			t.Errorf("step %d: %s", i, line)
		}
	}
	var sum runJSON
	decode(t, all[5], &sum)
	if sum.Job != "tiny" || sum.Steps != 5 || sum.FirstStep != 0 || sum.Ended || sum.Tokens != tokens || sum.Seconds <= 0 || sum.TokensPerSec <= 0 ||
		sum.TokenBytes == 0 || len(sum.Status.Sources) != 2 || sum.Status.State != "running" {
		t.Errorf("the run: %s", all[5])
	}
	if want := "digest step=5 " + sum.Digest; all[6] != want {
		t.Errorf("the last line is %s, want %s", all[6], want)
	}
}

func TestEndOfData(t *testing.T) {
	t.Parallel()
	dir := folder(t, "notes: 0.25}", "notes: 0.25}\n  epochs: 1")
	want := millrace(t, dir, "reference", "job.yaml", "--steps", "0").digest(t)
	r := millrace(t, dir, "run", "job.yaml", "--steps", "0", "--save-token", "end.json")
	if got := r.digest(t); got != want {
		t.Errorf("run ends with %s, reference with %s", got, want)
	}
	steps := digestLast.FindStringSubmatch(r.stdout)[1]
	if !strings.Contains(r.stdout, "the data ended after "+steps+" steps") {
		t.Errorf("the summary does not say that the data ended:\n%s", r.stdout)
	}
	again := millrace(t, dir, "run", "job.yaml", "--resume", "end.json")
	if again.digest(t) != want || !strings.Contains(again.stdout, "no step from step "+steps+" on") {
		t.Errorf("going on after the end:\n%s", again.stdout)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := millrace(t, dir, "run", "job.yaml", "--steps", "12", "--log-dir", "log")
	r.digest(t)
	hex := digestLast.FindStringSubmatch(r.stdout)
	t.Run("digest", func(t *testing.T) {
		t.Parallel()
		if got := millrace(t, dir, "verify", "job.yaml", "--steps", "12", "--digest", strings.ToUpper(hex[2])).digest(t); got != r.digest(t) {
			t.Errorf("verify ends with %s", got)
		}
		millrace(t, dir, "verify", "job.yaml", "--steps", "11", "--digest", hex[2]).expect(t, exitDiffers, "step=11", hex[2], "millrace reference")
		millrace(t, dir, "verify", "job.yaml", "--steps", "12", "--digest", strings.Repeat("ab", 32)).expect(t, exitDiffers, "step=12 "+hex[2], "--every")
	})
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		ok := millrace(t, dir, "verify", "job.yaml", "--log-dir", "log")
		m := regexp.MustCompile(`verified (\d+) digests of (\d+) steps`).FindStringSubmatch(ok.stdout)
		ok.digest(t)
		if m == nil {
			t.Fatalf("verify prints %s", ok.stdout)
		}
		if n, err := strconv.Atoi(m[1]); err != nil || n < 12 {
			t.Errorf("verify compared %s digests after 12 steps", m[1])
		}
		if got := millrace(t, dir, "verify", "job.yaml", "--log-dir", "log", "--steps", "12").digest(t); got != r.digest(t) {
			t.Errorf("verify of 12 steps ends with %s", got)
		}
		millrace(t, dir, "verify", "job.yaml", "--log-dir", "nowhere").expect(t, exitUser, "there is no log in", "nowhere")
		if _, err := os.Stat(filepath.Join(dir, "nowhere")); err == nil {
			t.Error("verify made the folder that it was to read")
		}
		other := folder(t, "seed: 7", "seed: 8")
		millrace(t, other, "verify", "job.yaml", "--log-dir", filepath.Join(dir, "log")).expect(t, exitUser, "log")
	})
}

func TestReferenceEvery(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := millrace(t, dir, "reference", "job.yaml", "--steps", "3", "--every")
	all := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(all) != 3 || all[2] != millrace(t, dir, "reference", "job.yaml", "--steps", "3").digest(t) ||
		all[0] != millrace(t, dir, "reference", "job.yaml", "--steps", "1").digest(t) {
		t.Errorf("reference --every prints\n%s", r.stdout)
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := millrace(t, dir, "lint", "job.yaml")
	r.expect(t, 0)
	if !strings.Contains(r.stdout, "2 sources, 4 rows of 128 tokens a step, dp 2") || r.stderr != "" {
		t.Errorf("lint prints %s and %s", r.stdout, r.stderr)
	}
	printed := millrace(t, dir, "lint", "job.yaml", "--print")
	printed.expect(t, 0)
	put(t, dir, "printed.yaml", printed.stdout)
	if again := millrace(t, dir, "lint", "printed.yaml", "--print"); again.stdout != printed.stdout {
		t.Errorf("a printed spec prints otherwise:\n%s\n%s", printed.stdout, again.stdout)
	}
	a, b := millrace(t, dir, "reference", "job.yaml").digest(t), millrace(t, dir, "reference", "printed.yaml").digest(t)
	if a != b {
		t.Errorf("a printed spec is another job: %s and %s", a, b)
	}
	warned := folder(t, "words: 0.75", "words: 0.5")
	millrace(t, warned, "lint", "job.yaml").expect(t, 0, "job.yaml:9: warning: mix.weights: the weights sum to 0.75")
	r = millrace(t, warned, "run", "job.yaml", "--steps", "1", "--log-format", "json")
	r.expect(t, 0)
	var line struct{ Level, Msg string }
	if err := json.Unmarshal([]byte(r.stderr), &line); err != nil || line.Level != "WARN" || !strings.Contains(line.Msg, "job.yaml:9: warning: mix.weights") {
		t.Errorf("a warning in a log of JSON is %q: %v", r.stderr, err)
	}
}

func TestSchemaAndVersion(t *testing.T) {
	t.Parallel()
	r := millrace(t, "", "schema")
	r.expect(t, 0)
	var schema map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &schema); err != nil || schema["properties"] == nil {
		t.Errorf("schema prints %v, %.100s", err, r.stdout)
	}
	r = millrace(t, "", "version")
	r.expect(t, 0)
	if !regexp.MustCompile(`^millrace \S+.*\n$`).MatchString(r.stdout) {
		t.Errorf("version prints %q", r.stdout)
	}
}

// TestInterrupt stops a run that has no end of its own, as a terminal does: all of its
// processes. The run goes on from its token.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, more := range []string{"--log-dir log", "--processes --loaders 2"} {
			t.Run(sig.String()+" "+more, func(t *testing.T) {
				t.Parallel()
				dir := folder(t)
				cmd := command(t.Context(), dir, append(strings.Fields("run job.yaml --steps 1000000 --save-token t"), strings.Fields(more)...)...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				var first sync.Once
				cmd.Stdout = onWrite(func() { first.Do(func() { syscall.Kill(-cmd.Process.Pid, sig) }) }) // at the first line of progress
				r := runCommand(t, cmd)
				r.expect(t, exitInterrupted)
				m := digestLast.FindStringSubmatch(r.stdout)
				if m == nil {
					t.Fatalf("an interrupted run prints %s", r.stdout)
				}
				millrace(t, dir, "verify", "job.yaml", "--steps", m[1], "--digest", m[2]).expect(t, 0)
				m = digestLast.FindStringSubmatch(millrace(t, dir, "run", "job.yaml", "--steps", "5", "--resume", "t").stdout)
				if m == nil {
					t.Fatal("no run goes on from the token of one that was interrupted")
				}
				millrace(t, dir, "verify", "job.yaml", "--steps", m[1], "--digest", m[2]).expect(t, 0)
			})
		}
	}
}

// TestInterruptEarly stops runs before their first step, while ranks join.
func TestInterruptEarly(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for after := 20 * time.Millisecond; after < 140*time.Millisecond; after += 10 * time.Millisecond {
		ctx, hung := context.WithTimeout(t.Context(), hangs)
		defer hung()
		var stderr bytes.Buffer
		cmd := command(ctx, dir, "run", "job.yaml", "--steps", "1000000")
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitInterrupted && code != -1 || stderr.Len() > 0 { // -1: before it listened for signals
			t.Errorf("stopped after %v: exit code %d: %s", after, code, stderr.String())
		}
	}
}

// TestTemporaryFolder has no folder for temporary files, or one whose path is too long for sockets.
func TestTemporaryFolder(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	want := millrace(t, dir, "reference", "job.yaml", "--steps", "3").digest(t)
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, temp := range []string{long, filepath.Join(dir, "nowhere")} {
		for _, processes := range []string{"--processes", "--processes=false"} {
			cmd := command(t.Context(), dir, "run", "job.yaml", "--steps", "3", processes)
			cmd.Env = append(os.Environ(), "TMPDIR="+temp)
			if got := runCommand(t, cmd).digest(t); got != want {
				t.Errorf("TMPDIR=%s %s: %s, want %s", temp, processes, got, want)
			}
		}
	}
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// TestVerifyDamagedLog: damage anywhere in the log's table is found, also in records,
// which no digest is compared with.
func TestVerifyDamagedLog(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	millrace(t, dir, "run", "job.yaml", "--steps", "200", "--log-dir", "log").digest(t)
	millrace(t, dir, "run", "job.yaml", "--steps", "200", "--log-dir", "log").digest(t) // what was logged is in a table now
	tables, err := filepath.Glob(filepath.Join(dir, "log", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables: %v, %v", tables, err)
	}
	whole, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	for at := len(whole) / 16; at < len(whole)*3/4; at += len(whole) / 8 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x40
		if err := os.WriteFile(tables[0], damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").expect(t, exitUser, "is damaged")
	}
	if err := os.WriteFile(tables[0], whole, 0o644); err != nil {
		t.Fatal(err)
	}
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "log").digest(t)
}

// TestStatus asks a served job how it is.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := serve(t, folder(t))
	if s.name != "tiny" {
		t.Errorf("serve names job %q", s.name)
	}
	deadline := time.Now().Add(hangs)
	for {
		r := millrace(t, "", "status", s.address, "--json")
		r.expect(t, 0)
		var said status.Service
		decode(t, r.stdout, &said)
		if said.State == "running" && len(said.Sources) == 2 && said.Sources[0].Name == "words" && said.Sources[0].Files == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the status is %s", r.stdout)
		}
		time.Sleep(20 * time.Millisecond)
	}
	r := millrace(t, "", "status", s.address)
	r.expect(t, 0)
	for _, want := range []string{"job tiny: running", "waiting for:", "words", "notes", "loader-0", "constructor-0"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the status does not say %q:\n%s", want, r.stdout)
		}
	}
	millrace(t, "", "status", "127.0.0.1:1").expect(t, exitLost, "asking 127.0.0.1:1 for its status", "connection refused", "is a service running there")
}
