package transform

import (
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
	"github.com/millrace-data/millrace/internal/sourceloader/transform/jinja"
)

// loss returns the parts of the text that carry loss, or all if the whole text does.
//
// What the model is to write is what the template marks as generated. A template without
// such marks is asked: the text of the messages before an answer, with the beginning of an
// answer behind it, and that of the messages up to the answer; the answer is what the second has
// more. That holds only where each is a beginning of the next and of the whole text.
func (c *conversation) loss(generated []jinja.Span, parts []tokenize.Part) (_ []tokenize.Part, all bool, err error) {
	if !slices.Contains(c.carries, false) && c.spec.TrainOn == trainAll {
		return parts, true, nil
	}
	if c.spec.TrainOn == trainAll {
		return c.allBut(parts)
	}
	marked := c.template.Generation()
	if marked && len(generated) != c.answers() && c.choosy() {
		return parts, false, fault.Userf("the template marks %d parts as generated in a conversation of %d answers, so that loss cannot be chosen by message", len(generated), c.answers())
	}
	if marked && !c.choosy() {
		for _, s := range generated {
			parts = appendPart(parts, s.From, s.To)
		}
		return parts, false, nil
	}
	answer := 0
	for i, carries := range c.carries {
		at := answer
		if c.roles[i] == roleAssistant {
			answer++
		}
		switch {
		case !carries:
		case marked && c.roles[i] == roleAssistant:
			parts = appendPart(parts, generated[at].From, generated[at].To)
		default:
			from, to, err := c.turn(i)
			if err != nil {
				return parts, false, err
			}
			parts = appendPart(parts, from, to)
		}
	}
	return parts, false, nil
}

// answers counts the messages of the assistant.
func (c *conversation) answers() (n int) {
	for _, role := range c.roles {
		if role == roleAssistant {
			n++
		}
	}
	return n
}

// choosy reports whether other messages than all answers carry loss.
func (c *conversation) choosy() bool {
	for i, role := range c.roles {
		if c.carries[i] != (role == roleAssistant) {
			return true
		}
	}
	return false
}

// allBut are the parts of the text but for messages that carry no loss.
func (c *conversation) allBut(parts []tokenize.Part) ([]tokenize.Part, bool, error) {
	last := 0
	for i, carries := range c.carries {
		if carries {
			continue
		}
		from, err := c.begins(i, false)
		if err != nil {
			return parts, false, err
		}
		to, err := c.begins(i+1, false)
		if err != nil {
			return parts, false, err
		}
		parts = appendPart(parts, last, from)
		last = to
	}
	return appendPart(parts, last, len(c.text)), false, nil
}

// turn is the part of the text that message i is: of an answer, without its beginning.
func (c *conversation) turn(i int) (from, to int, err error) {
	if from, err = c.begins(i, c.roles[i] == roleAssistant); err != nil {
		return 0, 0, err
	}
	to, err = c.begins(i+1, false)
	if err == nil && to < from {
		err = c.unsure(i)
	}
	return from, to, err
}

// begins returns where message n begins: what the messages before it are has to be the
// beginning of the text, with the beginning of an answer behind it if answer is set.
func (c *conversation) begins(n int, answer bool) (int, error) {
	if n == len(c.messages) && !answer {
		return len(c.text), nil
	}
	if n == 0 && !answer {
		return 0, nil
	}
	key := 2 * n
	if answer {
		key++
	}
	before, known := c.before[key]
	if !known {
		var err error
		if before, _, err = c.render(n, answer); err != nil {
			return 0, err
		}
		c.before[key] = before
	}
	if !strings.HasPrefix(c.text, before) {
		return 0, c.unsure(min(n, len(c.messages)-1))
	}
	return len(before), nil
}

func (c *conversation) unsure(i int) error {
	return fault.Userf("message %d: the template writes what comes before it in another way when more follows, so that its part of the text is not known: "+
		"give a template with {%% generation %%} around what the model is to write, or train_on: all", i)
}

// appendPart adds a part that is not empty.
func appendPart(parts []tokenize.Part, from, to int) []tokenize.Part {
	if from >= to {
		return parts
	}
	return append(parts, tokenize.Part{From: from, To: to})
}

// maskTurns sets which tokens of a conversation carry loss: those with a part of what does.
func (w *Worker) maskTurns(enc *tokenize.Encoding) error {
	if w.lossOnAll {
		return nil
	}
	parts, err := enc.TokensOf(w.text, w.tokens, w.loss)
	if err != nil {
		return err
	}
	last := 0
	for _, p := range parts {
		w.masked = appendRun(w.masked, int32(last), int32(p.From))
		last = max(last, p.To)
	}
	w.masked = appendRun(w.masked, int32(last), int32(len(w.tokens)))
	return nil
}
