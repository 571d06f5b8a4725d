package cli

import (
	"runtime"
	"runtime/debug"
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
		{"bogus", []string{"bogus", "millrace --help"}},
		{"run", []string{"<job>", "millrace run --help"}},
		{"run job.yaml extra", []string{"unexpected argument extra", "millrace run --help"}},
		{"run job.yaml --nope", []string{"unknown flag --nope", "millrace run --help"}},
		{"run job.yaml --steps many", []string{"--steps", "many"}},
		{"run job.yaml --steps=-1", []string{"--steps is -1", "0 or more"}},
		{"run job.yaml --loaders 0", []string{"--loaders is 0", "1 or more"}},
		{"run job.yaml --loaders 100000000", []string{"--loaders is 100000000", "4096 or less"}},
		{"serve job.yaml --prefetch 100000000", []string{"--prefetch is 100000000", "1048576 or less"}},
		{"serve job.yaml --constructors 0", []string{"--constructors is 0", "1 or more", "millrace serve --help"}},
		{"planner job.yaml --scale-command true", []string{"--scale-command", "--most-loaders: give both"}},
		{"planner job.yaml --scale-command true --loaders 4 --most-loaders 4", []string{"--scale-command scales up to --most-loaders, which is 4", "begins with, 4"}},
		{"planner job.yaml --most-loaders 100000000", []string{"--most-loaders is 100000000", "4096 or less"}},
		{"planner job.yaml --prefetch=-1", []string{"--prefetch is -1", "0 or more"}},
		{"loader", []string{"--planner"}},
		{"loader --planner 127.0.0.1:1 --workers=-1", []string{"--workers is -1", "0 or more"}},
		{"loader --planner 127.0.0.1:1 --memory 8", []string{"--memory is 8", "such as 8GiB"}},
		{"loader --planner 127.0.0.1:1 --scratch-dir gone", []string{"--scratch-dir", "gone", "no such file"}},
		{"serve job.yaml --processes --scratch-dir gone", []string{"--scratch-dir", "gone", "no such file"}},
		{"run job.yaml --scratch-dir job.yaml", []string{"--scratch-dir", "job.yaml is not a folder"}},
		{"sidecar --planner 127.0.0.1:1 --scratch-dir gone", []string{"--scratch-dir", "gone", "no such file"}},
		{"serve job.yaml --allow-root gone", []string{"--allow-root", "gone", "no such file"}},
		{"planner job.yaml --allow-root . --allow-root gone", []string{"--allow-root", "gone", "no such file"}},
		{"run job.yaml --log-level loud", []string{"--log-level", "loud"}},
		{"verify job.yaml", []string{"--log-dir", "--digest"}},
		{"verify job.yaml --digest " + strings.Repeat("0", 64), []string{"--digest needs --steps"}},
		{"verify job.yaml --steps 3 --digest abc", []string{"abc is not a digest", "64 hex digits"}},
		{"verify job.yaml --log-dir d --steps 1 --digest " + strings.Repeat("0", 64), []string{"--log-dir", "--digest"}},
		{"reference job.yaml --steps=-5", []string{"--steps is -5"}},
		{"plan job.yaml --steps=-5", []string{"--steps is -5"}},
		{"mix", []string{"set", "schedule", "millrace mix --help"}},
		{"mix set :1", []string{"web=0.7", "millrace mix set --help"}},
		{"mix set :1 words", []string{`"words" is not NAME=NUMBER`, "web=0.7"}},
		{"mix set :1 words=much", []string{`"words=much" does not end with a number`}},
		{"mix set :1 words=1 words=2", []string{"words is given twice"}},
		{"mix set :1 words=-1", []string{`weight of source "words" is -1`, "0 or more"}},
		{"mix set :1 words=NaN", []string{`weight of source "words" is NaN`}},
		{"mix set :1 words=0 notes=0", []string{"all weights are 0"}},
		{"mix set :1 words=1 --step=-3", []string{"--step is -3", "0 or more"}},
		{"mix schedule :1 --timeout=0s", []string{"--timeout is 0s", "more than 0"}},
		{"source pause :1", []string{"<name>", "millrace source pause --help"}},
		{"source add :1 --weight 0.1", []string{"--entry"}},
		{"source add :1 --entry e.yaml --weight 1", []string{"weight of the added source is 1", "between 0 and 1"}},
		{"batch :1", []string{"--sequence-length", "--sequences", "1 or more"}},
		{"batch :1 --sequences=-8", []string{"sequences -8", "1 or more"}},
		{"topology :1 dq=2", []string{`no axis "dq"`, "dp, cp, pp, tp"}},
		{"topology :1 dp=0", []string{"topology.dp is 0", "1 or more"}},
		{"skip :1", []string{"--steps"}},
		{"skip :1 --steps 0", []string{"--steps is 0", "1 or more"}},
		{"ban :1 words 0.jsonl", []string{"<row>"}},
		{"ban :1 words 0.jsonl first", []string{"first"}},
		{"change :1 {}", []string{"a change changes one thing, this one 0", "weights, schedule, pause"}},
		{`change :1 {"paus":"words"}`, []string{`did you mean "pause"?`}},
		{`change :1 {"pause":"words","drop":"notes"}`, []string{"changes one thing, this one 2"}},
		{"changes", []string{"--log-dir", "address"}},
		{"changes :1 --log-dir d", []string{"one of the two"}},
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
		verb := verbOf(v)
		if !strings.Contains(r.stdout, "\n  "+verb) {
			t.Errorf("the help does not name %s:\n%s", verb, r.stdout)
		}
		help := millrace(t, "", append(strings.Fields(verb), "--help")...)
		help.expect(t, 0)
		if verb != "version" && !strings.Contains(help.stdout, "    millrace "+verb) {
			t.Errorf("the help of %s has no example:\n%s", verb, help.stdout)
		}
	}
}

// TestVersion: the flag prints what the verb does, the revision of the build with it, and
// no arguments give help.
func TestVersion(t *testing.T) {
	t.Parallel()
	verb, flag := millrace(t, "", "version"), millrace(t, "", "--version")
	verb.expect(t, 0)
	flag.expect(t, 0)
	if verb.stdout != flag.stdout || !strings.Contains(flag.stdout, runtime.Version()) || strings.Count(flag.stdout, "\n") != 1 {
		t.Errorf("the verb prints %q, the flag %q", verb.stdout, flag.stdout)
	}
	built := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}}
	if got := version(built, true); got != "millrace v1.2.3 abc+ go1.26.8" {
		t.Error(got)
	}
	bare, help := millrace(t, ""), millrace(t, "", "--help")
	bare.expect(t, 0)
	if bare.stdout != help.stdout {
		t.Errorf("without arguments it prints\n%s", bare.stdout)
	}
}

// TestIncompleteUsage: an unknown verb, a negative number and arguments that are missing.
func TestIncompleteUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want []string
	}{
		{"frobnicate", []string{"unexpected argument frobnicate, valid are run, serve, planner", "millrace --help"}},
		{"plam job.yaml", []string{`did you mean "plan"?`}},
		{"log frobnicate", []string{"unexpected argument frobnicate, valid are read, check, repair, export"}},
		{"run job.yaml --steps -1", []string{"--steps is -1", "0 or more"}},
		{"cancel", []string{"<address> <change>", "millrace cancel --help"}},
		{"ban", []string{"<address> <source> <file> <row>", "millrace ban --help"}},
		{"skip", []string{"--steps", "millrace skip --help"}},
		{"mix set", []string{"<address> <source=weight>", "millrace mix set --help"}},
		{"batch", []string{"<address>", "millrace batch --help"}},
		{"topology", []string{"<address> <axis=size>", "millrace topology --help"}},
		{"change", []string{"<address> <change>", "millrace change --help"}},
	} {
		millrace(t, t.TempDir(), strings.Fields(c.args)...).expect(t, exitUsage, c.want...)
	}
	dir := folder(t)
	put(t, dir, "-1.yaml", good)
	millrace(t, dir, "lint", "--", "-1.yaml").expect(t, 0)
}
