package jobspec

import (
	"bytes"
	"fmt"
	"strings"
)

// OperatorReference returns the page of all operators in Markdown: docs/operators.md.
func OperatorReference() []byte {
	var b bytes.Buffer
	b.WriteString(operatorsHead)
	for _, o := range operators {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s | %s | %s |\n", o.Name, o.Name, words(o.Takes), words(o.Gives), o.Records, o.where())
	}
	for _, o := range operators {
		o.reference(&b)
	}
	return b.Bytes()
}

const operatorsHead = `<!-- Generated from jobspec by "go generate ./jobspec". Do not edit. -->

# Operators

The steps that make samples of a source's records: the list ` + "`transforms`" + ` of a source in the [job spec](jobspec.md), applied to each
record in the order of the list. A record has the columns of its file; the steps add the current *text*, the *tokens*, which of these
carry *loss*, and *images*. What becomes of a record depends on that record alone, so that a job's batches do not depend on who reads what when.

` + "`millrace lint`" + ` compiles the steps of each source and puts a record through them; ` + "`millrace plan JOB --operators`" + ` shows how loaders carry them out.
The engine has more operators in Go, such as many-to-one stages; [engine.md](engine.md#the-go-api) says which, and why a job has none of them.

| operator | takes | gives | records of one | runs in |
|---|---|---|---|---|
`

// reference writes the section of an operator.
func (o *Operator) reference(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## `%s`\n\n%s\n\n```yaml\ntransforms: %s\n```\n\n", o.Name, o.Doc, o.Example)
	f := &o.value
	if f.object == nil {
		fmt.Fprintf(b, "Value: %s.\n\n", f.valueText())
	} else {
		if f.object.short != "" {
			fmt.Fprintf(b, "Bare value: `%s`.\n\n", f.object.short)
		}
		fieldTable(b, f.object)
	}
	fmt.Fprintf(b, "%s\n", o.Rules)
	if o.manual != "" {
		fmt.Fprintf(b, "\n%s", o.manual)
	}
}

// words lists what is taken or given, "nothing" if there is none.
func words(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return cell(strings.Join(list, ", "))
}

func (o *Operator) where() string {
	if o.Worker {
		return "outside the loader"
	}
	return "the loader"
}
