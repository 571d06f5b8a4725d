package jobspec

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"
)

// example is the spec that the reference page shows. A test parses it.
//
//go:embed example.yaml
var example string

// Reference returns the reference page in Markdown: docs/jobspec.md.
func Reference() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, referenceHead, example)
	objectReference(&b, &specObject, "")
	b.WriteString("## Rules between fields\n\n")
	for _, r := range rules {
		b.WriteString("- " + r.doc + "\n")
	}
	b.WriteString(identityHead)
	identityReference(&b, &specObject, "")
	return b.Bytes()
}

const referenceHead = `<!-- Generated from jobspec by "go generate ./jobspec". Do not edit. -->

# The job spec

A job spec is one YAML file that says what is trained on, in which mix, in what batches and for which mesh of ranks.
` + "`millrace lint`" + ` reports everything that is wrong with one, in one go, as ` + "`file:line: field: what is wrong, what would be valid`" + `.

` + "```yaml\n%s```" + `

## How values are written

- **Unknown fields and doubled keys are errors.** At the top level, keys that begin with ` + "`x-`" + ` are ignored: a place for
  anchors. Anchors, aliases and merge keys (` + "`<<: *base`" + `) work everywhere.
- **Counts** are whole numbers: ` + "`4096`, `1_000_000`, `1e6`, `0x10`" + `, or with a unit: ` + "`k`, `M`, `G`, `T`" + ` are powers of 1000, ` + "`Ki`, `Mi`, `Gi`, `Ti`" + `
  powers of 1024. So ` + "`256k` is 256000 and `256Ki`" + ` is 262144.
- **Bytes** are counts that may end in ` + "`B`" + `: ` + "`64MiB`, `64mb`" + `. Case does not matter.
- **Booleans** are ` + "`true` and `false`; `yes`, `no`, `on` and `off`" + ` are understood too.
- **Environment**: ` + "`${VAR}` and `${VAR:-default}`" + ` are replaced in values, not in keys. A variable without a value or a
  default is an error. ` + "`$$`" + ` is a plain dollar sign; it is needed only before a dollar sign or a brace. A source that
  [joins](cli.md#source-add) a running job has none, unless the operator's ` + "`--changes`" + ` add it.
- **Short forms**: where a group has a *bare value*, that value may stand for the group: ` + "`long: truncate`" + ` is
  ` + "`long: {rule: truncate}`" + `.
- **Paths** that are relative are relative to the folder of the spec.
- A spec has at most 1 MiB, 20,000 keys outside of braces and 50,000 in braces: a schedule of 1,000 stages for 20 sources fits, if its
  weights are in braces, ` + "`weights: {a: 1, b: 2}`" + `. What is larger has fewer stages, with a ` + "`ramp`" + ` between them, or is
  changed while the job runs, by [` + "`millrace mix set`" + `](cli.md#mix-set).

`

// objectReference writes the section of an object and then of those in it.
func objectReference(b *bytes.Buffer, o *object, path string) {
	fmt.Fprintf(b, "## %s\n\n", headline(o, path))
	switch {
	case o == &transformObject:
		b.WriteString("Exactly one of these operators. [operators.md](operators.md) has the fields, rules and an example of each.\n\n")
	case o.choice:
		b.WriteString("Exactly one of these fields.\n\n")
	case o.short != "":
		fmt.Fprintf(b, "Bare value: `%s`.\n\n", o.short)
	}
	fieldTable(b, o)
	for i := range o.fields {
		if f := &o.fields[i]; f.object != nil && len(f.object.fields) > 0 && f.step == nil {
			objectReference(b, f.object, f.path(path))
		}
	}
}

func fieldTable(b *bytes.Buffer, o *object) {
	b.WriteString("| field | value | default | meaning |\n|---|---|---|---|\n")
	for i := range o.fields {
		f := &o.fields[i]
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.key, cell(f.valueText()), cell(f.defaultText()), cell(f.doc))
	}
	b.WriteString("\n")
}

// path names the field from the top of the spec, lists with [].
func (f *field) path(parent string) string {
	p := childField(parent, f.key)
	if f.list {
		p += "[]"
	}
	return p
}

func headline(o *object, path string) string {
	if path == "" {
		return o.title
	}
	return "`" + path + "`"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

func (f *field) valueText() string {
	text := map[kind]string{
		textKind: "text", countKind: "count", bytesKind: "bytes", flagKind: "boolean",
		weightsKind: "numbers by source name", objectKind: "group",
	}[f.kind]
	if f.enum != nil {
		text = "`" + strings.Join(f.enum, "`, `") + "`"
	}
	if (f.kind == countKind || f.kind == bytesKind) && f.min > 0 {
		text += fmt.Sprintf(", %d or more", f.min)
	}
	switch {
	case f.list && f.one:
		text += ", or a list of them"
	case f.list && f.object != nil:
		text = "list of groups"
	case f.list:
		text = "list of " + text
	}
	return text
}

func (f *field) defaultText() string {
	switch d := f.staticDefault().(type) {
	case nil:
	case []string:
		return "`[" + strings.Join(d, ", ") + "]`"
	default:
		return fmt.Sprintf("`%v`", d)
	}
	switch {
	case f.required:
		return "**required**"
	case f.auto != "":
		return f.auto
	case f.object != nil:
		return "below"
	}
	return "none"
}

const identityHead = `
## Identity

The identity of a job is the SHA-256 of what determines the bytes of its global batches: every field above but the ones
below. A resume token carries it. These fields may change while a job lives, and change no byte of a global batch:

| field | why it is left out |
|---|---|
`

// identityReference lists the fields that Identity leaves out.
func identityReference(b *bytes.Buffer, o *object, path string) {
	for i := range o.fields {
		f := &o.fields[i]
		switch {
		case f.free != "":
			fmt.Fprintf(b, "| `%s` | %s |\n", f.path(path), f.free)
		case f.object != nil:
			identityReference(b, f.object, f.path(path))
		}
	}
	if path == "" {
		b.WriteString("| the folder of the spec | relative paths are covered as written |\n\n")
		b.WriteString("Files count as written, after `${VAR}` is replaced; what is in them is covered by the manifest's digest. Weights count after normalising, other fields with their defaults filled in.\n")
	}
}
