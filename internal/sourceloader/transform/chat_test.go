package transform

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// turns is a case of internal/tools/chat/tokens.py.
type turns struct {
	Tokenizer, Template, Title string
	Source                     string
	Messages, Tools            json.RawMessage
	IDs, Mask                  []int32
	Transformers               []int32 // the mask of Transformers, where it is another; see by_offsets
	Error                      string
}

// specialTokens are those that cases.py gives.
const specialTokens = `{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>", "pad_token": "<pad>", "sep_token": null}`

// modelsOf writes the tokenizers of the tokenize package's tests, each in a folder with a
// tokenizer_config.json.
func modelsOf(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	data, err := os.ReadFile("../tokenize/testdata/files.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var model struct {
			Name string
			File json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &model); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, model.Name, "tokenizer.json"), string(model.File))
		put(t, filepath.Join(dir, model.Name, "tokenizer_config.json"), specialTokens)
	}
	return dir
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestConversations compares tokens and loss with those of Transformers' apply_chat_template.
func TestConversations(t *testing.T) {
	files := []string{"testdata/conversations.jsonl"}
	if more := os.Getenv("MILLRACE_CHAT_TOKENS"); more != "" {
		files = append(files, more)
	}
	dir := modelsOf(t)
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 4<<20)
		known := map[string]turns{} // templates, and conversations, by name
		chains := map[string]*Chain{}
		exact, all, others := map[string]int{}, map[string]int{}, 0
		for lines.Scan() {
			var c turns
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				t.Fatal(err)
			}
			if c.Source != "" {
				put(t, filepath.Join(dir, c.Template+".jinja"), c.Source)
			}
			if c.Messages != nil {
				known[c.Title] = c
			}
			c.Messages, c.Tools = known[c.Title].Messages, known[c.Title].Tools
			name := c.Tokenizer + " " + c.Template
			if chains[name] == nil {
				chains[name] = mustCompile(t, conversations(dir, c.Tokenizer, c.Template+".jinja", nil), 1<<20)
			}
			if all[name]++; c.Transformers != nil {
				others++
			}
			if sameTurns(t, chains[name], c) {
				exact[name]++
			}
		}
		for name, n := range all {
			t.Logf("%s: %d of %d conversations have the tokens and the loss that they should have", name, exact[name], n)
		}
		t.Logf("in %d conversations the loss of Transformers ends within a character, or leaves out white space at the beginning", others)
	}
}

func conversations(dir, tokenizer, template string, change func(*jobspec.Chat)) jobspec.Source {
	chat := &jobspec.Chat{Messages: "messages", Tools: "tools", TrainOn: trainAssistant, Date: "2026-11-03"}
	if template != "" {
		chat.Template = filepath.Join(dir, template)
	}
	if change != nil {
		change(chat)
	}
	return jobspec.Source{Name: "chat", Transforms: []jobspec.Transform{
		chat, &jobspec.Tokenize{File: filepath.Join(dir, tokenizer, "tokenizer.json")},
	}}
}

// jsonColumn is a column as the readers of JSON give it: objects as their text.
func jsonColumn(t testing.TB, raw json.RawMessage) format.Value {
	t.Helper()
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	v := format.Value{Kind: format.List}
	if list == nil {
		return format.Value{}
	}
	for _, item := range list {
		v.List = append(v.List, stringOf(string(item)))
	}
	return v
}

func sameTurns(t *testing.T, c *Chain, want turns) bool {
	t.Helper()
	samples, _, err := collect(c.Worker(), recordFor(c, 1, columns{"messages": jsonColumn(t, want.Messages), "tools": jsonColumn(t, want.Tools)}))
	at := fmt.Sprintf("%s, %s, %s", want.Tokenizer, want.Template, want.Title)
	switch {
	case (err != nil) != (want.Error != ""):
		t.Errorf("%s: got %v, Transformers %s", at, err, want.Error)
		return false
	case err != nil:
		return true
	case len(samples) != 1:
		t.Errorf("%s: %d samples", at, len(samples))
		return false
	case !slices.Equal(samples[0].Tokens, want.IDs):
		t.Errorf("%s: tokens %v, want %v", at, samples[0].Tokens, want.IDs)
		return false
	}
	mask := slices.Repeat([]int32{1}, len(want.IDs))
	for k := 0; k < len(samples[0].Masked); k += 2 {
		clear(mask[samples[0].Masked[k]:samples[0].Masked[k+1]])
	}
	if !slices.Equal(mask[1:], want.Mask[1:]) {
		t.Errorf("%s: of %v\nloss %v\nwant %v", at, want.IDs, mask, want.Mask)
		return false
	}
	return true
}

const (
	// plainTemplate marks nothing as generated, and writes every message by itself.
	plainTemplate = `{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}|{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
	// markedTemplate marks what the assistant says.
	markedTemplate = `{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}|{% endgeneration %}{% else %}{{ m.content }}|{% endif %}{% endfor %}`
	// forgetful writes an earlier answer in another way than the last one.
	forgetful = `{% for m in messages %}<{{ m.role }}>{% if not loop.last and m.role == 'assistant' %}...{% else %}{{ m.content }}{% endif %}|{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
)

// shown is the text of a conversation in which what carries loss is in brackets.
func shown(t *testing.T, src jobspec.Source, messages string) (string, error) {
	t.Helper()
	c := mustCompile(t, src, 1<<20)
	samples, outcome, err := collect(c.Worker(), recordFor(c, 7, columns{"messages": stringOf(messages)}))
	if err != nil {
		return "", err
	}
	if outcome != Kept || len(samples) != 1 {
		t.Fatalf("%v, %d samples", outcome, len(samples))
	}
	s := samples[0]
	var b strings.Builder
	loss := true
	b.WriteByte('[')
	for i, id := range s.Tokens {
		if slices.Contains(s.Masked, int32(i)) {
			b.WriteString(map[bool]string{true: "]", false: "["}[loss])
			loss = !loss
		}
		b.WriteByte(byte(id))
	}
	if loss {
		b.WriteByte(']')
	}
	return b.String(), nil
}

// TestTrainOn: which messages carry loss, by the spec and by themselves. A token is a byte
// here, and the first, which nothing predicts, counts as carrying it.
func TestTrainOn(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "plain.jinja"), plainTemplate)
	put(t, filepath.Join(dir, "marked.jinja"), markedTemplate)
	put(t, filepath.Join(dir, "forgetful.jinja"), forgetful)
	const two = `[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]`
	with := func(loss ...string) string {
		var list []string
		for i, role := range []string{"user", "assistant", "user", "assistant"} {
			list = append(list, fmt.Sprintf(`{"role":%q,"content":%q%s}`, role, string(rune('a'+i)), loss[i]))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	weighted := func(list string) string { return strings.ReplaceAll(list, "loss", "weight") }
	for _, test := range []struct{ template, trainOn, messages, want string }{
		{"plain", "assistant", weighted(with("", `,"loss":0`, "", `,"loss":1`)), "[<]user>a|<assistant>b|<user>c|<assistant>[d|]"},
		{"plain", "assistant", weighted(with(`,"loss":1.0`, "", "", `,"loss":0.0`)), "[<user>a|]<assistant>[b|]<user>c|<assistant>d|"},
		{"plain", "assistant", two, "[<]user>a|<assistant>[b|]<user>c|<assistant>[d|]"},
		{"plain", "last", two, "[<]user>a|<assistant>b|<user>c|<assistant>[d|]"},
		{"plain", "all", two, "[<user>a|<assistant>b|<user>c|<assistant>d|]"},
		{"plain", "assistant", with("", `,"loss":false`, "", ""), "[<]user>a|<assistant>b|<user>c|<assistant>[d|]"},
		{"plain", "assistant", with(`,"loss":1`, `,"loss":0`, "", ""), "[<user>a|]<assistant>b|<user>c|<assistant>[d|]"},
		{"plain", "last", with("", `,"loss":true`, "", `,"loss":false`), "[<]user>a|<assistant>[b|]<user>c|<assistant>d|"},
		{"plain", "all", with("", `,"loss":false`, "", ""), "[<user>a|]<assistant>b|[<user>c|<assistant>d|]"},
		{"plain", "all", with(`,"loss":false`, "", "", `,"loss":0`), "[<]user>a|[<assistant>b|<user>c|]<assistant>d|"},
		{"plain", "assistant", `[{"role":"user","content":"a"}]`, "[<]user>a|"},
		{"marked", "assistant", two, "[<]user>a|<assistant>[b|]<user>c|<assistant>[d|]"},
		{"marked", "last", two, "[<]user>a|<assistant>b|<user>c|<assistant>[d|]"},
		{"marked", "assistant", with("", `,"loss":false`, `,"loss":null`, ""), "[<]user>a|<assistant>b|<user>c|<assistant>[d|]"},
		{"marked", "assistant", with("", "", `,"loss":true`, ""), "[<]user>a|<assistant>[b|<user>c|]<assistant>[d|]"},
		{"forgetful", "last", two, "[<]user>a|<assistant>...|<user>c|<assistant>[d|]"},
	} {
		src := conversations(dir, "", test.template+".jinja", func(c *jobspec.Chat) {
			if c.TrainOn = test.trainOn; strings.Contains(test.messages, "weight") {
				c.Loss = "weight"
			}
		})
		src.Transforms[1] = tokenizeBytes
		got, err := shown(t, src, test.messages)
		if err != nil || got != test.want {
			t.Errorf("%s, %s, %s:\ngot  %s, %v\nwant %s", test.template, test.trainOn, test.messages, got, err, test.want)
		}
	}
}

func TestConversationErrors(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "plain.jinja"), plainTemplate)
	put(t, filepath.Join(dir, "forgetful.jinja"), forgetful)
	put(t, filepath.Join(dir, "strict.jinja"), "{% for m in messages %}\n{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}{{ m.content + '' }}{% endfor %}")
	put(t, filepath.Join(dir, "today.jinja"), "{{ strftime_now('%Y') }}{{ messages[0].content }}")
	for name, test := range map[string]struct{ template, messages, want string }{
		"no list":          {"plain", `{"role":"user"}`, "a conversation is a list of at least one message"},
		"nothing":          {"plain", `[]`, "a conversation is a list of at least one message"},
		"no JSON":          {"plain", `[{]`, `column "messages": its text is no JSON`},
		"no object":        {"plain", `[{"role":"user","content":"a"},"b"]`, "message 1: it is a text, not an object (in Parquet and Arrow a struct)"},
		"other names":      {"plain", `[{"from":"human","value":"a"}]`, "message 0: it has no role (its fields are from, value); a message has role and content: a python step makes them of from and value, docs/chat.md has one (ShareGPT)"},
		"role is a number": {"plain", `[{"role":3,"content":"a"}]`, "message 0: it has no role"},
		"unknown role":     {"plain", `[{"role":"user","content":"a"},{"role":"wizard","content":"b"}]`, `message 1: its role is "wizard", which the template does not know`},
		"loss is a word":   {"plain", `[{"role":"user","content":"a","loss":"no"}]`, "message 0: its loss is neither"},
		"refused":          {"strict", `[{"role":"user","content":"a"},{"role":"system","content":"b"}]`, "line 2 of the template refuses it: no system here"},
		"content missing":  {"strict", `[{"role":"user"}]`, "line 2 of the template: 'dict object' has no attribute 'content'"},
		"the clock":        {"today", `[{"role":"user","content":"a"}]`, "another day"},
		"forgetful":        {"forgetful", `[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]`, "message 2: the template writes what comes before it in another way"},
	} {
		src := conversations(dir, "", test.template+".jinja", func(c *jobspec.Chat) { c.Date = "" })
		src.Transforms[1] = tokenizeBytes
		_, err := shown(t, src, test.messages)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "row 7: transforms[0].chat: ") || fault.ClassOf(err) != fault.User {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestTypedErrors: an error about a column of a file with a schema says its type, and a text of
// structs stops the job whatever becomes of bad records.
func TestTypedErrors(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "plain.jinja"), plainTemplate)
	src := conversations(dir, "", "plain.jinja", nil)
	src.Transforms[1] = tokenizeBytes
	texts := func(list ...string) (v format.Value) {
		v.Kind = format.List
		for _, s := range list {
			v.List = append(v.List, stringOf(s))
		}
		return v
	}
	for _, test := range []struct {
		transforms []jobspec.Transform
		typ        format.Type
		value      format.Value
		want       string
	}{
		{src.Transforms, format.Type{Name: "list<string>"}, texts("Hello"), `column "messages" (list<string>): element 0: its text is no JSON (it begins with "Hello"): invalid character 'H' looking for beginning of value; valid is a list of objects (in Parquet and Arrow of structs), or its JSON text`},
		{src.Transforms, format.Type{Name: "int64"}, format.Value{Kind: format.Int}, `column "messages" (int64): it is an integer; valid is a list of objects`},
		{src.Transforms, format.Type{Name: "struct<role: string>", Objects: true}, stringOf(`{"role":"user"}`), `column "messages" (struct<role: string>): it is an object; a conversation is a list of at least one message: `},
		{src.Transforms, format.Type{Name: "list<struct<from: string, value: string>>", Objects: true}, texts(`{"from":"human"}`), `column "messages" (list<struct<from: string, value: string>>): message 0: it has no role (its fields are from)`},
		{[]jobspec.Transform{jobspec.Text("{messages}"), tokenizeBytes}, format.Type{Name: "list<struct<role: string>>", Objects: true}, texts(`{"role":"user"}`), `row 3: transforms[0].text: column "messages" (list<struct<role: string>>): its values are groups of fields and no text: name a field of it`},
	} {
		src := src
		src.Transforms, src.BadRecords = test.transforms, jobspec.BadRecords{Policy: "skip"}
		c := mustCompile(t, src, 1<<20)
		rec := recordFor(c, 3, columns{"messages": test.value})
		rec.Types = slices.Repeat([]format.Type{test.typ}, len(rec.Values))
		_, _, err := collect(c.Worker(), rec)
		if err == nil || !strings.Contains(err.Error(), test.want) || fault.ClassOf(err) != fault.User {
			t.Errorf("%v, want %s", err, test.want)
		}
		if skipped := Skips(&src, err); skipped != (test.transforms[0].Operator() == "chat") {
			t.Errorf("%v is skipped: %v", err, skipped)
		}
	}
}

// TestChatFiles: where templates and tokens are found, and that each is part of the digest.
func TestChatFiles(t *testing.T) {
	dir := modelsOf(t)
	folder := filepath.Join(dir, "llama3")
	const messages = `[{"role":"user","content":"a"}]`
	compile := func(template string) (*Chain, error) {
		return Compile(conversations(dir, "llama3", template, nil), 100, nil)
	}
	if _, err := compile(""); err == nil || !strings.Contains(err.Error(), "there is no chat template") {
		t.Errorf("no template: %v", err)
	}
	digests := map[[32]byte]string{}
	check := func(name, template, want string) {
		t.Helper()
		c, err := compile(template)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		w := c.Worker()
		if _, _, err := collect(w, recordFor(c, 1, columns{"messages": stringOf(messages)})); err != nil || string(w.text) != want {
			t.Errorf("%s: %q, %v, want %q", name, w.text, err, want)
		}
		if other := digests[c.EncodingDigest()]; other != "" {
			t.Errorf("%s has the digest of %s", name, other)
		}
		digests[c.EncodingDigest()] = name
	}
	config := func(s string) { put(t, filepath.Join(folder, "tokenizer_config.json"), s) }
	config(`{"bos_token": "<s>", "chat_template": "1{{ bos_token }}{{ eos_token }}{{ messages[0].content }}"}`)
	check("in the configuration", "", "1<s>a")
	put(t, filepath.Join(folder, "special_tokens_map.json"), `{"bos_token": "<t>", "eos_token": "<e>"}`)
	check("tokens in a map", "", "1<s><e>a")
	config(`{"bos_token": {"content": "<b>"}, "chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": "2{{ bos_token }}"}, {"name": "tool_use", "template": "3"}]}`)
	check("one of several", "", "2<b>")
	put(t, filepath.Join(folder, "chat_template.jinja"), "4{{ bos_token }}")
	check("in a file", "", "4<b>")
	put(t, filepath.Join(dir, "own.jinja"), "5{{ bos_token }}")
	check("named", "own.jinja", "5<b>")
	put(t, filepath.Join(dir, "own.json"), `{"bos_token": "<c>", "chat_template": "6{{ bos_token }}"}`)
	check("in another configuration", "own.json", "6<c>")
}
