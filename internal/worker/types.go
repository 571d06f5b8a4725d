package worker

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// Type is what the values of a column are.
type Type struct {
	Kind     format.Kind
	Nullable bool
	Of       *Type // the elements of a List
}

// kindNames are the kinds that columns of functions have, as both sides name them.
var kindNames = map[string]format.Kind{
	"string": format.String, "bytes": format.Bytes, "int": format.Int, "float": format.Float, "bool": format.Bool, "tokens": format.Tokens,
}

// String writes a type as ParseType reads it: "list<string?>".
func (t Type) String() string {
	name := "null"
	if t.Of != nil {
		name = "list<" + t.Of.String() + ">"
	}
	for word, kind := range kindNames {
		if kind == t.Kind {
			name = word
		}
	}
	if t.Nullable {
		name += "?"
	}
	return name
}

// ParseType reads a type: string, bytes, int, float, bool, tokens or list<TYPE>, with ? behind one
// that may be null.
func ParseType(text string) (Type, error) {
	name, nullable := strings.CutSuffix(text, "?")
	if kind, ok := kindNames[name]; ok {
		return Type{Kind: kind, Nullable: nullable}, nil
	}
	inner, isList := strings.CutPrefix(name, "list<")
	inner, ends := strings.CutSuffix(inner, ">")
	if !isList || !ends {
		return Type{}, fmt.Errorf("type %q is none of string, bytes, int, float, bool, tokens, list<...>", text)
	}
	of, err := ParseType(inner)
	if err != nil {
		return Type{}, err
	}
	return Type{format.List, nullable, &of}, nil
}

// nodes is the number of nodes that a column of the type has in a batch's table.
func (t Type) nodes() int {
	if t.Of != nil {
		return 1 + t.Of.nodes()
	}
	return 1
}

// Column is a column that a function takes or gives.
type Column struct {
	Name string // a field path
	Type Type
}

// UnmarshalJSON reads a column of the fork server's description.
func (c *Column) UnmarshalJSON(data []byte) error {
	var text struct{ Name, Type string }
	err := json.Unmarshal(data, &text)
	if err != nil {
		return err
	}
	c.Name = text.Name
	c.Type, err = ParseType(text.Type)
	return err
}

// Description is what a function declares, and what identifies it.
type Description struct {
	Name string `json:"name"` // module:function
	// Kind is map, filter, flat_map or map_batches.
	Kind string   `json:"kind"`
	In   []Column `json:"in"`
	Out  []Column `json:"out"` // none of a filter
	// Digest identifies the code: SHA-256 over the bytes of its module's file, its declared
	// version and its name, and the file that made it if that is another one.
	Digest  Digest `json:"digest"`
	Version string `json:"version"`
	// Needs are the resources that a worker takes, such as gpu.
	Needs map[string]float64 `json:"needs"`
	Rng   bool               `json:"rng"`   // it draws by chance, keyed by the row
	Setup bool               `json:"setup"` // a class, set up once in each worker
	// Python and NumPy are the versions that run it. They may decide bytes and are not
	// part of Digest.
	Python, NumPy string
}

// Runtime names the versions that run it. They may decide bytes, and are no part of Digest.
func (d *Description) Runtime() string { return runtimeOf(d.Python, d.NumPy) }

func runtimeOf(python, numpy string) string { return fmt.Sprintf("Python %s, NumPy %s", python, numpy) }

// Digest is a SHA-256, which JSON has as hexadecimal digits.
type Digest [32]byte

// MarshalText writes hexadecimal digits.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads hexadecimal digits.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("a digest of %d digits", len(text))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

func types(columns []Column) []Type {
	t := make([]Type, len(columns))
	for i, c := range columns {
		t[i] = c.Type
	}
	return t
}
