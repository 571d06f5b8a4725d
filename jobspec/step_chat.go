package jobspec

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Chat makes text of conversations by a model's template.
type Chat struct {
	Messages  string   // column of the conversation
	Tools     string   // column of the tools that it may use; "" = none
	Template  string   // file of the template; "" = the one beside the tokenizer's file
	TrainOn   string   // assistant (default), last or all: the messages that carry loss
	Variables []string // for the template: name=JSON
	Date      string   // 2026-11-03, for a template that asks the clock; "" = refused
	Loss      string   // field of a message that says whether it carries loss; "" = loss
}

var chatOperator = Operator{
	Name:    "chat",
	Doc:     "Makes the text of a conversation by the model's own template, and says which messages carry loss; in place of `text`. The `tokenize` step after it takes the template's special tokens as such and adds none. An empty value takes all defaults; see [chat.md](chat.md).",
	Example: "[{chat: {template: chat_template.jinja}}, {tokenize: bytes}]",
	Takes:   []string{"`messages`", "`tools`"}, Gives: []string{"text", "loss"},
	Rules: "One of a chain, in place of `text`, with a `tokenize` behind it.",

	step: (*Chat)(nil), value: field{kind: objectKind, object: &chatObject}, begins: true,
	place: func(has func(...string) bool) (message, valid string) {
		if has("text", "tokens", "tokenize") {
			return besideText()
		}
		return "", ""
	},
}

var chatObject = object{title: "chat", fields: []field{
	{key: "messages", name: "Messages", kind: textKind, def: "messages",
		doc: "The column of the conversation: a list of objects with `role` and `content` (in Parquet and Arrow of structs), or its JSON text."},
	{key: "tools", name: "Tools", kind: textKind, empty: true, auto: "none",
		doc: "The column of the tools that the conversation may use, as JSON schemas: a list of objects or structs, or its JSON text. Null, absent and empty text are none."},
	{key: "template", name: "Template", kind: textKind, empty: true, auto: "`chat_template.jinja` beside the `file` of the `tokenize` step, else the `chat_template` of its `tokenizer_config.json`",
		doc: "The template's file, relative to the spec's folder: Jinja, or with the ending `.json` a `tokenizer_config.json`."},
	{key: "train_on", name: "TrainOn", kind: textKind, def: "assistant", enum: []string{"assistant", "last", "all"},
		doc: "What carries loss: the assistant's messages, the last of them, or the whole text. A message with a field `loss` (true, false, 1, 0), or the one that `loss` names, says so itself."},
	{key: "variables", name: "Variables", kind: textKind, list: true, one: true,
		doc: "What the template is given beside messages, tools and special tokens, as `name=JSON`: `enable_thinking=false`."},
	{key: "date", name: "Date", kind: textKind, empty: true, auto: "a template that asks for the date is refused",
		doc: "The day that `strftime_now` of the template says, such as `2026-11-03`: the texts of a job do not depend on when it runs."},
	{key: "loss", name: "Loss", kind: textKind, empty: true, auto: "`loss`",
		doc: "The field of a message that says whether it carries loss, such as `weight` of Mistral's and OpenAI's conversations: true, 1 or 1.0, or false, 0 or 0.0. The template does not see it."},
}}

// Operator implements Transform.
func (*Chat) Operator() string { return chatOperator.Name }

// Words implements Transform.
func (t *Chat) Words() string {
	return fmt.Sprintf("conversations of %s, trained on %s", t.Messages, t.TrainOn)
}

// dateForm is that of a date; that the month has the day is seen when the template is loaded.
var dateForm = regexp.MustCompile(`^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$`)

func (t *Chat) check(c *checker, at string) {
	c.column(at+".messages", t.Messages)
	if t.Tools != "" {
		c.column(at+".tools", t.Tools)
	}
	for i, v := range t.Variables {
		name, value, given := strings.Cut(v, "=")
		if item := itemField(at+".variables", i); c.sound(item) && (!given || name == "" || !json.Valid([]byte(value))) {
			c.error(item, quote(v)+" is not a name, = and a JSON value", `valid is such as enable_thinking=false or effort="high"`)
		}
	}
	if t.Date != "" && !dateForm.MatchString(t.Date) && c.sound(at+".date") {
		c.error(at+".date", quote(t.Date)+" is not a day", "valid is such as 2026-11-03")
	}
}

func (t *Chat) resolve(j *Job) Transform {
	own := *t
	if t.Template != "" {
		own.Template = j.Resolve(t.Template)
	}
	return &own
}

func (t *Chat) locate(r *report, at string) {
	if at += ".template"; t.Template != "" && r.sound(at) {
		checkVocabulary(r, at, t.Template, "name the template's file")
	}
}

// programs are the files of the template, and those beside the tokenizer that may hold it.
func (t *Chat) programs(chain []Transform) (files []string) {
	if t.Template != "" {
		files = append(files, absolute(t.Template))
	}
	for _, step := range chain {
		tokenize, ok := step.(*Tokenize)
		if !ok || tokenize.File == "" {
			continue
		}
		for _, name := range []string{"chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json"} {
			files = append(files, absolute(filepath.Join(filepath.Dir(tokenize.File), name)))
		}
	}
	return files
}
