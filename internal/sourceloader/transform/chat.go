package transform

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
	"github.com/millrace-data/millrace/internal/sourceloader/transform/jinja"
	"github.com/millrace-data/millrace/jobspec"
)

// Which messages of a conversation carry loss, as in jobspec.Chat.TrainOn.
const (
	trainAssistant = "assistant"
	trainAll       = "all"
	trainLast      = "last"
)

const (
	roleAssistant = "assistant"
	noColumn      = -1
)

// roles are those that a message may have whatever the template; others have to be in its text.
var roles = []string{"system", "developer", "user", roleAssistant, "tool", "function"}

// chatStep is a compiled chat step.
type chatStep struct {
	spec            *jobspec.Chat
	template, tools *jinja.Template // for conversations without tools, and with them
	sources         string          // of both
	vars            map[string]jinja.Value
	options         jinja.Options
	messages, list  int // columns
}

// chat compiles a chat step. next are the steps after it, of which one is tokenize.
func (c *compiler) chat(label string, spec *jobspec.Chat, next []jobspec.Transform) error {
	switch {
	case c.hasText || c.hasTokens:
		return fault.Userf("a chat step makes the text: put it before other steps that do, and before tokenize")
	case !slices.Contains([]string{"", trainAssistant, trainAll, trainLast}, spec.TrainOn):
		return fault.Userf("train_on %q: valid are %s, %s, %s", spec.TrainOn, trainAssistant, trainAll, trainLast)
	}
	step := &chatStep{spec: spec, list: noColumn, options: jinja.Options{MaxOutput: c.chain.maxText}}
	if err := c.chatTemplate(step, next); err != nil {
		return err
	}
	if err := step.settings(); err != nil {
		return err
	}
	var err error
	if step.messages, err = c.required(spec.Messages); err == nil {
		err = c.takes(spec.Messages, messagesNeed)
	}
	if err != nil {
		return err
	}
	if spec.Tools != "" {
		if step.list, err = c.column(spec.Tools); err != nil {
			return err
		}
	}
	c.hasText, c.hasChat, c.chain.masks = true, true, true
	c.add(label, func(w *Worker, rec *format.Record) (bool, error) { return true, w.converse(step, rec) })
	return nil
}

// chatTemplate loads and parses the templates of a step.
func (c *compiler) chatTemplate(step *chatStep, next []jobspec.Transform) error {
	tokenizer := ""
	for _, t := range next {
		if step, ok := t.(*jobspec.Tokenize); ok {
			tokenizer = step.File
		}
	}
	files, err := tokenize.LoadChat(step.spec.Template, tokenizer)
	if err != nil {
		return err
	}
	if step.template, err = jinja.Parse(files.Template); err != nil {
		return fault.Userf("the chat template: %w", err)
	}
	step.tools, step.sources = step.template, files.Template+files.Tools
	if files.Tools != "" {
		if step.tools, err = jinja.Parse(files.Tools); err != nil {
			return fault.Userf("the chat template for tools: %w", err)
		}
	}
	step.vars = map[string]jinja.Value{"documents": nil}
	for name, token := range files.Special {
		step.vars[name] = token
	}
	c.chain.beyond = append(c.chain.beyond, files.Digest)
	return nil
}

// settings reads the variables and the date of a step.
func (step *chatStep) settings() error {
	for i, v := range step.spec.Variables {
		name, text, ok := strings.Cut(v, "=")
		value, err := jinja.FromJSON([]byte(text))
		if !ok || name == "" || err != nil {
			return fault.Userf("variables[%d]: %q is not a name, = and a JSON value, such as enable_thinking=false", i, v)
		}
		step.vars[name] = value
	}
	if step.spec.Date == "" {
		return nil
	}
	date, ok := jinja.ParseDate(step.spec.Date)
	if !ok {
		return fault.Userf("date: %q is not a day, such as 2026-11-03", step.spec.Date)
	}
	step.options.Date = &date
	return nil
}

// conversation is one record of a chat step while it becomes text.
type conversation struct {
	*chatStep
	template *jinja.Template
	vars     map[string]jinja.Value
	messages []jinja.Value
	roles    []string
	carries  []bool // whether each message carries loss
	said     []bool // whether it says so itself
	text     string
	before   map[int]string // renderings of the first messages
}

// converse renders the record's conversation, and notes what of it carries loss.
func (w *Worker) converse(step *chatStep, rec *format.Record) error {
	if rec.Values[step.messages].Absent {
		return absent(rec, step.messages, step.spec.Messages, "leave the record out by a filter before this step")
	}
	c := &conversation{chatStep: step, template: step.template, vars: map[string]jinja.Value{}, before: map[int]string{}}
	for name, v := range step.vars {
		c.vars[name] = v
	}
	if err := c.read(&rec.Values[step.messages]); err != nil {
		return inColumn(rec, step.messages, step.spec.Messages, err)
	}
	w.roles = c.roles
	c.vars["tools"] = nil
	if step.list != noColumn {
		tools, err := jsonValue(&rec.Values[step.list])
		if err != nil {
			return inColumn(rec, step.list, step.spec.Tools, err)
		}
		if c.vars["tools"] = tools; tools != nil {
			c.template = step.tools
		}
	}
	text, generated, err := c.render(len(c.messages), false)
	if err != nil {
		return err
	}
	c.text = text
	w.text = []byte(text)
	w.loss, w.lossOnAll, err = c.loss(generated, w.loss[:0])
	return err
}

const validList = "a list of objects (in Parquet and Arrow of structs), or its JSON text"

// jsonValue is the value of a column that is JSON: an object or a list, or its text.
func jsonValue(v *format.Value) (jinja.Value, error) {
	switch v.Kind {
	case format.Null:
		return nil, nil
	case format.String, format.Bytes:
		if len(bytes.TrimSpace(v.Bytes)) == 0 {
			return nil, nil
		}
		made, err := jinja.FromJSON(v.Bytes)
		if err != nil {
			return nil, fault.Userf("its text is no JSON (it begins with %q): %w; valid is %s", clip(string(v.Bytes)), err, validList)
		}
		return made, nil
	case format.List:
		list := &jinja.List{}
		for i := range v.List {
			item, err := jsonValue(&v.List[i])
			if err != nil {
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
			list.Items = append(list.Items, item)
		}
		return list, nil
	case format.Tokens: // a list of integers in JSON
		list := &jinja.List{}
		for _, token := range v.Tokens {
			list.Items = append(list.Items, int64(token))
		}
		return list, nil
	}
	return nil, fault.Userf("it is %s; valid is %s", kindWords(v.Kind), validList)
}

// read takes the messages of a column.
func (c *conversation) read(v *format.Value) error {
	value, err := jsonValue(v)
	if err != nil {
		return err
	}
	list, ok := value.(*jinja.List)
	if !ok || len(list.Items) == 0 {
		return fault.Userf("it is %s; a conversation is a list of at least one message: %s, each with role and content", valueWords(value), validList)
	}
	for i, item := range list.Items {
		if err := c.message(item); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	c.choose()
	return nil
}

// valueWords names a value for a person.
func valueWords(v jinja.Value) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case string:
		return "a text"
	case *jinja.Dict:
		return "an object"
	case *jinja.List:
		return fmt.Sprintf("a list of %d", len(x.Items))
	case bool:
		return "true or false"
	}
	return "a number"
}

// lossField is the field of a message that says whether it carries loss, unless the step names
// another. Templates do not see it.
const lossField = "loss"

func (c *conversation) message(item jinja.Value) error {
	given, ok := item.(*jinja.Dict)
	if !ok {
		return fault.Userf("it is %s, not an object (in Parquet and Arrow a struct) with role and content", valueWords(item))
	}
	role, _ := given.Get("role")
	name, ok := role.(string)
	if !ok {
		remedy := ""
		if _, is := given.Get("from"); is {
			remedy = ": a python step makes them of from and value, docs/chat.md has one (ShareGPT)"
		}
		return fault.Userf("it has no role (its fields are %s); a message has role and content%s", fieldsOf(given), remedy)
	}
	if !slices.Contains(roles, name) && !strings.Contains(c.sources, name) {
		return fault.Userf("its role is %q, which the template does not know; usual are %s", clip(name), strings.Join(roles, ", "))
	}
	message, field := jinja.NewDict(), cmp.Or(c.spec.Loss, lossField)
	decision, has := jinja.Value(nil), false
	for _, k := range given.Keys() {
		v, _ := given.Get(k)
		if k == field {
			decision, has = v, v != nil
			continue
		}
		message.Set(k, v)
	}
	carries := c.spec.TrainOn == trainAll || name == roleAssistant
	if has {
		if x, is := decision.(float64); is && c.spec.Loss != "" && (x == 0 || x == 1) {
			decision = int64(x) // weights are often such numbers
		}
		switch decision {
		case true, int64(1):
			carries = true
		case false, int64(0):
			carries = false
		default:
			return fault.Userf("its %s is neither true, false, 0 nor 1", field)
		}
	}
	c.messages, c.roles, c.carries = append(c.messages, jinja.Message(message)), append(c.roles, name), append(c.carries, carries)
	c.said = append(c.said, has)
	return nil
}

func fieldsOf(d *jinja.Dict) string {
	var names []string
	for _, k := range d.Keys()[:min(d.Len(), maxHas)] {
		if name, ok := k.(string); ok {
			names = append(names, clip(name))
		}
	}
	return strings.Join(names, ", ")
}

// choose applies train_on: last.
func (c *conversation) choose() {
	if c.spec.TrainOn != trainLast {
		return
	}
	last := -1
	for i, role := range c.roles {
		if role == roleAssistant {
			last = i
		}
	}
	for i := range c.carries {
		if !c.said[i] && i != last {
			c.carries[i] = false
		}
	}
}

// render renders the first n messages, with the beginning of an answer behind them or not.
func (c *conversation) render(n int, answer bool) (string, []jinja.Span, error) {
	c.vars["messages"] = &jinja.List{Items: c.messages[:n:n]}
	c.vars["add_generation_prompt"] = answer
	text, generated, err := c.template.Render(c.vars, c.options)
	if err != nil {
		return "", nil, fault.Userf("%w", err)
	}
	return text, generated, nil
}

// afterChat is a tokenize step of a text that a template wrote: its special tokens are meant, unless
// the step says otherwise, and nothing is added to it.
func afterChat(t jobspec.Tokenize) jobspec.Tokenize {
	if t.Special == "" && t.Allow == nil && t.Refuse == nil {
		t.Special = "allow"
	}
	if t.File != "" {
		t.PostProcessor = "skip"
	}
	return t
}
