package prepare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/functions"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
)

// words writes files of JSON lines, some of them bad, into a folder: about this number of bytes in all.
func words(t *testing.T, dir string, files, bytes int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(bytes)))
	for i := range files {
		var b strings.Builder
		for n := 0; b.Len() < bytes/files; n++ {
			switch text := strings.Repeat(fmt.Sprintf("word %d of %d ", rng.IntN(1000), n), 1+rng.IntN(40)); rng.IntN(50) {
			case 0:
				b.WriteString("{\n")
			case 1:
				fmt.Fprintf(&b, "{\"id\":%d,\"text\":\"\"}\n", n)
			case 2:
				fmt.Fprintf(&b, "{\"id\":%d,\"text\":%q}\n", n, strings.Repeat(text, 60))
			default:
				fmt.Fprintf(&b, "{\"id\":%d,\"meta\":{\"lang\":\"l%d\"},\"text\":%q}\n", n, n%3, text)
			}
		}
		put(t, filepath.Join(dir, fmt.Sprintf("%d.jsonl", i)), b.String())
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
		t.Fatal(err)
	}
}

// jobOf is a job of one source, with this entry.
func jobOf(t *testing.T, dir, source string) *jobspec.Job {
	t.Helper()
	job, findings := jobspec.Parse("job.yaml", []byte("name: tiny\nseed: 3\nbatch: {sequence_length: 512, sequences: 4}\nmix: {epochs: 1, weights: {web: 1}}\nsources:\n  - "+
		strings.ReplaceAll(strings.TrimSpace(source), "\n", "\n    ")+"\n"), dir)
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return job
}

const web = `
name: web
files: web/*.jsonl
transforms:
  - text: "{id} {text}"
  - filter: len(text) > 12
  - tokenize: bytes
  - append_eod: {}
keep: [meta.lang, id]
shuffle: false
bad_records: {policy: skip, limit: 100000}
chunk_bytes: 16KiB
`

// files are the names and bytes of a folder's shards, and of the ledger.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(name)] = string(data)
	}
	return all
}

// rows are those of all steps of a job.
func rows(t *testing.T, job *jobspec.Job, functions transform.Functions) (all []batch.Row) {
	t.Helper()
	_, _, err := reference.ReadWith(t.Context(), store.Local{}, reference.Program{Functions: functions}, job, nil, -1, func(s *reference.Step) error {
		for _, r := range s.Rows {
			r.Segments = slices.Clone(r.Segments)
			for i := range r.Segments {
				r.Segments[i] = slices.Clone(r.Segments[i])
			}
			all = append(all, r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTokens prepares a source and compares what a job gets of the shards with what it gets of the files.
func TestTokens(t *testing.T) {
	conversation := `{"messages":[{"role":"user","content":"%d?"},{"role":"assistant","content":"%d, and %s"}],"k":%d}` + "\n"
	for name, c := range map[string]struct {
		source, read string
		functions    transform.Functions
	}{
		"text": {web, `{name: web, files: out/web/*.parquet, transforms: [tokens: tokens], keep: ['meta\.lang', id], shuffle: false}`, nil},
		"truncated": {strings.Replace(web, "shuffle: false", "shuffle: false\nlong: {rule: truncate, max: 100}", 1),
			`{name: web, files: out/web/*.parquet, transforms: [tokens: tokens], long: {rule: truncate, max: 100}, keep: ['meta\.lang', id], shuffle: false}`, nil},
		"functions": {strings.Replace(web, "  - tokenize", "  - python: {function: 't:pieces'}\n  - filter: len(text) > 4\n  - tokenize", 1),
			`{name: web, files: out/web/*.parquet, transforms: [tokens: tokens], keep: ['meta\.lang', id], shuffle: false}`, pieces},
		"chat": {`
name: web
files: chats.jsonl
transforms: [chat: {template: chat.jinja}, tokenize: bytes, append_eod: {}]
shuffle: false
chunk_bytes: 16KiB`, `{name: web, files: out/web, transforms: [tokens: tokens, loss_mask: loss_mask], shuffle: false}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			words(t, filepath.Join(dir, "web"), 3, 300<<10)
			var chats strings.Builder
			for i := range 400 {
				fmt.Fprintf(&chats, conversation, i, i, strings.Repeat("so on ", i%200), i)
			}
			put(t, filepath.Join(dir, "chats.jsonl"), chats.String())
			put(t, filepath.Join(dir, "chat.jinja"), `{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}`)
			job := jobOf(t, dir, c.source)
			results, err := Run(t.Context(), Options{Job: job, Out: filepath.Join(dir, "out"), ShardBytes: leastShardBytes, Workers: 3, Functions: c.functions})
			if err != nil {
				t.Fatal(err)
			}
			want, got := rows(t, job, c.functions), rows(t, jobOf(t, dir, c.read), nil)
			if len(want) < 20 || len(want) != len(got) {
				t.Fatalf("%d rows of the files, %d of the shards", len(want), len(got))
			}
			for i := range want {
				for k := range got[i].Kept {
					got[i].Kept[k].Column = strings.ReplaceAll(got[i].Kept[k].Column, `\`, "")
				}
				if !reflect.DeepEqual(want[i].Segments, got[i].Segments) || !reflect.DeepEqual(want[i].Masked, got[i].Masked) || !reflect.DeepEqual(want[i].Kept, got[i].Kept) {
					t.Fatalf("row %d of the shards is not that of the files", i)
				}
			}
			if r := results[0]; r.Records < uint64(r.Rows) && c.functions == nil || r.Tokens == 0 || r.Shards == 0 || r.Masks != (name == "chat") {
				t.Errorf("the result is %+v", r)
			}
		})
	}
}

// TestPython prepares a source with functions in Python, by one worker and by several.
func TestPython(t *testing.T) {
	python, client := testdata.Python(t)
	t.Setenv("PYTHONPATH", client)
	pythons := &functions.Set{Workers: 2}
	defer pythons.Close()
	dir := t.TempDir()
	words(t, filepath.Join(dir, "web"), 3, 300<<10)
	put(t, filepath.Join(dir, "steps.py"), `
import millrace


@millrace.transform(kind="flat_map")
def pieces(text: str) -> list[str]:
    if len(text) % 11 == 0:
        raise ValueError(f"of {len(text)} bytes")
    n = (len(text) + 2) // 3
    return [text[i : i + n] for i in range(0, len(text), n)]
`)
	of := func(step string) *jobspec.Job {
		return jobOf(t, dir, strings.Replace(web, "  - tokenize", "  - python: "+step+"\n  - tokenize", 1))
	}
	job := of(fmt.Sprintf("{function: 'steps:pieces', path: ., interpreter: %q}", python))
	var made []map[string]string
	for _, workers := range []int{1, 3} {
		out := filepath.Join(dir, fmt.Sprint("out", workers))
		if _, err := Run(t.Context(), Options{Job: job, Out: out, ShardBytes: leastShardBytes, Workers: workers, Functions: pythons.Open}); err != nil {
			t.Fatal(err)
		}
		made = append(made, files(t, filepath.Join(out, "web")))
	}
	if len(made[0]) < 2 || !reflect.DeepEqual(made[0], made[1]) {
		t.Errorf("one worker makes %d files, three %d others", len(made[0]), len(made[1]))
	}
	want := rows(t, of("{function: 't:pieces'}"), pieces)
	got := rows(t, jobOf(t, dir, `{name: web, files: out3/web/*.parquet, transforms: [tokens: tokens], keep: ['meta\.lang', id], shuffle: false}`), nil)
	if len(want) < 20 || len(want) != len(got) {
		t.Fatalf("%d rows by functions in Go, %d of the shards", len(want), len(got))
	}
	for i := range want {
		if !reflect.DeepEqual(want[i].Segments, got[i].Segments) {
			t.Fatalf("row %d of the shards is not that of the same function in Go", i)
		}
	}
}

// pieces is a function that makes a part of each third of a text.
func pieces(_ uint64, src *jobspec.Source, step int) (*transform.Function, error) {
	text := []transform.Column{{Name: "text", Kind: format.String}}
	return &transform.Function{Name: "t:pieces", Kind: transform.FlatMapFunction, In: text, Out: text, Caller: thirds{}}, nil
}

type thirds struct{}

func (thirds) Call(_ context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	out, from := &format.Batch{}, []int32(nil)
	var rec format.Record
	for i := range in.Len() {
		in.Record(i, &rec)
		text := rec.Values[0].Bytes
		if len(text)%11 == 0 {
			out.Add(&format.Record{Row: rec.Row, Err: fault.Userf("ValueError: of %d bytes", len(text))})
			from = append(from, int32(i))
			continue
		}
		for n := (len(text) + 2) / 3; len(text) > 0; text = text[min(n, len(text)):] {
			out.Add(&format.Record{Row: rec.Row, Values: []format.Value{{Kind: format.String, Bytes: text[:min(n, len(text))]}}})
			from = append(from, int32(i))
		}
	}
	return out, from, nil
}

// TestSameShards holds every way to make shards against one worker that nothing disturbs.
func TestSameShards(t *testing.T) {
	for _, functions := range []transform.Functions{nil, pieces} {
		dir := t.TempDir()
		words(t, filepath.Join(dir, "web"), 5, 5<<20)
		source := web
		if functions != nil {
			source = strings.Replace(web, "  - tokenize", "  - python: {function: 't:pieces'}\n  - tokenize", 1)
		}
		job := jobOf(t, dir, source)
		opts := Options{Job: job, Out: filepath.Join(dir, "one"), ShardBytes: leastShardBytes, Workers: 1, Functions: functions}
		if _, err := Run(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
		want := files(t, filepath.Join(dir, "one", "web"))
		if len(want) < 6 || want[skippedName] == "" {
			t.Fatalf("%d files, a ledger of %d bytes", len(want), len(want[skippedName]))
		}
		for name, disturb := range map[string]func(t *testing.T, opts Options){
			"workers": func(*testing.T, Options) {},
			"interrupted": func(t *testing.T, opts Options) {
				for after := range int64(6) {
					ctx, stop := context.WithCancel(t.Context())
					var chunks atomic.Int64
					opts.Progress = func(Progress) {
						if chunks.Add(1) == 1+50*after {
							stop()
						}
					}
					_, err := Run(ctx, opts)
					stop()
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
				}
			},
			"damaged": func(t *testing.T, opts Options) {
				if _, err := Run(t.Context(), opts); err != nil {
					t.Fatal(err)
				}
				at := filepath.Join(opts.Out, "web")
				shards, _ := filepath.Glob(filepath.Join(at, "shard-*"))
				data, err := os.ReadFile(shards[1])
				if err != nil {
					t.Fatal(err)
				}
				data[len(data)/2] ^= 1
				manifest, err := os.OpenFile(filepath.Join(at, manifestName), os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				_, err = manifest.WriteString(`{"group":3,"sha`) // a process that died while it wrote
				if err := errors.Join(err, manifest.Close(), os.WriteFile(shards[1], data, 0o666), os.Remove(shards[3])); err != nil {
					t.Fatal(err)
				}
			},
		} {
			t.Run(fmt.Sprintf("%s, functions %t", name, functions != nil), func(t *testing.T) {
				opts := opts
				opts.Out, opts.Workers = filepath.Join(t.TempDir(), "out"), 4
				disturb(t, opts)
				results, err := Run(t.Context(), opts)
				if err != nil {
					t.Fatal(err)
				}
				got := files(t, filepath.Join(opts.Out, "web"))
				for _, at := range [][]string{nil, slices.Collect(keys(want))} {
					for _, name := range at {
						if got[name] != want[name] {
							t.Errorf("%s is not what one worker made of it", name)
						}
					}
				}
				if len(got) != len(want) {
					t.Errorf("%d files, want %d", len(got), len(want))
				}
				if again, err := Run(t.Context(), opts); err != nil || again[0].Kept != again[0].Shards || again[0].Tokens != results[0].Tokens {
					t.Errorf("once more: %+v, %v", again, err)
				}
				left, err := filepath.Glob(filepath.Join(opts.Out, "web", ".shard-*"))
				if err != nil || len(left) > 0 {
					t.Errorf("left over: %v", left)
				}
			})
		}
	}
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestRefused changes what shards were made of.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	words(t, filepath.Join(dir, "web"), 2, 400<<10)
	prepare := func(source string, shardBytes int64, names ...string) error {
		_, err := Run(t.Context(), Options{Job: jobOf(t, dir, source), Out: filepath.Join(dir, "out"), ShardBytes: shardBytes, Sources: names})
		return err
	}
	refused := func(what string, err error, words ...string) {
		t.Helper()
		if fault.ClassOf(err) != fault.User || err == nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in: %v", what, w, err)
			}
		}
	}
	if err := prepare(web, 4<<20); err != nil {
		t.Fatal(err)
	}
	if err := prepare(strings.Replace(web, "shuffle: false", "long: drop\nlimit: 7", 1), 4<<20); err != nil {
		t.Errorf("what a job does with documents changes no shard: %v", err)
	}
	refused("other steps", prepare(strings.Replace(web, "> 12", "> 13", 1), 4<<20), "other steps", "> 12", "> 13", "--out")
	refused("other shards", prepare(web, 8<<20), "--shard-size 4194304, not 8388608")
	refused("no such source", prepare(web, 4<<20, "wed"), `no source "wed"; did you mean "web"?`)
	refused("small shards", prepare(web, 4<<10), "1048576")
	refused("other chunks", prepare(strings.Replace(web, "16KiB", "17KiB", 1), 4<<20), "other steps", "chunk_bytes")
	refused("other columns", prepare(strings.Replace(web, "meta.lang", "text", 1), 4<<20), "other steps", "text", "meta.lang")
	put(t, filepath.Join(dir, "web/2.jsonl"), `{"id":1,"text":"one more document"}`+"\n")
	refused("other files", prepare(web, 4<<20), "from other data: 2 files", "3 of")
	put(t, filepath.Join(dir, "out/web", manifestName), "{}\n")
	refused("no manifest", prepare(web, 4<<20), manifestName+":1 is damaged")
	if err := os.Remove(filepath.Join(dir, "out/web", manifestName)); err != nil {
		t.Fatal(err)
	}
	refused("no manifest", prepare(web, 4<<20), "has Parquet files", "shard-000000-00000.parquet")
	if err := os.RemoveAll(filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	refused("bad records", prepare(strings.Replace(web, "limit: 100000", "limit: 1", 1), 4<<20), "more than bad_records.limit 1 allows", ".jsonl row ")
	refused("a bad record", prepare(strings.Replace(web, "policy: skip, limit: 100000", "policy: stop", 1), 4<<20), `source "web"`, ".jsonl")
	refused("a name that is taken", prepare(strings.Replace(web, "meta.lang", "loss_mask", 1), 4<<20), `column "loss_mask"`)
	refused("images", prepare(strings.Replace(web, "  - append_eod", "  - image: {columns: jpg, token: 300}\n  - append_eod", 1), 4<<20), "image step", "`keep`")
}

// TestTwoAtOnce has two processes prepare into one folder.
func TestTwoAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	one, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(path); fault.ClassOf(err) != fault.User || err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second lock: %v", err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	two, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = two.Close()
}

func TestFolderName(t *testing.T) {
	for name, want := range map[string]string{
		"web": "web", "C4 (en)": "C4 %28en%29", "..": "%2E.", "a/b": "a%2Fb", "_x_": "%5Fx_", "été*": "été%2A", "$HOME": "%24HOME",
	} {
		if got := folderName(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

// TestDiskFull writes to a disk that has no room.
func TestDiskFull(t *testing.T) {
	err := writing("/x/shard.parquet", errors.New("no space left on device"))
	if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "finished shards stay") {
		t.Error(err)
	}
	dir := t.TempDir()
	words(t, filepath.Join(dir, "web"), 1, 20<<10)
	put(t, filepath.Join(dir, "out"), "a file where the folder is to be")
	if _, err := Run(t.Context(), Options{Job: jobOf(t, dir, web), Out: filepath.Join(dir, "out")}); fault.ClassOf(err) != fault.Lost {
		t.Errorf("a folder that cannot be made: %v", err)
	}
}

// TestManifest reads one back as it was written.
func TestManifest(t *testing.T) {
	head := header{Version: 1, Source: "a <b>", Recipe: "x: 1\n", Groups: 3}
	dir := t.TempDir()
	m, err := openManifest(dir, head)
	if err != nil {
		t.Fatal(err)
	}
	e := entry{Group: 2, Records: 9, Skipped: []Skip{{File: "f<", Row: 3, Reason: "r"}}}
	if err := errors.Join(m.add(e), m.add(entry{Group: 0}), m.close()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(m.path())
	if err != nil {
		t.Fatal(err)
	}
	if m, err = openManifest(dir, head); err != nil || !reflect.DeepEqual(m.entries[2], e) || len(m.entries) != 2 {
		t.Fatalf("%v, %v", m, err)
	}
	if err := m.finish(); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(m.path())
	if err != nil || bytes.Equal(before, after) || !bytes.HasPrefix(after, before[:bytes.IndexByte(before, '\n')]) {
		t.Errorf("before:\n%s\nafter (%v):\n%s", before, err, after)
	}
	if err := errors.Join(m.add(entry{Group: 2, Shards: []Shard{{Name: "other"}}}), m.close()); err == nil || fault.ClassOf(err) != fault.Bug {
		t.Errorf("a group that came to something else: %v", err)
	}
}
