package transform

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
)

func TestTokenizersShareAnEncoding(t *testing.T) {
	tokenizers := NewShared(0, nil)
	var wg sync.WaitGroup
	loaded := make([]*tokenize.Encoding, 8)
	for i := range loaded {
		wg.Go(func() {
			src := jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes}}
			if i%2 == 0 {
				src.Transforms[0] = &jobspec.Tokenize{Encoding: "bytes"}
			}
			c, err := Compile(src, 10, tokenizers)
			if err != nil {
				t.Error(err)
				return
			}
			loaded[i] = c.Encoding()
		})
	}
	wg.Wait()
	for i, enc := range loaded {
		if enc == nil || enc != loaded[0] {
			t.Errorf("source %d has its own encoding", i)
		}
	}
	c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{ids("t")}}, 10)
	if c.Encoding() != nil {
		t.Errorf("a chain without a tokenize step has encoding %s", c.Encoding().Name())
	}
}

// TestTokenizersRetry: a missing rank file may appear later.
func TestTokenizersRetry(t *testing.T) {
	ranks, err := os.ReadFile(rankFile(t, "r50k_base"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "r50k_base.tiktoken")
	tokenizers := NewTokenizers()
	if _, err := tokenizers.Load(jobspec.Tokenize{Encoding: "r50k_base", Ranks: path}); err == nil || fault.ClassOf(err) != fault.User {
		t.Fatalf("a missing rank file: %v", err)
	}
	if err := os.WriteFile(path, ranks, 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := tokenizers.Load(jobspec.Tokenize{Encoding: "r50k_base", Ranks: path})
	if err != nil {
		t.Fatal(err)
	}
	again, err := tokenizers.Load(jobspec.Tokenize{Encoding: "r50k_base", Ranks: filepath.Dir(path) + "/./r50k_base.tiktoken"})
	if err != nil || again != first {
		t.Errorf("the same file by another spelling is loaded twice (%v)", err)
	}
}

func rankFile(t testing.TB, encoding string) string {
	return filepath.Join(testdata.Dir(t), "tokenizers", "tiktoken", encoding+".tiktoken")
}
