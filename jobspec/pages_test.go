package jobspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
)

// TestReferencePage compares the reference pages with the declaration.
func TestReferencePage(t *testing.T) {
	for name, want := range map[string][]byte{"jobspec.md": Reference(), "operators.md": OperatorReference()} {
		path := filepath.Join("..", "docs", name)
		if *rewrite {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if page, err := os.ReadFile(path); err != nil || !bytes.Equal(page, want) {
			t.Errorf("docs/%s is out of date (%v): run go generate ./jobspec", name, err)
		}
	}
}

func TestReferenceExample(t *testing.T) {
	job, findings := Parse("example.yaml", []byte(example), "", Env(noEnv))
	if findings != nil {
		t.Fatal(findings)
	}
	checkRoundTrip(t, job)
}

// TestExamples lints every example: quickstart on the real Go tree, the others
// on empty files of the names they want.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("..", "examples", "*.yaml"))
	if err != nil || len(paths) < 3 {
		t.Fatalf("got examples %v, %v", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data := t.TempDir()
			env := Env(func(name string) (string, bool) {
				if name == "DATA" || name == "MILLRACE_DATA" {
					return data, true
				}
				return os.LookupEnv(name)
			})
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			job, findings := Parse(path, src, data, env)
			if findings != nil {
				t.Fatal(findings)
			}
			makeFiles(t, data, job)
			if _, findings := Lint(path, env); findings != nil {
				t.Error(findings)
			}
			checkRoundTrip(t, job)
			if faults := checkSchema(t, src); faults != nil {
				t.Error(faults)
			}
		})
	}
}

// makeFiles makes an empty file for each path or glob of a job below dir.
func makeFiles(t *testing.T, dir string, job *Job) {
	t.Helper()
	var names []string
	for _, s := range job.Sources {
		names = append(names, s.Files...)
		for _, step := range s.Transforms {
			if step, ok := step.(*Tokenize); ok {
				names = append(names, step.Ranks)
			}
		}
	}
	for _, name := range names {
		name = strings.NewReplacer("**", "x", "*", "x").Replace(name)
		if !strings.HasPrefix(name, dir) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQuickstartIsDisjoint checks that no file of the Go tree is read twice,
// and that every source of the quickstart has some files.
func TestQuickstartIsDisjoint(t *testing.T) {
	job, err := Load(filepath.Join("..", "examples", "quickstart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	owner := map[string]string{}
	for _, s := range job.ResolvedSources() {
		n := 0
		for _, glob := range s.Files {
			files, err := doublestar.FilepathGlob(glob)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if other, ok := owner[f]; ok {
					t.Fatalf("%s is read by %s and by %s", f, other, s.Name)
				}
				owner[f] = s.Name
			}
			n += len(files)
		}
		t.Logf("%s: %d files", s.Name, n)
		if n < 2 {
			t.Errorf("%s has %d files", s.Name, n)
		}
	}
}

// TestDeclarationIsWhole walks the declaration and the Go structs side by side:
// every Go field is declared once, with a doc line, a type that its kind can
// fill and a default that is valid.
func TestDeclarationIsWhole(t *testing.T) {
	var walk func(o *object, typ reflect.Type)
	walk = func(o *object, typ reflect.Type) {
		var declared []string
		for i := range o.fields {
			f := &o.fields[i]
			if f.doc == "" || !strings.HasSuffix(f.doc, ".") && !strings.HasSuffix(f.doc, "`.") {
				t.Errorf("%s.%s: the doc line %q is no sentence", o.title, f.key, f.doc)
			}
			if f.step != nil && f.object != nil {
				walk(f.object, f.step.Elem())
			}
			if f.name == "" {
				continue
			}
			declared = append(declared, f.name)
			member, ok := typ.FieldByName(f.name)
			if !ok {
				t.Errorf("%s has no field %s", typ, f.name)
				continue
			}
			checkType(t, f, member.Type)
			if f.object != nil {
				inner := member.Type
				if f.list || inner.Kind() == reflect.Pointer {
					inner = inner.Elem()
				}
				walk(f.object, inner)
			}
		}
		for _, name := range fieldsOf(typ) {
			if !slices.Contains(declared, name) && name != "Dir" && name != "Implied" {
				t.Errorf("%s.%s is not declared", typ, name)
			}
		}
		if o.short != "" && o.field(o.short) == nil {
			t.Errorf("%s has no field %s for its bare value", o.title, o.short)
		}
	}
	walk(&specObject, reflect.TypeFor[Job]())
}

// fieldsOf names the fields of a struct, with those of a step that it embeds; a step has those of its own type.
func fieldsOf(typ reflect.Type) (names []string) {
	if typ.Kind() == reflect.Interface {
		return nil
	}
	for i := range typ.NumField() {
		if f := typ.Field(i); f.Anonymous {
			names = append(names, fieldsOf(f.Type)...)
		} else {
			names = append(names, f.Name)
		}
	}
	return names
}

func checkType(t *testing.T, f *field, typ reflect.Type) {
	t.Helper()
	if f.list {
		if typ.Kind() != reflect.Slice {
			t.Errorf("%s is a list, its Go field a %s", f.key, typ)
			return
		}
		typ = typ.Elem()
	}
	kinds := map[kind][]reflect.Kind{
		textKind: {reflect.String}, flagKind: {reflect.Bool}, weightsKind: {reflect.Map},
		countKind: {reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64}, bytesKind: {reflect.Int64},
		objectKind: {reflect.Struct, reflect.Pointer, reflect.Interface},
	}
	if !slices.Contains(kinds[f.kind], typ.Kind()) {
		t.Errorf("%s: kind %d does not fill a %s", f.key, f.kind, typ)
	}
	if typ.Kind() == reflect.Int32 && f.max > 1<<31-1 {
		t.Errorf("%s: the bound %d does not fit an int32", f.key, f.max)
	}
	if text, ok := f.def.(string); ok && f.enum != nil && !slices.Contains(f.enum, text) {
		t.Errorf("%s: the default %q is not in %v", f.key, text, f.enum)
	}
}

// TestSchema checks the schema against specs that must pass and that must not.
func TestSchema(t *testing.T) {
	for _, good := range []string{base, example, string(mustParse(t, example).YAML()), string(mustParse(t, shortForms).YAML())} {
		if faults := checkSchema(t, []byte(good)); faults != nil {
			t.Errorf("%v\n%s", faults, good)
		}
	}
	for _, row := range []struct {
		line int
		text string
		want string
	}{
		{1, "nam: demo", "unknown nam; name is missing"},
		{2, "sources: 3\nx:", "sources: 3 is no array; unknown x"},
		{8, "batch: {sequence_length: 0, sequences: 8}", "batch: sequence_length: 0 fits none of 2"},
		{8, "batch: {sequence_length: 64, sequences: 8x}", `batch: sequences: "8x" fits none of 2`},
		{8, "batch: {sequence_length: 64, sequences: 8, packing: 3}", "batch: packing: 3 fits none of 2"},
		{9, "topology: {order: [tp, xp]}", `topology: order: 1: "xp" fits none of 2`},
		{10, "output: {format: ''}", `output: format: "" fits none of 2`},
		{10, "resources: {loader_buffer: 5 apples}", `resources: loader_buffer: "5 apples" fits none of 2`},
		{7, "mix: {weights: {a: -1}}", "mix: weights: a: -1 fits none of 2"},
	} {
		got := strings.Join(checkSchema(t, []byte(with(row.line, row.text))), "; ")
		if got != row.want {
			t.Errorf("%s: got %q, want %q", row.text, got, row.want)
		}
	}
}

func TestSchemaHelpsEditors(t *testing.T) {
	var s struct {
		Schema     string `json:"$schema"`
		Properties map[string]struct {
			Description string
			Properties  map[string]struct {
				Description string
				Default     any
			}
		}
	}
	if err := json.Unmarshal(JSONSchema(), &s); err != nil {
		t.Fatal(err)
	}
	window := s.Properties["resources"].Properties["window"]
	order := s.Properties["topology"].Properties["order"]
	if s.Schema != "https://json-schema.org/draft/2020-12/schema" || s.Properties["name"].Description == "" ||
		window.Default != 256.0 || window.Description == "" || fmt.Sprint(order.Default) != "[tp cp dp pp]" {
		t.Errorf("got %+v", s)
	}
	if !json.Valid(JSONSchema()) || !bytes.Equal(JSONSchema(), JSONSchema()) {
		t.Error("the schema is not the same twice")
	}
}
