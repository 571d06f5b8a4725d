package tokenize

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// libraryEnv names the folder that testdata/library.py has written.
const libraryEnv = "MILLRACE_TOKENIZERS"

// librarySpeed is the MB per CPU second of an encoding, where that can be measured.
var librarySpeed func(testing.TB, *Encoding) (best, median float64)

// TestLibrary compares ids with those of the tokenizers library and of SentencePiece, and writes table.md:
// `make tokenizers`.
func TestLibrary(t *testing.T) {
	dir := os.Getenv(libraryEnv)
	if dir == "" {
		t.Skip("no ids of the tokenizers library are here: run `make tokenizers`")
	}
	texts := libraryTexts(t, dir)
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	table := fmt.Sprintf("%d texts, %.1f MB; MB per CPU second of one thread, best of 7 (median), beside the library's best\n\n| file | texts that differ | MB/cpu-s | library |\n|---|---|---|---|\n", len(texts), float64(size)/1e6)
	files, err := filepath.Glob(filepath.Join(dir, "*.ids"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no ids (%v)", dir, err)
	}
	speeds := librarySpeeds(t, dir)
	for _, ids := range files {
		name := strings.TrimSuffix(filepath.Base(ids), ".ids")
		t.Run(name, func(t *testing.T) {
			bad := 0
			for suffix, post := range map[string]bool{".ids": false, ".post": true} {
				bad += compareFile(t, dir, name, suffix, post, texts)
			}
			row := fmt.Sprintf("| %s | %d |", filepath.Base(libraryFile(dir, name)), bad)
			if librarySpeed != nil {
				e, err := LoadFile(libraryFile(dir, name), "", false)
				if err != nil {
					t.Fatal(err)
				}
				best, median := librarySpeed(t, e)
				row += fmt.Sprintf(" %.1f (%.1f)", best, median)
			}
			table += row + " | " + speeds[name] + " |\n"
		})
	}
	if err := os.WriteFile(filepath.Join(dir, "table.md"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
}

// librarySpeeds are the lines of speed.txt, a name and its speed.
func librarySpeeds(t *testing.T, dir string) map[string]string {
	lines, err := os.ReadFile(filepath.Join(dir, "speed.txt"))
	if err != nil {
		t.Fatal(err)
	}
	speeds := map[string]string{}
	for line := range strings.Lines(string(lines)) {
		if name, speed, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			speeds[name] = speed
		}
	}
	return speeds
}

// compareFile compares a file's ids, with or without post-processor and special tokens, and returns the number of
// texts that differ.
func compareFile(t *testing.T, dir, name, suffix string, post bool, texts []string) int {
	path := libraryFile(dir, name)
	if post && filepath.Ext(path) == ".model" {
		return 0 // which has no post-processor
	}
	e, err := LoadFile(path, "", post)
	if err != nil {
		t.Fatal(err)
	}
	rules := new(Specials)
	if post {
		if rules, err = e.Specials(e.SpecialNames(), nil); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(filepath.Join(dir, name+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return compareLibrary(t, e, rules, post, texts, want)
}

func compareLibrary(t *testing.T, e *Encoding, rules *Specials, post bool, texts []string, want []byte) (bad int) {
	encoder := e.NewEncoder()
	var ids []int32
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
	return bad
}

// libraryFile is the tokenizer.json or the SentencePiece model of a name.
func libraryFile(dir, name string) string {
	if path := filepath.Join(dir, name+".model"); exists(path) {
		return path
	}
	return filepath.Join(dir, name+".json")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
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
