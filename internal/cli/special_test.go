package cli

import (
	"fmt"
	"strings"
	"testing"
)

// TestSpecialTokens: the name of a special token in a text is text unless the job says
// otherwise; then it is one id, or the record is refused with its place.
func TestSpecialTokens(t *testing.T) {
	t.Parallel()
	var records strings.Builder
	for i := range 100 {
		text := fmt.Sprintf("text %03d", i)
		if i%20 == 13 {
			text = "a<|endoftext|>b"
		}
		fmt.Fprintf(&records, "{\"text\": %q}\n", text)
	}
	with := func(tokenize string, more ...string) string {
		dir := folder(t, words("qa.jsonl", append([]string{fmt.Sprintf("transforms: [{tokenize: %s}, {append_eod: {}}]", tokenize)}, more...)...)...)
		put(t, dir, "qa.jsonl", records.String())
		return dir
	}
	plain := tokensOf(t, with("bytes"))
	const name = int64(len("<|endoftext|>"))
	for tokenize, want := range map[string]int64{
		"{special: text}":                           plain,
		"{special: allow}":                          plain - 5*(name-1),
		"{allow: <|endoftext|>}":                    plain - 5*(name-1),
		"{special: refuse, allow: [<|endoftext|>]}": plain - 5*(name-1),
		"{special: allow, refuse: []}":              plain - 5*(name-1),
	} {
		if got := tokensOf(t, with(tokenize)); got != want {
			t.Errorf("tokenize: %s gives %d tokens in an epoch, want %d", tokenize, got, want)
		}
	}
	// What was the default is the default: text changes neither bytes nor identity.
	if got, want := millrace(t, with("{special: text}"), "run", "job.yaml", "--steps", "3").digest(t), millrace(t, with("bytes"), "reference", "job.yaml", "--steps", "3").digest(t); got != want {
		t.Errorf("special: text ends with %s, a spec without it with %s", got, want)
	}
	dir := with("{special: allow}")
	if got, want := millrace(t, dir, "run", "job.yaml", "--steps", "3").digest(t), millrace(t, dir, "reference", "job.yaml", "--steps", "3").digest(t); got != want {
		t.Errorf("special: allow ends with %s, the reference with %s", got, want)
	}

	dir = with("{refuse: <|endoftext|>}")
	for _, args := range [][]string{{"run", "job.yaml"}, {"plan", "job.yaml"}, {"lint", "job.yaml", "--read", "50"}} {
		millrace(t, dir, args...).expect(t, exitUser, "qa.jsonl: byte 273: transforms[0].tokenize: byte 1 of the text is the special token <|endoftext|>, which is refused")
	}
	if got, want := tokensOf(t, with("{special: refuse}", "bad_records: skip")), plain-5*(name+3); got != want {
		t.Errorf("without the records that are refused there are %d tokens, want %d", got, want)
	}
	millrace(t, with("{refuse: <|endoftxt|>}"), "lint", "job.yaml").expect(t, exitUser, "job.yaml:6:", `no special token "<|endoftxt|>"`, `did you mean "<|endoftext|>"?`)
	millrace(t, with("{refuse: <|endoftext|>, allow: <|endoftext|>}"), "lint", "job.yaml").expect(t, exitUser, "also in allow")
}
