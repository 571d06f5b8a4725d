package transform

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
	"github.com/millrace-data/millrace/internal/sourceloader/transform/filter"
	"github.com/millrace-data/millrace/jobspec"
)

// The rules for long samples, as in jobspec.Long.
const (
	ruleSplit    = "split"
	ruleTruncate = "truncate"
	ruleDrop     = "drop"
)

// Chain is a compiled source. It is immutable and safe for concurrent use; each
// goroutine that applies it has its own Worker.
type Chain struct {
	runs     []native // of steps, with a function after each but the last
	keep     []keptColumn
	rule     string
	max      int // tokens
	maxText  int // bytes
	encoding *tokenize.Encoding
	pictures [32]byte   // imaging.Fingerprint if there is an image step, else zero
	masks    bool       // samples may have tokens without loss
	inText   bool       // the placeholders of images are among the tokens, not before them
	arrays   int        // steps that put an array in a column's place
	beyond   [][32]byte // what else decides bytes beside the job spec, by step
	room     imaging.Room
}

// step is a step with its name in errors.
type step struct {
	label string // as errors name it
	place string // in the whole chain
	run   func(w *Worker, rec *format.Record) (bool, error)
}

type keptColumn struct {
	path  string
	place int
}

// Compile compiles the transforms, kept columns and long rule of src.
// sequenceLength is the bound on the tokens of a sample and the default of
// src.Long.Max. Encodings and functions come from shared, which the sources of a job
// share; nil reads encodings for this chain only, and has no functions.
//
// Steps run in the order of the spec. The text is the column text until a text
// step sets it. An AppendEOD whose ID is below zero appends the encoding's own
// end-of-text token; a document without any token stays empty and gets none.
// Errors are of class fault.User and name the source and the step.
func Compile(src jobspec.Source, sequenceLength int, shared *Shared) (*Chain, error) {
	c := &compiler{chain: &Chain{runs: make([]native, 1), maxText: maxText(src)}, source: &src, shared: shared}
	if shared == nil {
		c.shared = NewShared(0, nil)
	}
	c.chain.room = c.shared.Room
	for i, t := range src.Transforms {
		if err := c.transform(i, t); err != nil {
			return nil, fmt.Errorf("source %q: %w", src.Name, &StepError{src.StepField(i), err})
		}
		if i > 0 && i == c.handOver {
			if err := c.handsOver(c.label); err != nil {
				return nil, err
			}
		}
	}
	if !c.hasTokens {
		return nil, fault.Userf("source %q: no step makes tokens: add a tokenize step or, for token ids in a column, a tokens step", src.Name)
	}
	if err := c.keep(src.Keep); err != nil {
		return nil, fmt.Errorf("source %q: %w", src.Name, err)
	}
	if err := c.long(src.Long, sequenceLength); err != nil {
		return nil, fmt.Errorf("source %q: long: %w", src.Name, err)
	}
	return c.chain, nil
}

// StepError is an error of one step of a chain that does not compile.
type StepError struct {
	Field string // of the source: transforms[1].tokenize
	Err   error
}

// Error names the step.
func (e *StepError) Error() string { return fmt.Sprintf("%s: %v", e.Field, e.Err) }

// Unwrap returns the step's own error.
func (e *StepError) Unwrap() error { return e.Err }

// CheckFilter checks that expr is a valid filter, at any place in a
// chain. Its error is that of Compile without the name of the source.
func CheckFilter(expr string) error {
	_, err := filter.Compile(expr, filter.Scope{Tokens: true, Column: func(path string) (int, error) {
		_, err := fieldpath.Parse(path)
		return 0, err
	}})
	return err
}

// Columns returns the paths of the columns that records must have, in the order
// of Record.Values: those the steps read, by first use, then kept ones, each
// once. The slice is the caller's.
func (c *Chain) Columns() []string { return slices.Clone(c.runs[0].columns) }

// Encoding returns the encoding of the tokenize step, or nil if the tokens come
// from a column.
func (c *Chain) Encoding() *tokenize.Encoding { return c.encoding }

// EncodingDigest is the SHA-256 of the file of the tokenize step: another
// file under the same name gives other tokens. It is zero without one. With an
// image step it is the SHA-256 of that and of imaging.Fingerprint: another decoder
// gives other pixels; and so on with each chat template and function, in the order of the chain.
func (c *Chain) EncodingDigest() [32]byte {
	var digest [32]byte
	if c.encoding != nil {
		digest = c.encoding.Digest()
	}
	if c.pictures != ([32]byte{}) {
		digest = sha256.Sum256(append(digest[:], c.pictures[:]...))
	}
	for _, other := range c.beyond {
		digest = sha256.Sum256(append(digest[:], other[:]...))
	}
	return digest
}

// compiler is the state of a chain while its steps are added.
type compiler struct {
	chain     *Chain
	source    *jobspec.Source
	shared    *Shared
	hasText   bool     // after a text or chat step
	hasChat   bool     // after a chat step
	hasTokens bool     // after a tokenize or tokens step
	hasEnd    bool     // after an append_eod step
	replaced  []string // columns in which earlier steps put arrays
	marker    int32    // after a tokenize step: the token that stands for an image, if the image step has a marker
	label     string   // of the step that is being compiled, as errors name it
	place     string   // that step's in the whole chain, which its chance follows from
	handOver  int      // the step behind which another task begins; 0: none
}

func (c *compiler) add(label string, run func(*Worker, *format.Record) (bool, error)) {
	c.run().steps = append(c.run().steps, step{label, c.place, run})
}

// column returns the place of a path in Record.Values.
func (c *compiler) column(path string) (int, error) {
	return c.columnOf(len(c.chain.runs)-1, path, false)
}

// required is column for a required column.
func (c *compiler) required(path string) (int, error) {
	return c.columnOf(len(c.chain.runs)-1, path, true)
}

// transform compiles step i, by the entry of its operator.
func (c *compiler) transform(i int, t jobspec.Transform) error {
	if t == nil || compilers[t.Operator()] == nil {
		return fault.Userf("this version has no such step: start loaders of the planner's version")
	}
	name := t.Operator()
	c.label, c.place = c.source.StepField(i), fmt.Sprintf("transforms[%d].%s", i, name)
	if o := jobspec.OperatorOf(name); o != nil && !o.Worker {
		c.run().names = append(c.run().names, name)
		c.run().heavy = c.run().heavy || !light(t)
	}
	return compilers[name](c, i, t)
}

// compilers compile the steps of each operator of the registry.
var compilers = map[string]func(c *compiler, i int, t jobspec.Transform) error{
	"text": of((*compiler).text),
	"chat": func(c *compiler, i int, t jobspec.Transform) error {
		return c.chat(c.label, t.(*jobspec.Chat), c.source.Transforms[i+1:])
	},
	"tokens":    of((*compiler).tokens),
	"loss_mask": of((*compiler).lossMask),
	"filter":    of((*compiler).filter),
	"tokenize": func(c *compiler, i int, t jobspec.Transform) error {
		return c.tokenize(c.label, t.(*jobspec.Tokenize), markerIn(c.source.Transforms[i+1:]))
	},
	"append_eod": of((*compiler).appendEOD),
	"image":      of((*compiler).image),
	"python":     func(c *compiler, i int, _ jobspec.Transform) error { return c.function(c.label, i) },
	"call":       func(c *compiler, i int, _ jobspec.Transform) error { return c.function(c.label, i) },
	"convert":    func(c *compiler, i int, _ jobspec.Transform) error { return c.function(c.label, i) },
	"frames":     func(c *compiler, i int, _ jobspec.Transform) error { return c.function(c.label, i) },
	"probe":      func(c *compiler, i int, _ jobspec.Transform) error { return c.function(c.label, i) },
	"normalize":  of((*compiler).normalize),
	"replace":    of((*compiler).replace),
	"limit":      limitFirst,
	"group":      groupFirst,
	"pixels":     of((*compiler).pixels),
	"waveform":   of((*compiler).waveform),
}

// limitFirst compiles a limit, which is carried out where files are listed (order.Index).
func limitFirst(_ *compiler, i int, t jobspec.Transform) error {
	if n := t.(jobspec.Limit); i > 0 || n < 1 {
		return fault.Userf("a limit of %d records: it is 1 or more, and the first step of a chain", n)
	}
	return nil
}

// groupFirst compiles a group, which is carried out where files are read (format.Grouped).
func groupFirst(c *compiler, i int, t jobspec.Transform) error {
	g := t.(*jobspec.Group)
	if i > 0 || g.By == "" && g.Rows == 0 {
		return fault.Userf("a group of neither a column nor a number of records, or behind another step")
	}
	if g.By == "" {
		return nil
	}
	_, err := c.column(g.By)
	return err
}

// of is a compiler of steps of one type.
func of[T jobspec.Transform](compile func(c *compiler, label string, step T) error) func(*compiler, int, jobspec.Transform) error {
	return func(c *compiler, _ int, t jobspec.Transform) error { return compile(c, c.label, t.(T)) }
}

func (c *compiler) text(label string, src jobspec.Text) error {
	if c.hasTokens {
		return fault.Userf("a text step after the tokens are made changes nothing; put it before")
	}
	if c.hasChat {
		return fault.Userf("a text step after chat would lose which part of the text carries loss; leave it out")
	}
	t, err := parseTemplate(string(src))
	if err != nil {
		return err
	}
	for i := range t.parts {
		p := &t.parts[i]
		if p.path == "" || p.path == currentText && c.hasText {
			p.column = fromText
			continue
		}
		column := c.required
		if p.optional {
			column = c.column
		}
		if p.column, err = column(p.path); err != nil {
			return err
		}
		if err := c.takes(p.path, textNeed); err != nil {
			return err
		}
	}
	c.hasText = true
	c.add(label, func(w *Worker, rec *format.Record) (bool, error) { return true, w.render(&t, rec) })
	return nil
}

// needText makes the column text the current text if there was no text step.
func (c *compiler) needText(label string) error {
	if c.hasText {
		return nil
	}
	place, err := c.required(currentText)
	if err == nil {
		err = c.takes(currentText, textNeed)
	}
	if err != nil {
		return err
	}
	c.hasText = true
	t := template{parts: []part{{path: currentText, column: place}}}
	c.add(label, func(w *Worker, rec *format.Record) (bool, error) { return true, w.render(&t, rec) })
	return nil
}

func (c *compiler) filter(label string, expr jobspec.Filter) error {
	f, err := filter.Compile(string(expr), filter.Scope{Tokens: c.hasTokens, Column: c.column})
	if err != nil {
		return err
	}
	if f.UsesText() {
		if err := c.needText(label); err != nil {
			return err
		}
	}
	c.add(label, func(w *Worker, rec *format.Record) (bool, error) {
		w.input.Text, w.input.Tokens, w.input.Values = w.text, w.tokens, rec.Values
		return f.Eval(&w.input)
	})
	return nil
}

func (c *compiler) oneTokenStep() error {
	if c.hasTokens {
		return fault.Userf("an earlier step makes the tokens; a chain has one tokenize or tokens step")
	}
	c.hasTokens = true
	return nil
}

// tokenize compiles a tokenize step. marker is a text that becomes one token, "" if there is none.
func (c *compiler) tokenize(label string, spec *jobspec.Tokenize, marker string) error {
	t := *spec
	if err := c.needText(label); err != nil {
		return err
	}
	if err := c.oneTokenStep(); err != nil {
		return err
	}
	if c.hasChat {
		t = afterChat(t)
	}
	enc, err := c.shared.Tokenizers.Load(t)
	if err != nil {
		return err
	}
	c.chain.encoding = enc
	if c.hasChat && enc.Spaced() { // earlier builds gave no loss to a token that is only the added space
		c.chain.beyond = append(c.chain.beyond, sha256.Sum256([]byte("loss of added spaces")))
	}
	if marker != "" {
		if enc, err = c.marked(enc, &t, marker); err != nil {
			return fmt.Errorf("the marker of the image step: %w", err)
		}
	}
	if t.Special != "" || t.Allow != nil || t.Refuse != nil {
		return c.specials(label, enc, t)
	}
	c.add(label, func(w *Worker, _ *format.Record) (bool, error) {
		w.tokens = enc.Append(w.tokens, w.text)
		return true, nil
	})
	return nil
}

// specials is tokenize for a text in which special-token names have a meaning.
func (c *compiler) specials(label string, enc *tokenize.Encoding, t jobspec.Tokenize) error {
	allowed, refused := slices.Clone(t.Allow), slices.Clone(t.Refuse)
	for _, name := range enc.SpecialNames() {
		switch {
		case slices.Contains(t.Allow, name), slices.Contains(t.Refuse, name):
		case t.Special == "allow":
			allowed = append(allowed, name)
		case t.Special == "refuse":
			refused = append(refused, name)
		}
	}
	rules, err := enc.Specials(allowed, refused)
	if err != nil {
		return err
	}
	chat := c.hasChat
	c.add(label, func(w *Worker, _ *format.Record) (_ bool, err error) {
		if w.tokens, err = rules.Append(w.tokens, w.text); err == nil && chat {
			err = w.maskTurns(enc)
		}
		return err == nil, err
	})
	return nil
}

func (c *compiler) tokens(label string, column jobspec.Tokens) error {
	path := string(column)
	if err := c.oneTokenStep(); err != nil {
		return err
	}
	place, err := c.required(path)
	if err == nil {
		err = c.takes(path, tokensNeed)
	}
	if err != nil {
		return err
	}
	c.add(label, func(w *Worker, rec *format.Record) (bool, error) {
		if rec.Values[place].Absent {
			return false, absent(rec, place, path, "leave the record out by a filter before this step")
		}
		ids, err := appendIDs(w.tokens, &rec.Values[place])
		if err != nil {
			return false, inColumn(rec, place, path, err)
		}
		w.tokens = ids
		return true, nil
	})
	return nil
}

func (c *compiler) appendEOD(label string, eod *jobspec.AppendEOD) error {
	id := eod.ID
	switch {
	case !c.hasTokens:
		return fault.Userf("append_eod needs tokens: put it after the tokenize or tokens step")
	case id < 0 && c.chain.encoding == nil:
		return fault.Userf("append_eod needs an id here: tokens from a column have no encoding that defines one")
	case id < 0:
		if id = c.chain.encoding.EOT(); id < 0 {
			return fault.Userf("append_eod needs an id here: a tokenizer.json does not say which token ends a text")
		}
	}
	c.hasEnd = true
	c.add(label, func(w *Worker, _ *format.Record) (bool, error) {
		if len(w.tokens)+len(w.prefix) > 0 { // a document without tokens stays empty
			w.tokens = append(w.tokens, id)
			w.maskAsBefore()
		}
		return true, nil
	})
	return nil
}

func (c *compiler) keep(paths []string) error {
	c.label = ""
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			return fault.Userf("keep[%d]: column %q is named twice", i, path)
		}
		place, err := c.column(path)
		if err == nil {
			err = c.takes(path, keptNeed)
		}
		if err != nil {
			return fmt.Errorf("keep[%d]: %w", i, err)
		}
		c.chain.keep = append(c.chain.keep, keptColumn{path, place})
	}
	return nil
}

func (c *compiler) long(long jobspec.Long, sequenceLength int) error {
	c.chain.rule, c.chain.max = long.Rule, long.Max
	if long.Rule == "" {
		c.chain.rule = ruleSplit
	}
	if long.Max == 0 {
		c.chain.max = sequenceLength
	}
	switch {
	case !slices.Contains([]string{ruleSplit, ruleTruncate, ruleDrop}, c.chain.rule):
		return fault.Userf("rule %q: valid are %s, %s, %s", long.Rule, ruleSplit, ruleTruncate, ruleDrop)
	case sequenceLength < 1:
		return fault.Userf("batch.sequence_length is %d tokens; at least 1 is needed", sequenceLength)
	case c.chain.max < 1 || c.chain.max > sequenceLength:
		return fault.Userf("max is %d tokens; valid are 1 to %d, the sequence length", long.Max, sequenceLength)
	}
	return nil
}
