package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/client"
)

// stranger is the environment of another user of this machine, as far as keys go: the keys
// of this one are not there.
func stranger(t testing.TB) string { return "MILLRACE_KEY_DIR=" + t.TempDir() }

// TestStrangers: who is not the user that started a service is answered nothing, by any verb.
func TestStrangers(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, mode := range [][]string{nil, {"--processes"}} {
		s := serve(t, dir, mode...)
		for _, args := range [][]string{
			{"status", s.address}, {"changes", s.address}, {"source", "pause", s.address, "words"}, {"mix", "set", s.address, "words=1"},
			{"change", s.address, `{"skip":1}`}, {"ban", s.address, "words", "0.jsonl", "0"}, {"topology", s.address, "dp=1"},
			{"loader", "--planner", s.address}, {"constructor", "--planner", s.address},
		} {
			cmd := command(t.Context(), dir, args...)
			cmd.Env = append(os.Environ(), stranger(t))
			runCommand(t, cmd).expect(t, exitUser, "access key", "--access-key-file", "MILLRACE_ACCESS_KEY")
		}
		millrace(t, dir, "status", s.address).expect(t, 0)
		local := strings.Replace(s.address, "127.0.0.1", "localhost", 1)
		millrace(t, dir, "status", local).expect(t, 0)
		c, err := open(t, s, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Next(t.Context()); err != nil {
			t.Errorf("a trainer of the same user: %v", err)
		}
	}
}

// TestKeyFileOfAService: a service makes the key file that is named, and whoever has it is let
// in; what the service leaves, prints and shows does not have the key in it.
func TestKeyFileOfAService(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := serve(t, dir, "--processes", "--access-key-file", "job.key", "--log-level", "debug")
	raw, err := os.ReadFile(filepath.Join(dir, "job.key"))
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSpace(string(raw))
	if info, err := os.Stat(filepath.Join(dir, "job.key")); err != nil || info.Mode().Perm() != 0o600 || len(key) != 64 {
		t.Errorf("the key file: %v %v, %d characters", info.Mode(), err, len(key))
	}
	shown := ""
	for name, env := range map[string]string{"--access-key-file job.key": "", "": "MILLRACE_ACCESS_KEY_FILE=job.key", " ": "MILLRACE_ACCESS_KEY=" + key} {
		cmd := command(t.Context(), dir, append([]string{"status", s.address, "--json"}, strings.Fields(name)...)...)
		cmd.Env = append(os.Environ(), stranger(t), env)
		r := runCommand(t, cmd)
		r.expect(t, 0)
		shown += r.stdout + r.stderr
	}
	cmd := command(t.Context(), dir, "status", s.address)
	cmd.Env = append(os.Environ(), "MILLRACE_ACCESS_KEY="+strings.Repeat("0", 64))
	runCommand(t, cmd).expect(t, exitUser, "this request has another one")
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range lines {
		line, _ := os.ReadFile(file) // of a process that ended there is none
		shown += string(line)
	}
	s.stop(t)
	if shown += s.stderr.String(); strings.Contains(shown, key) {
		t.Errorf("the key is shown:\n%s", shown)
	}
	if _, err := os.Stat(filepath.Join(dir, "job.key")); err != nil {
		t.Errorf("the key file that was named is gone: %v", err)
	}
}

// TestRolesByHand: roles that are started one by one find the key by the planner's address,
// even if they are there before it.
func TestRolesByHand(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	for _, role := range []string{"loader", "constructor"} {
		cmd := command(t.Context(), dir, role, "--planner", address)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cmd.Process.Kill(); cmd.Wait() }()
	}
	planner := command(t.Context(), dir, "planner", "job.yaml", "--listen", address)
	if err := planner.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { planner.Process.Kill(); planner.Wait() }()
	c, err := client.Open(t.Context(), address, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Next(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSourcesOfOtherFolders: a source that joins is read from the folders that the operator
// has allowed, wherever names, links and tokens point.
func TestSourcesOfOtherFolders(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	put(t, outside, "more/a.jsonl", lines(50))
	put(t, outside, "secret.txt", "not for training")
	add := func(s *server, name, files string) result {
		return millrace(t, s.cmd.Dir, "change", s.address, `{"add":{"source":{"name":"`+name+`","files":"`+files+`"},"weight":0.1}}`)
	}
	dir := folder(t)
	put(t, dir, "more/a.jsonl", lines(50))
	if err := os.Symlink(filepath.Join(outside, "secret.txt"), filepath.Join(dir, "more/link.txt")); err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, "--log-dir", "log")
	c, err := open(t, s, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range []string{
		"/etc/passwd", "file:///etc/passwd", "/etc/pass*", "../../../../../../etc/passwd", "words/../../../../../../../etc/passwd",
		"{words/0.jsonl,/etc/passwd}", "words/*/../../../../../../../etc/passwd", "more/link.txt", "more/*.txt", outside + "/secret.txt", "/proc/self/environ",
	} {
		r := add(s, "more", files)
		r.expect(t, exitUser)
		if strings.Contains(files, "{") || strings.Contains(files, "*/..") {
			continue // no file matches, or it is refused
		}
		r.expect(t, exitUser, "is outside of the folders that sources which join may be read from", dir, "--allow-root")
	}
	millrace(t, dir, "change", s.address, `{"add":{"source":{"name":"more","files":"more/*.jsonl","transforms":[{"tokenize":{"encoding":"cl100k_base","ranks":"/etc/passwd"}}]},"weight":0.1}}`).
		expect(t, exitUser, "/etc/passwd", "--allow-root")
	if status := millrace(t, dir, "status", s.address); !strings.Contains(status.stdout, "running") || strings.Contains(status.stdout, "passwd") {
		t.Errorf("after sources that were refused:\n%s", status.stdout)
	}
	add(s, "more", "more/*.jsonl").expect(t, 0)
	for range 3 {
		if _, err := c.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("allowed", func(t *testing.T) {
		dir := folder(t)
		for _, mode := range [][]string{nil, {"--processes"}} {
			s := serve(t, dir, append([]string{"--allow-root", outside + "/more", "--allow-root", dir + "/notes"}, mode...)...)
			if _, err := open(t, s, client.Options{}); err != nil {
				t.Fatal(err)
			}
			add(s, "secret", outside+"/secret.txt").expect(t, exitUser, outside+"/more", "--allow-root")
			add(s, "again", "words/*.jsonl").expect(t, exitUser, "--allow-root")
			add(s, "more", outside+"/more/*.jsonl").expect(t, 0)
		}
	})
	t.Run("operator's own", func(t *testing.T) {
		dir := folder(t)
		put(t, dir, "changes.jsonl", `{"step":2,"add":{"source":{"name":"more","files":"`+outside+`/more/*.jsonl"},"weight":0.1}}`+"\n")
		millrace(t, dir, "run", "job.yaml", "--steps", "5", "--changes", "changes.jsonl", "--save-token", "token.json").expect(t, 0)
		millrace(t, dir, "run", "job.yaml", "--steps", "5", "--resume", "token.json").expect(t, exitUser, outside, "--allow-root")
		millrace(t, dir, "run", "job.yaml", "--steps", "5", "--resume", "token.json", "--allow-root", outside).expect(t, 0)
	})
}

// TestChangesAnywhere: a source that a file of changes adds is read from outside of the spec's folders, and may name variables,
// by every command that takes such a file, as by run.
func TestChangesAnywhere(t *testing.T) {
	dir, late := folder(t), t.TempDir()
	put(t, late, "0.jsonl", lines(150))
	t.Setenv("LATE_FOLDER", late)
	put(t, dir, "add.jsonl", `{"step":3,"add":{"source":{"name":"late","files":"${LATE_FOLDER}/*.jsonl","transforms":[{"text":"{text}"},{"tokenize":"bytes"}]},"weight":0.5}}`+"\n")
	want := millrace(t, dir, "run", "job.yaml", "--changes", "add.jsonl", "--steps", "6", "--log-dir", "log", "--save-token", "6.token").digest(t)
	if without := millrace(t, dir, "reference", "job.yaml", "--steps", "6").digest(t); without == want {
		t.Fatal("the source has no part in the steps")
	}
	if got := millrace(t, dir, "reference", "job.yaml", "--changes", "add.jsonl", "--steps", "6").digest(t); got != want {
		t.Errorf("the reference ends with %s, want %s", got, want)
	}
	hex := want[strings.LastIndex(want, " ")+1:]
	for _, args := range [][]string{
		{"verify", "job.yaml", "--digest", hex, "--steps", "6", "--changes", "add.jsonl"},
		{"verify", "job.yaml", "--log-dir", "log"},
		{"plan", "job.yaml", "--steps", "6", "--changes", "add.jsonl"},
		{"preview", "job.yaml", "--step", "5", "--changes", "add.jsonl"},
		{"preview", "job.yaml", "--step", "7", "--resume", "6.token", "--changes", "add.jsonl"},
		{"preview", "job.yaml", "--step", "5", "--log-dir", "log"},
		{"explain", "job.yaml", "--step", "5", "--changes", "add.jsonl"},
		{"explain", "job.yaml", "--step", "5", "--log-dir", "log"},
	} {
		millrace(t, dir, args...).expect(t, 0)
	}
}
