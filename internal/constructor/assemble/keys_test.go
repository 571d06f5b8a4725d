package assemble

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The tables of docs/bytes.md are Keys, row by row and in order.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/bytes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range Formats() {
		_, section, ok := strings.Cut(string(page), fmt.Sprintf("### `format: %s`", format))
		if !ok {
			t.Fatalf("docs/bytes.md has no section for %s", format)
		}
		section, _, _ = strings.Cut(section, "\n###")
		var got, want []string
		for line := range strings.Lines(section) {
			if strings.HasPrefix(line, "| `") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		for _, key := range Keys(format) {
			stages := string(key.Stages)
			if key.When != Always {
				stages += ", " + string(key.When)
			}
			want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s | %s |", key.Name, key.DType, key.Shape, stages, key.Doc))
		}
		if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
			t.Errorf("%s in docs/bytes.md:\n%s\nwant\n%s", format, g, w)
		}
	}
	if Keys("flax") != nil {
		t.Error("Keys of a name that is no format is not nil")
	}
}
