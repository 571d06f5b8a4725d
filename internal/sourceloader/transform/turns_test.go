package transform

import (
	"path/filepath"
	"slices"
	"testing"
)

// TestTurnsOfTokens: a conversation of characters that are no tokens has none, and the space that a tokenizer adds before an
// answer carries loss with it, by the offsets of the tokenizers library 0.23.3.
func TestTurnsOfTokens(t *testing.T) {
	dir := t.TempDir()
	const file = `{"version": "1.0", "model": {"type": "BPE", "vocab": {"▁": 0, "a": 1, "b": 2}, "merges": []},
		"added_tokens": [{"id": 3, "content": "<s>", "lstrip": false, "rstrip": false, "single_word": false, "normalized": false, "special": true}]`
	put(t, filepath.Join(dir, "plain", "tokenizer.json"), file+"}")
	put(t, filepath.Join(dir, "spaced", "tokenizer.json"), file+`, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}}`)
	put(t, filepath.Join(dir, "t.jinja"), `{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}<s>{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}`)
	collected := func(tokenizer, messages string) (ids, masked []int32) {
		chain := mustCompile(t, conversations(dir, tokenizer, "t.jinja", nil), 1<<20)
		samples, _, err := collect(chain.Worker(), recordFor(chain, 1, columns{"messages": stringOf(messages)}))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			ids, masked = append(ids, s.Tokens...), append(masked, s.Masked...)
		}
		return ids, masked
	}
	if ids, _ := collected("plain", `[{"role": "user", "content": "?!"}]`); len(ids) > 0 {
		t.Errorf("no tokens: %v", ids)
	}
	ids, masked := collected("spaced", `[{"role": "user", "content": "b"}, {"role": "assistant", "content": "ab"}]`)
	if !slices.Equal(ids, []int32{0, 2, 3, 0, 1, 2}) || !slices.Equal(masked, []int32{1, 3}) {
		t.Errorf("tokens %v, masked %v, want 0 2 3 0 1 2 and 1 to 3", ids, masked)
	}
}
