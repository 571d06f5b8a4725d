package columnar

import "strings"

// maxTypeName bounds the name of a type in bytes: types of thousands of fields exist.
const maxTypeName = 160

// TypeName writes the name of a type as Arrow does: list<struct<role: string, content:
// string>>. A long one ends in three dots.
type TypeName struct{ name strings.Builder }

// Full reports whether more would not be seen.
func (t *TypeName) Full() bool { return t.name.Len() > maxTypeName }

// Add adds words.
func (t *TypeName) Add(words ...string) {
	for _, w := range words {
		if !t.Full() {
			t.name.WriteString(w)
		}
	}
}

// Fields adds n fields in angle brackets, the type of which field adds.
func (t *TypeName) Fields(n int, field func(i int)) {
	t.Add("<")
	for i := range n {
		if t.Full() {
			break
		}
		if i > 0 {
			t.Add(", ")
		}
		field(i)
	}
	t.Add(">")
}

func (t *TypeName) String() string {
	if t.Full() {
		return strings.ToValidUTF8(t.name.String()[:maxTypeName], "") + "..."
	}
	return t.name.String()
}
