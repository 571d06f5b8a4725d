package lint

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)             // in a document, from its folder
	mention = regexp.MustCompile(`\bdocs/[\w-]+\.md(#[\w-]+)?`) // in code and messages, from the repository
	heading = regexp.MustCompile(`^#+ +(.*?)#* *$`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	drops   = regexp.MustCompile(`\]\([^)]*\)|[^\p{L}\p{N}_\- ]`) // from a heading, to make its anchor
	remote  = regexp.MustCompile(`^[a-z]+:`)                      // of a link
	code    = regexp.MustCompile("``[^`].*?``|`[^`]*`")           // within a line
)

// anchors are the places of a document that a link can name, as GitHub makes them.
func anchors(text string) (all []string) {
	times := map[string]int{}
	for _, line := range prose(text) {
		for _, m := range anchor.FindAllStringSubmatch(line, -1) {
			all = append(all, m[1])
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			name := strings.ReplaceAll(drops.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), ""), " ", "-")
			if n := times[name]; n > 0 {
				all = append(all, name+"-"+strconv.Itoa(n))
			} else {
				all = append(all, name)
			}
			times[name]++
		}
	}
	return all
}

// prose is the lines of a document, those of code blocks left empty.
func prose(text string) []string {
	lines, block := strings.Split(text, "\n"), false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || block {
			lines[i] = ""
		}
		block = block != fence
	}
	return lines
}

// dead says what is wrong with a link to a file of the repository, by its path there; "" if nothing is. from is the document that
// has it, which a link without a path means.
func dead(root, from, to string) string {
	name, place, _ := strings.Cut(to, "#")
	if name == "" {
		name = from
	}
	file := filepath.Join(root, filepath.FromSlash(name))
	info, err := os.Stat(file)
	if err != nil {
		return "there is no " + name
	}
	if place == "" || info.IsDir() || path.Ext(name) != ".md" {
		return ""
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(text)), place) {
		return name + " has no heading of the anchor #" + place
	}
	return ""
}

// TestLinks: links of documents to files of the repository lead to them, and to headings that are there. So do the
// names of documents in code, which are in messages.
func TestLinks(t *testing.T) {
	root, links, mentions := filepath.Join("..", ".."), 0, 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		where, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		where = filepath.ToSlash(where)
		if d.IsDir() && (where == "build" || where == "bin" || d.Name() == "testdata" || where != "." && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if d.IsDir() || !slices.Contains([]string{".go", ".md", ".py", ".yaml", ".proto"}, path.Ext(where)) {
			return nil
		}
		text, err := os.ReadFile(name)
		check := func(line int, to string) {
			if why := dead(root, where, to); why != "" {
				t.Errorf("%s:%d: %s: %s", where, line+1, to, why)
			}
		}
		if path.Ext(where) != ".md" {
			for i, line := range strings.Split(string(text), "\n") {
				for _, to := range mention.FindAllString(line, -1) {
					mentions++
					check(i, to)
				}
			}
			return err
		}
		for i, line := range prose(string(text)) {
			for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
				if to := m[1]; !remote.MatchString(to) {
					links++
					if !strings.HasPrefix(to, "#") {
						to = path.Join(path.Dir(where), to)
					}
					check(i, to)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if links < 100 || mentions < 10 {
		t.Errorf("%d links and %d names of documents were found: the test does not find them", links, mentions)
	}
	t.Logf("%d links, %d names of documents", links, mentions)
}

// TestAnchors: what becomes of a heading, and what is none.
func TestAnchors(t *testing.T) {
	text := "# The `log`: its *end*, in 5 s\n```sh\n# no heading\n```\n## See [this](that.md)\n## See [this](that.md)\n<a id=\"here\"></a>\n"
	if got, want := anchors(text), []string{"the-log-its-end-in-5-s", "see-this", "see-this-1", "here"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
