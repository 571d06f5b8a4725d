package tokenize

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/regular"
)

// Chat is what a model's files say of conversations: the template, and the tokens that it may
// name. The files lie beside the tokenizer.json.
type Chat struct {
	Template string
	Tools    string            // another template for conversations with tools, or ""
	Special  map[string]string // such as bos_token
	Digest   [32]byte          // of all of that
}

// Files that a model's tokenizer is published with.
const (
	templateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
	mapFile      = "special_tokens_map.json"
)

// maxChatFile bounds such a file; the largest have 60 KB beside lists of added tokens.
const maxChatFile = 16 << 20

// LoadChat reads a template, which is a file of Jinja or, if its name ends in .json, the
// chat_template in a tokenizer_config.json. Without one it is chat_template.jinja beside the
// tokenizer's file or, if that is not there, the one in its tokenizer_config.json. Errors are of
// class fault.User.
func LoadChat(template, tokenizer string) (c Chat, err error) {
	var config chatConfig
	if tokenizer != "" {
		if err := config.read(tokenizer); err != nil {
			return c, err
		}
	}
	path := template
	switch {
	case strings.HasSuffix(template, ".json"):
		config.Template = nil
		if _, err := readChatJSON(template, &config); err != nil {
			return c, err
		}
		err = config.templates(&c, template)
	case template == "" && tokenizer == "":
		return c, fault.Userf("a chat step without a template needs a tokenize step with a file, beside which the model's template lies: name the template's file")
	case template == "":
		if path = filepath.Join(filepath.Dir(tokenizer), templateFile); !isFile(path) {
			err = config.templates(&c, filepath.Join(filepath.Dir(tokenizer), configFile))
			break
		}
		fallthrough
	default:
		var text []byte
		text, err = readChatFile(path)
		c.Template = string(text)
	}
	if err != nil {
		return c, err
	}
	c.Special = config.special()
	all, err := json.Marshal([]any{c.Template, c.Tools, c.Special}) // keys of a map are sorted
	c.Digest = sha256.Sum256(all)
	return c, err
}

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func readChatFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxChatFile {
		return nil, fault.Userf("reading a chat template: %w", cmp.Or(err, errors.New(path+" is too large for one")))
	}
	data, err := regular.Read(path)
	if err != nil {
		return nil, fault.Userf("reading a chat template: %w", err)
	}
	return data, nil
}

// readChatJSON reads a file into config; one that is not there is no error.
func readChatJSON(path string, config *chatConfig) (found bool, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	data, err := readChatFile(path)
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, config); err != nil {
		return false, fault.Userf("%s is not a tokenizer_config.json: %w", path, err)
	}
	return true, nil
}

// chatConfig is a tokenizer_config.json or a special_tokens_map.json.
type chatConfig struct {
	Template json.RawMessage `json:"chat_template"`
	BOS      chatToken       `json:"bos_token"`
	EOS      chatToken       `json:"eos_token"`
	UNK      chatToken       `json:"unk_token"`
	SEP      chatToken       `json:"sep_token"`
	PAD      chatToken       `json:"pad_token"`
	CLS      chatToken       `json:"cls_token"`
	MASK     chatToken       `json:"mask_token"`
}

// chatToken is a token's text, also where it is written as an object, null or nothing.
type chatToken string

// UnmarshalJSON reads a text, or the content of an object.
func (t *chatToken) UnmarshalJSON(data []byte) error {
	var object struct{ Content string }
	if json.Unmarshal(data, (*string)(t)) == nil {
		return nil
	}
	err := json.Unmarshal(data, &object)
	*t = chatToken(object.Content)
	return err
}

// read reads the files beside a tokenizer: what the first says counts.
func (c *chatConfig) read(tokenizer string) error {
	folder := filepath.Dir(tokenizer)
	if _, err := readChatJSON(filepath.Join(folder, mapFile), c); err != nil {
		return err
	}
	c.Template = nil
	_, err := readChatJSON(filepath.Join(folder, configFile), c)
	return err
}

// special are the tokens that templates may name.
func (c *chatConfig) special() map[string]string {
	tokens := map[string]string{}
	for name, token := range map[string]chatToken{
		"bos_token": c.BOS, "eos_token": c.EOS, "unk_token": c.UNK, "sep_token": c.SEP, "pad_token": c.PAD, "cls_token": c.CLS, "mask_token": c.MASK,
	} {
		if token != "" {
			tokens[name] = string(token)
		}
	}
	return tokens
}

// templates sets the templates of a file: one, or several with names.
func (c *chatConfig) templates(to *Chat, path string) error {
	var named []struct{ Name, Template string }
	switch {
	case len(c.Template) == 0 || string(c.Template) == "null":
		return fault.Userf("there is no chat template: %s has no chat_template, and beside it is no %s; name the template's file", path, templateFile)
	case json.Unmarshal(c.Template, &to.Template) == nil:
		return nil
	case json.Unmarshal(c.Template, &named) != nil:
		return fault.Userf("%s: chat_template is neither a text nor a list of named ones", path)
	}
	for _, t := range named {
		switch t.Name {
		case "default":
			to.Template = t.Template
		case "tool_use":
			to.Tools = t.Template
		}
	}
	if to.Template == "" {
		return fault.Userf("%s: no template in chat_template is called default", path)
	}
	return nil
}
