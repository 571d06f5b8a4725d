package jobspec

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/millrace-data/millrace/internal/fieldpath"
)

// chains checks the order of each source's steps.
func (c *checker) chains() {
	for i, s := range c.job.Sources {
		at := itemField("sources", i) + ".transforms"
		if len(s.Transforms) > 0 && c.sound(at) {
			c.chain(s.Transforms, at)
		}
	}
}

// chain walks the steps and keeps, for each kind of step, where it was last.
func (c *checker) chain(steps []Transform, at string) {
	seen := map[string]string{} // kind of step → field
	for k, t := range steps {
		kind := t.kind()
		step := itemField(at, k) + "." + kind
		if message, valid := misplaced(kind, seen); message != "" {
			c.error(step, message, valid)
		}
		if seen[kind] = step; kind == "python" {
			delete(seen, "text") // the function may make another
		}
	}
	if seen["tokens"] == "" && seen["tokenize"] == "" {
		c.error(at, "no step gives tokens", "add tokenize: bytes or another encoding, or tokens with the column that holds them")
	}
}

func (t Transform) kind() string {
	switch {
	case t.Text != "":
		return "text"
	case t.Chat != nil:
		return "chat"
	case t.Tokens != "":
		return "tokens"
	case t.LossMask != "":
		return "loss_mask"
	case t.Filter != "":
		return "filter"
	case t.Tokenize != nil:
		return "tokenize"
	case t.Image != nil:
		return "image"
	case t.Python != nil:
		return "python"
	case t.Normalize != "":
		return "normalize"
	case t.Replace != nil:
		return "replace"
	default:
		return "append_eod"
	}
}

// misplaced says what is wrong with a step after those seen, "" if nothing.
func misplaced(kind string, seen map[string]string) (message, valid string) {
	has := func(kind string) bool { return seen[kind] != "" }
	switch {
	case (kind == "python" || kind == "normalize" || kind == "replace") && (has("tokens") || has("tokenize")):
		return "comes after the tokens are made", "move it before tokenize or tokens"
	case kind == "python" && has("chat"):
		return "comes after chat", "move it before, where it may change the messages"
	case slices.Contains([]string{"filter", "python", "normalize", "replace"}, kind):
	case has(kind):
		return "is the second " + kind + " of the chain", "a chain has one: keep one of the two"
	case kind == "chat" && (has("text") || has("tokens") || has("tokenize")), kind == "text" && has("chat"):
		return "stands beside another step that makes the text", "chat takes the place of text, before tokenize: keep the one or the other"
	case kind == "tokens" && has("chat"):
		return "comes after chat", "chat makes text: put a tokenize step behind it"
	case kind == "tokens" && (has("text") || has("tokenize")):
		return "comes after text or tokenize", "tokens take the place of both: keep the one or the other"
	case (kind == "text" || kind == "tokenize") && has("tokens"):
		return "comes after tokens", "tokens take the place of text and tokenize: keep the one or the other"
	case kind == "text" && has("tokenize"):
		return "comes after tokenize", "move text before tokenize"
	case kind == "append_eod" && !has("tokens") && !has("tokenize"):
		return "comes before there are tokens", "move it after tokenize or tokens"
	case kind == "loss_mask" && !has("tokens"):
		return "has no tokens step before it", "move it after tokens: the column has a value for each token of that one"
	case kind == "loss_mask" && has("append_eod"):
		return "comes after append_eod", "move it before: the column has no value for the token that is appended"
	case kind == "image" && !has("tokens") && !has("tokenize"):
		return "comes before there are tokens", "move it after tokenize or tokens"
	case kind == "image" && has("append_eod"):
		return "comes after append_eod", "move it before: a record may have an image and no other token, and its end needs a mark too"
	}
	return "", ""
}

// functionName is a function in a module: names with dots, a colon, names with dots.
var functionName = regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*:[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`)

// functions checks the names of Python functions.
func (c *checker) functions() {
	for i, s := range c.job.Sources {
		for k, t := range s.Transforms {
			at := fmt.Sprintf("sources[%d].transforms[%d].python.function", i, k)
			if t.Python != nil && c.sound(at) && !functionName.MatchString(t.Python.Function) {
				c.error(at, quote(t.Python.Function)+" names no function of a module", "valid is module:name, such as cleaning:strip for def strip in cleaning.py")
			}
		}
	}
}

// replacements checks regular expressions.
func (c *checker) replacements() {
	for i, s := range c.job.Sources {
		for k, t := range s.Transforms {
			at := fmt.Sprintf("sources[%d].transforms[%d].replace.pattern", i, k)
			if t.Replace == nil || !c.sound(at) {
				continue
			}
			if _, err := regexp.Compile(t.Replace.Pattern); err != nil {
				c.error(at, err.Error(), "valid is RE2, without backreferences and lookaround")
			}
		}
	}
}

// images checks what the image steps say together.
func (c *checker) images() {
	var first *Image
	for i, s := range c.job.Sources {
		for k, t := range s.Transforms {
			at := fmt.Sprintf("sources[%d].transforms[%d].image", i, k)
			if t.Image == nil || !c.sound(at) {
				continue
			}
			if first == nil {
				first = t.Image
			}
			c.image(first, t.Image, at)
		}
	}
}

func (c *checker) image(first, step *Image, at string) {
	side := step.Patch * step.Merge
	switch {
	case step.MinPixels > step.MaxPixels:
		c.error(at+".min_pixels", fmt.Sprintf("%d is more than max_pixels %d", step.MinPixels, step.MaxPixels), fmt.Sprintf("valid is at most %d", step.MaxPixels))
	case step.MaxPixels < side*side:
		c.error(at+".max_pixels", fmt.Sprintf("%d is less than one block of %d x %d pixels (patch * merge)", step.MaxPixels, side, side), fmt.Sprintf("valid is %d or more", side*side))
	case step.Patch != first.Patch:
		c.error(at+".patch", fmt.Sprintf("is %d here and %d in an earlier source", step.Patch, first.Patch), "one encoder takes the images of all sources: write the same")
	case step.Merge != first.Merge:
		c.error(at+".merge", fmt.Sprintf("is %d here and %d in an earlier source", step.Merge, first.Merge), "one encoder takes the images of all sources: write the same")
	}
	c.columns(at+".columns", step.Columns)
}

// filters has the filter expressions compiled, if anybody is there to do it.
func (c *checker) filters() {
	if c.filter == nil {
		return
	}
	for i, s := range c.job.Sources {
		for k, t := range s.Transforms {
			at := fmt.Sprintf("sources[%d].transforms[%d].filter", i, k)
			if t.Filter == "" || !c.sound(at) {
				continue
			}
			if err := c.filter(t.Filter); err != nil {
				c.error(at, err.Error(), "")
			}
		}
	}
}

// templates checks the templates of text steps, and the columns of tokens steps and
// of what is kept.
func (c *checker) templates() {
	for i, s := range c.job.Sources {
		for k, t := range s.Transforms {
			at := fmt.Sprintf("sources[%d].transforms[%d].", i, k)
			if t.Text != "" && c.sound(at+"text") {
				if _, err := fieldpath.ParseTemplate(t.Text); err != nil {
					c.error(at+"text", err.Error(), "")
				}
			}
			if t.Tokens != "" {
				c.column(at+"tokens", t.Tokens)
			}
			if t.Chat != nil {
				c.column(at+"chat.messages", t.Chat.Messages)
				if t.Chat.Tools != "" {
					c.column(at+"chat.tools", t.Chat.Tools)
				}
			}
			if t.LossMask != "" {
				c.column(at+"loss_mask", t.LossMask)
			}
		}
		c.kept(itemField("sources", i)+".keep", s.Keep)
	}
}

// kept checks the columns that a source keeps.
func (c *checker) kept(at string, paths []string) {
	c.columns(at, paths)
	for k, path := range paths {
		if first := slices.Index(paths, path); first < k && c.sound(itemField(at, k)) {
			c.error(itemField(at, k), fmt.Sprintf("%s is also %s", quote(path), itemField("keep", first)), "name each column once")
		}
	}
}

// columns checks a list of paths to fields.
func (c *checker) columns(at string, paths []string) {
	for k, path := range paths {
		c.column(itemField(at, k), path)
	}
}

// column checks a path to a field.
func (c *checker) column(at, path string) {
	if !c.sound(at) {
		return
	}
	if _, err := fieldpath.Parse(path); err != nil {
		c.error(at, err.Error(), "")
	}
}

// digestText is a SHA-256 as sha256sum prints it.
var digestText = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ranks checks that the encodings that need a rank file have one.
func (c *checker) ranks() {
	for i, s := range c.job.Sources {
		for k, t := range s.Transforms {
			at := fmt.Sprintf("sources[%d].transforms[%d].tokenize", i, k)
			if t.Tokenize == nil || !c.sound(at) {
				continue
			}
			e, ranks, digest := t.Tokenize.Encoding, t.Tokenize.Ranks, t.Tokenize.SHA256
			switch {
			case digest != "" && !digestText.MatchString(digest):
				c.error(at+".sha256", quote(digest)+" is not a SHA-256", "valid are 64 hex digits in lower case, as sha256sum prints them")
			case t.Tokenize.File != "" && (ranks != "" || e != ""):
				c.error(at+".file", "is given together with encoding or ranks", "keep the file, or the encoding with its ranks")
			case t.Tokenize.File != "":
			case t.Tokenize.PostProcessor != "":
				c.error(at+".post_processor", "is given without a file", "remove it: encodings of rank files have none")
			case digest != "" && ranks == "":
				c.error(at+".sha256", "is given without a rank file", "name the file as ranks, or remove it")
			case e == "bytes" && ranks != "":
				c.error(at+".ranks", "is not used by encoding bytes", "remove it, or name the encoding that the file belongs to")
			case e != "bytes" && ranks == "":
				c.error(at+".ranks", "is missing", fmt.Sprintf("encoding %s needs its rank file, such as tokenizers/%s.tiktoken", e, e))
			}
		}
	}
}

// special checks the names of special tokens.
func (c *checker) special() {
	for i, s := range c.job.Sources {
		for k, t := range s.Transforms {
			at := fmt.Sprintf("sources[%d].transforms[%d].tokenize", i, k)
			if t.Tokenize == nil || !c.sound(at) {
				continue
			}
			valid := SpecialTokens(t.Tokenize.Encoding)
			for _, name := range slices.Concat(t.Tokenize.Allow, t.Tokenize.Refuse) {
				if t.Tokenize.File == "" && !slices.Contains(valid, name) {
					c.error(at, fmt.Sprintf("encoding %s has no special token %s", t.Tokenize.Encoding, quote(name)), oneOf(name, valid))
				}
			}
			for _, name := range t.Tokenize.Allow {
				if slices.Contains(t.Tokenize.Refuse, name) {
					c.error(at+".refuse", fmt.Sprintf("%s is also in allow", quote(name)), "keep one of the two")
				}
			}
		}
	}
}
