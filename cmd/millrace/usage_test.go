package main

import (
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, c := range []struct {
		args string
		want []string
	}{
		{"", []string{"expected one of", "run", "millrace --help"}},
		{"bogus", []string{"bogus", "millrace --help"}},
		{"run", []string{"<job>", "millrace run --help"}},
		{"run job.yaml extra", []string{"unexpected argument extra", "millrace run --help"}},
		{"run job.yaml --nope", []string{"unknown flag --nope", "millrace run --help"}},
		{"run job.yaml --steps many", []string{"--steps", "many"}},
		{"run job.yaml --steps=-1", []string{"--steps is -1", "0 or more"}},
		{"run job.yaml --loaders 0", []string{"--loaders is 0", "1 or more"}},
		{"serve job.yaml --constructors 0", []string{"--constructors is 0", "1 or more", "millrace serve --help"}},
		{"planner job.yaml --prefetch=-1", []string{"--prefetch is -1", "0 or more"}},
		{"loader", []string{"--planner"}},
		{"loader --planner 127.0.0.1:1 --workers=-1", []string{"--workers is -1", "0 or more"}},
		{"run job.yaml --log-level loud", []string{"--log-level", "loud"}},
		{"verify job.yaml", []string{"--log-dir", "--digest"}},
		{"verify job.yaml --digest " + strings.Repeat("0", 64), []string{"--digest needs --steps"}},
		{"verify job.yaml --steps 3 --digest abc", []string{"abc is not a digest", "64 hex digits"}},
		{"verify job.yaml --log-dir d --steps 1 --digest " + strings.Repeat("0", 64), []string{"--log-dir", "--digest"}},
		{"reference job.yaml --steps=-5", []string{"--steps is -5"}},
		{"plan job.yaml --steps=-5", []string{"--steps is -5"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			r := millrace(t, dir, strings.Fields(c.args)...)
			r.expect(t, exitUsage, c.want...)
			if r.stdout != "" {
				t.Errorf("wrong usage prints to standard output: %s", r.stdout)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	r := millrace(t, "", "--help")
	r.expect(t, 0)
	for _, v := range verbs() {
		if !strings.Contains(r.stdout, "\n  "+v.Name) {
			t.Errorf("the help does not name %s:\n%s", v.Name, r.stdout)
		}
		help := millrace(t, "", v.Name, "--help")
		help.expect(t, 0)
		if v.Name != "version" && !strings.Contains(help.stdout, "    millrace "+v.Name) {
			t.Errorf("the help of %s has no example:\n%s", v.Name, help.stdout)
		}
	}
}
