package worker

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// lacking is the last line of an interpreter that has not the packages that its program imports.
var lacking = regexp.MustCompile(`ModuleNotFoundError: No module named '(millrace|numpy)[\w.]*'$`)

// notRun are exit statuses by which a shell or a loader of programs says that it could not run one: the machine may be at fault.
var notRun = map[int]bool{126: true, 127: true}

// unfit returns the error of a first server that has ended before it said anything: of class fault.User if it ended by itself,
// as an interpreter does that cannot import our package, and a program that is none.
func (s *server) unfit(ctx context.Context, err error) error {
	if s.answered.Load() || !closed(s.gone) {
		return err
	}
	if code := s.cmd.ProcessState.ExitCode(); code < 0 || notRun[code] { // below 0: a signal ended it
		return err
	}
	if found := lacking.FindStringSubmatch(s.out.last()); found != nil {
		install := found[1]
		if install == "millrace" {
			install = "CHECKOUT/client/python, where CHECKOUT is that of this millrace"
		}
		return fault.Userf("this interpreter has no package %s: install it there (%s -m pip install %s), or name another one, such as interpreter: .venv/bin/python", found[1], s.opt.Python, install)
	}
	standard := standardModules(ctx, s.opt.Python)
	if len(standard) == 0 {
		return fault.Userf("%w: this is no Python interpreter: name one of Python 3.9 or later, such as interpreter: .venv/bin/python", s.ended)
	}
	if found := hiding(s.opt.Path, standard); len(found) > 0 {
		return fault.Userf("%w: %s hides a module of the same name that Millrace's package needs: rename it", s.ended, strings.Join(found, ", "))
	}
	return fault.Userf("%w: this interpreter cannot run Millrace's package: mend it, or name another one, such as interpreter: .venv/bin/python; or rename a module in %s that has the name of another one", s.ended, strings.Join(s.opt.Path, ", "))
}

// standardTime is for an interpreter that imports nothing, on a machine that is busy.
const standardTime = 20 * time.Second

// standardModules are the names of an interpreter's standard library, of which Python 3.9 knows the built-in ones only; none:
// this is no interpreter.
func standardModules(ctx context.Context, python string) []string {
	ctx, cancel := context.WithTimeout(ctx, standardTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, "-I", "-c", "import sys; print('modules', *getattr(sys, 'stdlib_module_names', sys.builtin_module_names))").Output()
	if names := strings.Fields(string(out)); err == nil && len(names) > 1 && names[0] == "modules" {
		return names[1:]
	}
	return nil
}

// hiding are the files in folders of modules that have the name of one of the standard library, or of a package of ours.
func hiding(folders, standard []string) (found []string) {
	for _, folder := range folders {
		for _, name := range append([]string{"millrace", "numpy"}, standard...) {
			file := filepath.Join(folder, name+".py")
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				found = append(found, file)
			}
		}
	}
	return found
}
