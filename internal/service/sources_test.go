package service_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// made is the folder with the sources of all tests, which is written once.
var made struct {
	sync.Once
	dir string
}

// writeSources makes a folder of the test's own with sources of several formats and sizes.
func writeSources(t testing.TB) string {
	t.Helper()
	made.Do(func() {
		dir := filepath.Join(folder, "sources")
		makeSources(t, dir)
		made.dir = dir
	})
	if made.dir == "" {
		t.Fatal("the sources could not be written")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(made.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// makeSources writes the sources, all from one seed.
func makeSources(t testing.TB, dir string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	for f := range 3 {
		var b strings.Builder
		for i := range 60 {
			fmt.Fprintf(&b, `{"id":%d,"lang":%q,"text":%q}`+"\n", i, []string{"en", "de"}[rng.IntN(2)], words(rng, rng.IntN(60)+1))
		}
		write(t, filepath.Join(dir, "jsonl", fmt.Sprintf("part-%d.jsonl", f)), b.String())
	}
	for f := range 40 {
		write(t, filepath.Join(dir, "text", fmt.Sprintf("%02d.txt", f)), words(rng, rng.IntN(300)))
	}
	writeMasked(t, filepath.Join(dir, "masked"), rng)
	writeIndexed(t, filepath.Join(dir, "masked"))
	writeTokenizers(t, filepath.Join(dir, "tokenizers"))
	writeTalks(t, filepath.Join(dir, "talks"), rng)
	writeNested(t, filepath.Join(dir, "talks"))
	writeMedia(t, filepath.Join(dir, "media"), rng)
	writePages(t, filepath.Join(dir, "pages"))
	writeFiles(t, filepath.Join(dir, "files"), rng)
}
