package functions

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/nvml"
	"github.com/millrace-data/millrace/internal/worker"
	"github.com/millrace-data/millrace/jobspec"
)

// interpreter is a Python with NumPy.
func interpreter(t *testing.T) string {
	for _, name := range []string{os.Getenv("MILLRACE_PYTHON"), "../../.venv/bin/python"} {
		if path, err := filepath.Abs(name); name != "" && err == nil && exec.Command(path, "-c", "import numpy").Run() == nil {
			return path
		}
	}
	t.Skip("no Python with NumPy: run make .venv/tested, or set MILLRACE_PYTHON")
	return ""
}

// TestVisible: which devices CUDA_VISIBLE_DEVICES leaves.
func TestVisible(t *testing.T) {
	all := []nvml.Device{{Index: 0, UUID: "GPU-aa"}, {Index: 1, UUID: "GPU-ab"}, {Index: 2, UUID: "GPU-b"}}
	for named, want := range map[string]string{"0,2": "GPU-aa GPU-b", "": "", "GPU-ab, 0": "GPU-ab GPU-aa", "7": "", "-1": ""} {
		var got []string
		for _, d := range visible(all, named, true) {
			got = append(got, d.UUID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q leaves %v, want %s", named, got, want)
		}
	}
	if got := visible(all, "", false); len(got) != 3 {
		t.Errorf("without it %v are there", got)
	}
}

// TestNeeds: a call takes as much as its function needs; one that needs a GPU is refused where there is none.
func TestNeeds(t *testing.T) {
	python := interpreter(t)
	client, err := filepath.Abs("../../client/python/src")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", client)
	dir := t.TempDir()
	code := "import millrace\n"
	for name, needs := range map[string]string{"two": `{"cpu": 2}`, "plain": `None`, "gpu": `{"gpu": 0.5}`} {
		code += "\n\n@millrace.transform(needs=" + needs + ")\ndef " + name + "(text: str) -> str:\n    return text\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "m.py"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &Set{Workers: 2, GPUs: worker.NewGPUs(nil)}
	defer s.Close()
	for name, takes := range map[string]float64{"two": 2, "plain": 0, "gpu": -1} {
		step := &jobspec.Python{Function: "m:" + name, Path: dir, Interpreter: python, BatchBytes: 1 << 20}
		f, err := s.Open(1, &jobspec.Source{Name: "s", Transforms: []jobspec.Transform{step}}, 0)
		switch {
		case takes < 0:
			if fault.ClassOf(err) != fault.User || !strings.HasPrefix(err.Error(), "function m:gpu needs a GPU, and this machine has none") {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || f.Pool.Takes != takes:
			t.Errorf("%s: %+v, %v; want %v slots", name, f, err, takes)
		}
	}
}

// TestEnvironments: those that are open are listed, with their versions.
func TestEnvironments(t *testing.T) {
	python := interpreter(t)
	client, err := filepath.Abs("../../client/python/src")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", client)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.py"), []byte("import millrace\n\n\n@millrace.transform\ndef f(text: str) -> str:\n    return text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &Set{Workers: 2}
	defer s.Close()
	open := func(function string) error {
		step := &jobspec.Python{Function: function, Path: dir, Interpreter: python, BatchBytes: 1 << 20}
		_, err := s.Open(1, &jobspec.Source{Name: "s", Transforms: []jobspec.Transform{step}}, 0)
		return err
	}
	s.Default(3, nil) // Workers says otherwise
	if err := open("none:f"); err == nil || len(s.Environments()) != 0 {
		t.Errorf("a function that is not there: %v, %v", err, s.Environments())
	}
	if err := open("m:f"); err != nil {
		t.Fatal(err)
	}
	all := s.Environments()
	if len(all) != 1 || all[0].Name != python+" with "+dir || all[0].Workers != 2 || !strings.HasPrefix(all[0].Runtime, "Python 3.") || all[0].Restarts+all[0].Busy+all[0].Waiting != 0 {
		t.Errorf("got %+v", all)
	}
}
