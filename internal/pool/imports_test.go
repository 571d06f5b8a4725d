package pool

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

// late is a module whose import begins with a file and ends with another one.
const late = `import os
import time

import millrace

open(os.path.join(os.path.dirname(__file__), "begun"), "w").close()
while not os.path.exists(os.path.join(os.path.dirname(__file__), "end")):
    time.sleep(0.01)


@millrace.transform
def f(text: str) -> str:
    return text
`

// TestImports: what a loader has a pool import ends no other loader's workers for good: one whose import ends the fork server is
// refused at once, and one that leaves meanwhile leaves the import to its end.
func TestImports(t *testing.T) {
	client, err := filepath.Abs("../../client/python/src")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", client)
	dir := modules(t, code)
	for name, text := range map[string]string{"crashes": "import os\nos._exit(7)\n", "late": late} {
		if err := os.WriteFile(filepath.Join(dir, name+".py"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := &Server{opt: Options{Interpreters: []Interpreter{{"test", python(t)}}, Path: []string{dir}, Workers: 1}}
	s.leases.open = s.environment
	var end context.CancelFunc
	s.life, end = context.WithCancel(t.Context())
	swept := make(chan struct{})
	go func() { s.leases.run(s.life); close(swept) }()
	defer func() { end(); <-swept }()

	mine := load(t, modules(t, code), 1)
	f := mine.function(t, "upper")
	first, err := s.find(t.Context(), open(mine, f, 0, false))
	if err != nil {
		t.Fatal(err)
	}
	env := first.env
	ask := func(ctx context.Context, function string) error {
		o := open(mine, f, 0, false)
		o.Function = function
		_, err := s.find(ctx, o)
		return err
	}
	err = ask(t.Context(), "crashes:f")
	if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "importing crashes:f: the fork server ended (exit status 7)") {
		t.Errorf("%v (%v)", err, fault.ClassOf(err))
	}
	if err := ask(t.Context(), "steps:none"); fault.ClassOf(err) != fault.User { // it waits for the next fork server
		t.Errorf("%v (%v)", err, fault.ClassOf(err))
	}
	if n := env.Status().Restarts; n != 1 {
		t.Errorf("an import that ends the fork server was tried %d times", n)
	}
	ctx, leave := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- ask(ctx, "late:f") }()
	until(t, "the import does not begin", func() bool { _, err := os.Stat(filepath.Join(dir, "begun")); return err == nil })
	leave()
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; err == nil || !strings.Contains(err.Error(), "is another file") {
		t.Error(err)
	}
	if n := env.Status().Restarts; n != 1 {
		t.Errorf("a loader that left during its import ended the fork server, which was started again %d times", n)
	}
}

// TestModuleEdited: a pool that has imported a module runs no other function of it by that code when its file is another one:
// a new environment has it, and who uses the old one goes on.
func TestModuleEdited(t *testing.T) {
	client, err := filepath.Abs("../../client/python/src")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", client)
	dir := modules(t, code)
	s := &Server{opt: Options{Interpreters: []Interpreter{{"test", python(t)}}, Path: []string{dir}, Workers: 1}}
	s.leases.open = s.environment
	var end context.CancelFunc
	s.life, end = context.WithCancel(t.Context())
	swept := make(chan struct{})
	go func() { s.leases.run(s.life); close(swept) }()
	defer func() { end(); <-swept }()

	old := load(t, dir, 1)
	first, err := s.find(t.Context(), open(old, old.function(t, "upper"), 0, false))
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(code, "text.split()", "text.split()[:1]", 1)
	if err := os.WriteFile(filepath.Join(dir, "steps.py"), []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Describe(t.Context(), "steps:words"); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "changed since it was imported") {
		t.Errorf("%v (%v) of a loader that has imported the file as it was", err, fault.ClassOf(err))
	}
	f := load(t, dir, 1).function(t, "words")
	second, err := s.find(t.Context(), open(old, f, 0, false))
	if err != nil {
		t.Fatal(err)
	}
	if first.env == second.env {
		t.Error("the environment that imported the old file has the new function")
	}
	if d, err := second.env.Describe(t.Context(), "steps:words"); err != nil || d.Digest != f.Description().Digest {
		t.Errorf("%x, %v", d.Digest, err)
	}
}
