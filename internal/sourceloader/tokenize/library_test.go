package tokenize

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// libraryEnv names the folder that testdata/library.py has written.
const libraryEnv = "MILLRACE_TOKENIZERS"

// TestLibrary compares ids with those of the tokenizers library: `make tokenizers`.
func TestLibrary(t *testing.T) {
	dir := os.Getenv(libraryEnv)
	if dir == "" {
		t.Skip("no ids of the tokenizers library are here: run `make tokenizers`")
	}
	texts := libraryTexts(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "*.ids"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no ids (%v)", dir, err)
	}
	for _, ids := range files {
		name := strings.TrimSuffix(filepath.Base(ids), ".ids")
		t.Run(name, func(t *testing.T) {
			for suffix, post := range map[string]bool{".ids": false, ".post": true} {
				e, err := LoadFile(filepath.Join(dir, name+".json"), "", post)
				if err != nil {
					t.Fatal(err)
				}
				rules, err := e.Specials(e.SpecialNames(), nil)
				if err != nil {
					t.Fatal(err)
				}
				want, err := os.ReadFile(filepath.Join(dir, name+suffix))
				if err != nil {
					t.Fatal(err)
				}
				compareLibrary(t, e, rules, post, texts, want)
			}
		})
	}
}

func compareLibrary(t *testing.T, e *Encoding, rules *Specials, post bool, texts []string, want []byte) {
	encoder := e.NewEncoder()
	var ids []int32
	bad := 0
	for i, text := range texts {
		if ids = encoder.Append(ids[:0], []byte(text)); post {
			ids, _ = rules.Append(ids[:0], []byte(text))
		}
		sum := sha256.New()
		_ = binary.Write(sum, binary.LittleEndian, ids)
		digest := sum.Sum(binary.LittleEndian.AppendUint32(nil, uint32(len(ids))))[:12]
		w := want[12*i : 12*i+12]
		if bytes.Equal(digest, w) || len(ids) == 0 && post { // a text without tokens stays empty
			continue
		}
		if bad++; bad <= 5 {
			t.Errorf("post %t, text %d %.120q: %d ids, the library has %d; begin %v", post, i, text, len(ids), binary.LittleEndian.Uint32(w), ids[:min(len(ids), 20)])
		}
	}
	if bad > 0 {
		t.Errorf("post %t: %d of %d texts differ", post, bad, len(texts))
	}
}

func libraryTexts(t testing.TB, dir string) (texts []string) {
	f, err := os.Open(filepath.Join(dir, "texts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, 1<<20)
	for d := json.NewDecoder(lines); d.More(); {
		var s string
		if err := d.Decode(&s); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, s)
	}
	return texts
}
