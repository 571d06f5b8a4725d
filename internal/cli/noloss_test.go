package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/preview"
)

// conversations is a folder with 20 of them, whose answers have a role, and a job of them.
func conversations(t *testing.T, role string) (dir string) {
	dir = folder(t, words("chats.jsonl", "transforms: [{chat: {template: chat.jinja}}, {tokenize: bytes}]")...)
	put(t, dir, "chat.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}"+role+": {% endif %}")
	put(t, dir, "chats.jsonl", records(20, `{"messages": [{"role": "user", "content": "what is %d?"}, {"role": "`+role+`", "content": "a number"}]}`))
	return dir
}

// TestSourceWithoutLoss: lint, plan, run and the status say that nothing is learned from a source.
func TestSourceWithoutLoss(t *testing.T) {
	t.Parallel()
	none := "has a token that carries loss: nothing is learned from them"
	for name, c := range map[string]struct {
		dir  string
		lint []string
	}{
		"a role that is none of the usual ones": {conversations(t, "model"), []string{
			"warning: sources[0].transforms[0].chat: none of the 20 samples read " + none, "train_on is assistant, and the messages have the roles user, model", "rename the role",
		}},
		"a mask of zeros": {masked(t, "[0, 0, 0]"), []string{"warning: sources[0].transforms[1].loss_mask: none of the 20 samples read " + none, "correct the column"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			millrace(t, c.dir, "lint", "job.yaml", "--read", "100").expect(t, 0, c.lint...)
			for _, verb := range []string{"plan", "run"} {
				r := millrace(t, c.dir, verb, "job.yaml", "--steps", "2")
				if r.expect(t, 0); !strings.Contains(r.stdout, " samples read "+none) {
					t.Errorf("%s does not say so:\n%s", verb, r.stdout)
				}
			}
		})
	}
	dir := conversations(t, "model")
	s := serve(t, dir)
	for end := time.Now().Add(hangs); ; time.Sleep(20 * time.Millisecond) {
		var said status.Service
		decode(t, millrace(t, dir, "status", s.address, "--json").stdout, &said)
		if len(said.Sources) > 0 && said.Sources[0].NoLoss != nil && said.Sources[0].NoLoss.All() {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the status does not count samples without loss: %+v", said.Sources)
		}
	}
	if r := millrace(t, dir, "status", s.address); !strings.Contains(r.stdout, "samples read "+none) {
		t.Errorf("the status does not say so:\n%s", r.stdout)
	}
	if r := millrace(t, dir, "preview", "job.yaml", "--step", "0"); !strings.Contains(r.stdout, "loss on nothing\n") {
		t.Errorf("the preview does not say so:\n%s", r.stdout)
	}
}

// masked is a folder with 20 records of three tokens with a loss mask, and a job of them.
func masked(t *testing.T, mask string) (dir string) {
	dir = folder(t, words("tokens.jsonl", "transforms: [{tokens: ids}, {loss_mask: mask}]")...)
	put(t, dir, "tokens.jsonl", records(20, `{"ids": [%d, 1, 2], "mask": `+mask+`}`))
	return dir
}

// TestSourceWithLoss: no verb warns of a source some of whose tokens carry loss.
func TestSourceWithLoss(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{conversations(t, "assistant"), masked(t, "[0, 0, 1]")} {
		if r := millrace(t, dir, "lint", "job.yaml", "--read", "100"); r.code != 0 || r.stderr != "" {
			t.Errorf("lint finds %s", r.stderr)
		}
		var r preview.Report
		decode(t, millrace(t, dir, "plan", "job.yaml", "--steps", "2", "--json").stdout, &r)
		if r.Sources[0].NoLoss != nil {
			t.Errorf("the plan counts %v", r.Sources[0].NoLoss)
		}
	}
}
