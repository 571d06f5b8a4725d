package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// verbs are the commands as kong knows them.
func verbs() []*kong.Node {
	var c cli
	return parserOf(&c).Model.Leaves(true)
}

// TestManual holds docs/cli.md against the flags there are.
func TestManual(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(raw)
	known := map[string]bool{"--help": true}
	for _, v := range verbs() {
		verb := verbOf(v)
		section := sectionOf(manual, verb)
		if section == "" {
			t.Errorf("docs/cli.md has no section ## %s", verb)
			continue
		}
		for _, f := range v.Flags {
			if f.Hidden { // between a service and its processes
				continue
			}
			known["--"+f.Name] = true
			if !strings.Contains(section, "`--"+f.Name+"`") && !strings.Contains(section, "`--"+f.Name+" ") {
				t.Errorf("docs/cli.md: section %s does not name --%s", verb, f.Name)
			}
		}
		for _, a := range v.Positional {
			if !strings.Contains(section, strings.ToUpper(a.Name)) {
				t.Errorf("docs/cli.md: section %s does not name the argument %s", verb, strings.ToUpper(a.Name))
			}
		}
	}
	var c cli
	for _, f := range parserOf(&c).Model.Flags {
		known["--"+f.Name] = true
		if !strings.Contains(manual, "`--"+f.Name) {
			t.Errorf("docs/cli.md does not name --%s", f.Name)
		}
	}
	for _, flag := range regexp.MustCompile("--[a-z][a-z-]+").FindAllString(manual, -1) {
		if !known[flag] {
			t.Errorf("docs/cli.md names %s, which is no flag", flag)
		}
	}
	for _, code := range []string{"0", "1", "2", "3", "4", "5", "130"} {
		if !strings.Contains(manual, "\n| "+code+" |") {
			t.Errorf("docs/cli.md does not describe exit code %s", code)
		}
	}
}

// sectionOf cuts out the section of a verb.
func sectionOf(manual, verb string) string {
	_, rest, ok := strings.Cut(manual, "\n## "+verb+"\n")
	if !ok {
		return ""
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	return section
}
