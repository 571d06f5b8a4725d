package jobspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// Transform is one step of a source's chain: a Text, a *Tokenize, or another type of the
// registry (Operators). Nil is a step that this version does not have.
type Transform interface {
	// Operator is the key of the step in a spec, and its name in the registry.
	Operator() string
	// Words say what becomes of a record, for a person.
	Words() string
}

// Operator is one kind of step, as the registry has it: the decoder, the linter, the printer,
// the schema, the reference page and the compiler of chains find a step by it.
type Operator struct {
	Name    string   // the key of a step
	Doc     string   // what it does, in a sentence or two
	Example string   // a chain with such a step in it, as YAML
	Takes   []string // what it needs of a record: columns that it names, text, tokens
	Gives   []string // what it sets: text, tokens, loss, images
	Records Records  // what becomes of the number of records
	Worker  bool     // it runs outside the loader: in worker processes, on a model server
	Rules   string   // what is checked between its fields and the chain, for a person

	step   Transform                                              // any value of its type
	value  field                                                  // how it is written
	manual string                                                 // what more the reference page says of it, as Markdown; mostly nothing
	repeat bool                                                   // a chain may have several
	begins bool                                                   // it makes text or tokens of columns, so that no text step is taken by default
	renews []string                                               // operators that may come once more behind it
	place  func(has func(...string) bool) (message, valid string) // what is wrong with its place behind others; "" if nothing
}

// Records says what an operator does to the number of records.
type Records uint8

const (
	Keeps      Records = iota // one of each
	Drops                     // one or none of each
	Multiplies                // any number of each
	Gathers                   // one of several
)

// String returns the word of the reference page and of plans.
func (r Records) String() string {
	switch r {
	case Keeps:
		return "one"
	case Drops:
		return "one or none"
	case Gathers:
		return "one of several"
	}
	return "any number"
}

// operators are all that a chain may be made of, in the order of the reference page. A new one is
// a type with the methods of Transform and an entry here; its compiler is in sourceloader/transform.
var operators = []*Operator{
	&textOperator, &chatOperator, &tokensOperator, &lossMaskOperator, &filterOperator, &tokenizeOperator,
	&appendEODOperator, &imageOperator, &pythonOperator, &callOperator, &normalizeOperator, &replaceOperator, &limitOperator, &groupOperator,
	&pixelsOperator, &waveformOperator, &convertOperator, &framesOperator, &probeOperator,
}

// Operators returns the registry. It is read-only.
func Operators() []*Operator { return operators }

// OperatorOf returns the entry of a name, nil if there is none.
func OperatorOf(name string) *Operator {
	i := slices.IndexFunc(operators, func(o *Operator) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return operators[i]
}

// Methods that a step may have beside those of Transform.
type (
	// derived sets what follows from the fields and from the steps before.
	derived interface {
		derive(d *decoder, at string, before []Transform)
	}
	// checked adds findings about the step's fields. A field with an error is left alone.
	checked interface{ check(c *checker, at string) }
	// resolved returns the step with its relative paths joined to the spec's folder.
	resolved interface{ resolve(j *Job) Transform }
	// located looks whether the files that the step names are there.
	located interface{ locate(r *report, at string) }
	// programmed returns the files and folders that the step reads, if its paths are resolved.
	programmed interface {
		programs(chain []Transform) []string
	}
)

// fields are the registry as the fields of an object of which one is set.
func operatorFields() []field {
	fields := make([]field, len(operators))
	for i, o := range operators {
		f := o.value
		f.key, f.doc, f.step = o.Name, o.Doc, reflect.TypeOf(o.step)
		fields[i] = f
	}
	return fields
}

// New returns a step of the operator without fields.
func (o *Operator) New() Transform {
	if typ := reflect.TypeOf(o.step); typ.Kind() == reflect.Pointer {
		return reflect.New(typ.Elem()).Interface().(Transform)
	}
	return o.step
}

// MarshalStep returns the name and the fields of a step, for a program of this version or a later one.
func MarshalStep(t Transform) (name string, fields []byte) {
	fields, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("jobspec: the fields of a step are texts, numbers and lists of them: %v", err))
	}
	return t.Operator(), fields
}

// UnmarshalStep is the step of a name and fields. A name, or a field, that this version does not have is an
// error of class fault.User.
func UnmarshalStep(name string, fields []byte) (Transform, error) {
	o := OperatorOf(name)
	if o == nil {
		return nil, fault.Userf("there is no operator %q here, it is of another version: %s", name, oneOf(name, operatorNames()))
	}
	v := reflect.New(reflect.TypeOf(o.step)) // a text is decoded into one, too
	v.Elem().Set(reflect.ValueOf(o.New()))
	d := json.NewDecoder(bytes.NewReader(fields))
	d.DisallowUnknownFields()
	err := d.Decode(v.Interface())
	if err == nil && v.Elem().IsZero() {
		err = errors.New("they are empty")
	}
	if err != nil {
		return nil, fault.Userf("the fields of a step %s are of another version: %w", name, err)
	}
	return v.Elem().Interface().(Transform), nil
}

func operatorNames() []string {
	names := make([]string, len(operators))
	for i, o := range operators {
		names[i] = o.Name
	}
	return names
}
