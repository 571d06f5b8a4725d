package jobspec

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/testdata"
)

var rewrite = flag.Bool("rewrite", false, "write generated pages instead of comparing them")

func noEnv(string) (string, bool) { return "", false }

// mustParse parses a spec that has no findings but warnings.
func mustParse(t *testing.T, src string) *Job {
	t.Helper()
	job, findings := Parse("spec.yaml", []byte(src), "/specs", Env(noEnv))
	if err := findings.Err(); err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	return job
}

func TestDefaults(t *testing.T) {
	job := mustParse(t, "name: demo\nsources: [{name: a, files: a.txt}]\nbatch: {sequence_length: 128, sequences: 4}\n")
	want := &Job{
		Name: "demo",
		Sources: []Source{{
			Name: "a", Files: []string{"a.txt"}, ChunkBytes: 1 << 20,
			Transforms: []Transform{Text("{text}"), &Tokenize{Encoding: "bytes"}, &AppendEOD{ID: 256}},
			Long:       Long{"split", 128}, Shuffle: Shuffle{true, 4}, BadRecords: BadRecords{"stop", 100, 10_000, 0},
			Implied: 1,
		}},
		Mix:       Mix{Unit: "tokens", Stages: []Stage{{Ramp: "none", Weights: map[string]float64{"a": 1}}}, Exhausted: "stop", Grain: "step", Draw: "deficit", Feedback: Feedback{"none", 10, 100, 10}},
		Batch:     Batch{SequenceLength: 128, Sequences: 4, MicrobatchSize: 1, Packing: true},
		Topology:  Topology{DP: 1, CP: 1, PP: 1, TP: 1, VPP: 1, EP: 1, Order: []string{"tp", "cp", "dp", "pp"}},
		Output:    Output{Format: "megatron", CPSlicing: "zigzag"},
		Resources: Resources{LoaderBuffer: 512 << 20, LoaderDisk: 4 << 30, ConstructorBuffer: 256 << 20, Prefetch: 4, Window: 256},
		Dir:       "/specs",
	}
	if !reflect.DeepEqual(job, want) {
		t.Errorf("got %+v\nwant %+v", job, want)
	}
}

const shortForms = `
x-base: &base
  files: [x.jsonl]
  long: truncate
name: 123
seed: 0xffffffffffffffff
sources:
  - &first
    <<: *base
    name: a
    shuffle: off
    bad_records: skip
    chunk_bytes: 64mb
    limit: 10k
    keep: jpg
  - {<<: [*first, {limit: 1}], name: b, long: {max: 1Ki}, shuffle: {block: 8}, bad_records: {policy: skip, limit: 10}}
  - name: "Wikipedia (en)"
    files: &f ["$${X}/a$", "b$$"]
    transforms: [tokenize: {encoding: cl100k_base, ranks: r}, append_eod: 7]
  - {name: d, files: *f, transforms: [{tokens: input_ids}, append_eod: 1e3]}
  - {name: e, files: x.bin}
  - {name: f, files: [x.tar, y.TAR.gz]}
mix: {weights: {a: 1e0, b: 1., "Wikipedia (en)": 2, d: 0, e: .5, f: 1_0}}
batch: {sequence_length: 4Ki, tokens: 256Ki, packing: no}
topology: {order: [pp, dp, cp, tp]}
`

func TestShortForms(t *testing.T) {
	job := mustParse(t, shortForms)
	a, b, w, d := job.Sources[0], job.Sources[1], job.Sources[2], job.Sources[3]
	for _, c := range []struct{ what, got, want any }{
		{"name", job.Name, "123"},
		{"seed", job.Seed, uint64(1<<64 - 1)},
		{"a.files", a.Files[0], "x.jsonl"},
		{"a.long", a.Long, Long{"truncate", 4096}},
		{"a.shuffle", a.Shuffle, Shuffle{false, 4}},
		{"a.bad_records", a.BadRecords, BadRecords{"skip", 100, 10_000, 0}},
		{"a.chunk_bytes", a.ChunkBytes, int64(64e6)},
		{"a.limit", a.Limit, int64(10_000)},
		{"a.keep", a.Keep[0], "jpg"},
		{"b.limit", b.Limit, int64(10_000)}, // the earlier merge wins
		{"b.long", b.Long, Long{"split", 1024}},
		{"b.shuffle", b.Shuffle, Shuffle{true, 8}},
		{"b.bad_records", b.BadRecords, BadRecords{"skip", 10, 10_000, 0}},
		{"w.files", strings.Join(w.Files, " "), "${X}/a$ b$"},
		{"w.text", w.Transforms[0], Text("{text}")},
		{"w.tokenize", w.Transforms[1], &Tokenize{Encoding: "cl100k_base", Ranks: "r"}},
		{"w.append_eod", w.Transforms[2], &AppendEOD{7}},
		{"d.tokens", d.Transforms[0], Tokens("input_ids")},
		{"d.append_eod", d.Transforms[1], &AppendEOD{1000}},
		{"e", job.Sources[4].Transforms[0], Tokens("tokens")},
		{"f", job.Sources[5].Transforms[0], Text("{txt}")},
		{"weight", job.Mix.Stages[0].Weights["f"], 10 / 14.5},
		{"sequences", job.Batch.Sequences, 64},
		{"packing", job.Batch.Packing, false},
		{"order", strings.Join(job.Topology.Order, " "), "pp dp cp tp"},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"ROOT": "/data", "EMPTY": "", "DP": "2", "ODD": "${ROOT}", "BROKEN": "\xff"}[name]
		return v, ok
	}
	for _, tc := range []struct{ in, want, err string }{
		{"${ROOT}/x", "/data/x", ""},
		{"${NONE:-/d}/${ROOT}", "/d//data", ""},
		{"${EMPTY}|${EMPTY:-d}|${NONE:-}", "|d|", ""},
		{"${ODD}", "${ROOT}", ""},
		{"$$", "$", ""}, {"$${ROOT}", "${ROOT}", ""}, {"a$b$", "a$b$", ""},
		{"${NONE}", "", "the environment variable NONE is not set"},
		{"${BROKEN}", "", "the environment variable BROKEN is not UTF-8"},
		{"${ROOT", "", "${ROOT has no closing brace"},
		{"${}", "", "${} names no variable"},
		{"${A B}", "", "${A B} names no variable"},
	} {
		got, err := expand(tc.in, env)
		if got != tc.want || fmt.Sprint(err) != cmp.Or(tc.err, "<nil>") {
			t.Errorf("expand(%q) = %q, %v; want %q, %s", tc.in, got, err, tc.want, tc.err)
		}
		if back, err := expand(escapeDollars(tc.in), env); back != tc.in || err != nil {
			t.Errorf("expand(escapeDollars(%q)) = %q, %v", tc.in, back, err)
		}
	}
	job, findings := Parse("", []byte("name: demo\nsources: [{name: a, files: '${ROOT}/a.txt'}]\nbatch: {sequence_length: 128, sequences: '${DP}'}\n"), "", Env(env))
	if findings != nil || job.Sources[0].Files[0] != "/data/a.txt" || job.Batch.Sequences != 2 {
		t.Errorf("got %+v, %v", job, findings)
	}
}

func TestParseSize(t *testing.T) {
	for _, tc := range []struct {
		in    string
		bytes bool
		want  string // "" if it is no whole number
	}{
		{"0", false, "0"}, {"010", false, "10"}, {"1_000", false, "1000"}, {"100k", false, "100000"}, {"1.5k", false, "1500"},
		{"1.5Ki", false, "1536"}, {"0.3Ki", false, ""}, {"1e6", false, "1000000"}, {"1.25e2", false, "125"}, {"1.25e1", false, ""},
		{"-3", false, "-3"}, {"+3", false, "3"}, {"0x10", false, "16"}, {"0xg", false, ""}, {"1e-3", false, ""}, {"", false, ""}, {"k", false, ""},
		{"64MiB", false, ""}, {"64MiB", true, "67108864"}, {"64mb", true, "64000000"}, {"64 MB", true, "64000000"}, {"5b", true, "5"},
		{"1tib", true, "1099511627776"}, {"1xb", true, ""}, {"1e99", false, "1" + strings.Repeat("0", 99)}, {"1e100", false, ""},
	} {
		got, ok := parseSize(tc.in, tc.bytes)
		if ok != (tc.want != "") || ok && got.String() != tc.want {
			t.Errorf("parseSize(%q, %v) = %v, %v; want %q", tc.in, tc.bytes, got, ok, tc.want)
		}
	}
}

// TestFilesOfOtherTools: paths as a shell or another loader writes them are refused with
// what to write here; a file of that very name is read.
func TestFilesOfOtherTools(t *testing.T) {
	dir := t.TempDir()
	job := &Job{Dir: dir}
	check := func(file, want string) {
		t.Helper()
		job.Sources = []Source{{Name: "a", Files: []string{file}}}
		findings := CheckFiles(job)
		if want == "" && findings == nil {
			return
		}
		if len(findings) != 1 || want == "" || !strings.Contains(findings.Error(), want) {
			t.Errorf("%s: %v, want %q", file, findings, want)
		}
	}
	check("~/data/*.jsonl", "write ${HOME} for it")
	check("s-{000..012}.tar", "write [0-9], * or {000,001}")
	check("s3://bucket/a.parquet", "") // the store's to say
	check("file:///data/a.parquet", "")
	for _, name := range []string{"~/a.txt", "s-{000..012}.tar"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		check(name, "")
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "job.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("name: demo\nsources: [{name: a, files: [a.txt, 'b/**/*.md'], transforms: [{tokenize: {encoding: r50k_base, ranks: r}}]}]\nbatch: {sequence_length: 128, sequences: 4}\n")
	job, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	s := job.ResolvedSources()[0]
	if want := []string{dir + "/a.txt", dir + "/b/**/*.md", dir + "/r"}; !slices.Equal(append(s.Files, s.Transforms[1].(*Tokenize).Ranks), want) {
		t.Errorf("resolved %v, want %v", s, want)
	}
	if job.Sources[0].Files[0] != "a.txt" || job.Sources[0].Transforms[1].(*Tokenize).Ranks != "r" {
		t.Error("resolving changed the job")
	}
	_, findings := Lint(path)
	want := fmt.Sprintf(`%[1]s:2: sources[0].files[0]: there is no file or directory "%[2]s/a.txt", name a file, a directory or a glob
%[1]s:2: sources[0].files[1]: no file matches "%[2]s/b/**/*.md", valid is a glob with at least one match; ** crosses directories
%[1]s:2: sources[0].transforms[0].tokenize.ranks: there is no file "%[2]s/r", name the .tiktoken file of encoding r50k_base`, path, dir)
	if findings.Error() != want {
		t.Errorf("got\n%s\nwant\n%s", findings.Error(), want)
	}
	for _, name := range []string{"a.txt", "r", "b/c/d.md"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if findings := CheckFiles(job); findings != nil {
		t.Errorf("files are there: %v", findings)
	}
	job.Sources[0].Files = []string{"*"}
	if findings := CheckFiles(job); findings != nil {
		t.Errorf("a file is there: %v", findings)
	}
	job.Sources[0].Files = []string{"b/*"}
	if findings := CheckFiles(job); len(findings) != 1 || !strings.Contains(findings.Error(), "directories only, such as \""+dir+"/b/c\"") {
		t.Errorf("a glob of folders: %v", findings)
	}
	for _, name := range []string{"b/up", "b/again"} { // 2^40 paths, of which none ends in .jsonl
		if err := os.Symlink(".", filepath.Join(dir, name)); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	job.Sources[0].Files = []string{"dangling"}
	if findings := CheckFiles(job); len(findings) != 1 || !strings.Contains(findings.Error(), `dangling" is a link to "nowhere", which is not there`) {
		t.Errorf("a link to what is not there: %v", findings)
	}
	job.Sources[0].Files = []string{"b/**/*.jsonl"}
	if findings := CheckFiles(job); findings != nil {
		t.Errorf("links that lead back are the store's to name: %v", findings)
	}

	write("\ufeffname: demo\r\nsources: [{name: a, files: a.txt}]\r\nbatch: {sequence_length: 128, sequences: 4}\r\n")
	if _, err := Load(path); err != nil {
		t.Errorf("a spec of a Windows editor: %v", err)
	}
	write("nam: demo\n")
	_, err = Load(path)
	if fs, ok := errors.AsType[Findings](err); !ok || len(fs) != 4 || fault.ClassOf(err) != fault.User {
		t.Errorf("got %v of class %v", err, fault.ClassOf(err))
	}
	if _, err = Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) || fault.ClassOf(err) != fault.User {
		t.Errorf("got %v of class %v", err, fault.ClassOf(err))
	}
}

func TestWarningsAreNoError(t *testing.T) {
	_, findings := Parse("f", []byte("name: demo\nsources: [{name: a, files: a.txt}]\nmix: {weights: {a: 2}}\nbatch: {sequence_length: 128, sequences: 4}\n"), "")
	if len(findings) != 1 || !findings[0].Warning || findings.Err() != nil {
		t.Errorf("got %v", findings)
	}
}

// TestIdentity changes one field at a time: those that decide about the bytes
// of a global batch must change the identity, all others must not.
func TestIdentity(t *testing.T) {
	base := mustParse(t, example)
	for _, tc := range []struct {
		name   string
		change func(*Job)
		same   bool
	}{
		{"name", func(j *Job) { j.Name = "x" }, true},
		{"dir", func(j *Job) { j.Dir = "/elsewhere" }, true},
		{"microbatch_size", func(j *Job) { j.Batch.MicrobatchSize = 4 }, true},
		{"topology", func(j *Job) { j.Topology = Topology{1, 1, 1, 1, 1, 1, axes} }, true},
		{"cp_slicing", func(j *Job) { j.Output.CPSlicing = "none" }, true},
		{"broadcast_at", func(j *Job) { j.Output.BroadcastAt = "" }, true},
		{"resources", func(j *Job) { j.Resources = Resources{} }, true},
		{"bad_records", func(j *Job) { j.Sources[0].BadRecords = BadRecords{} }, true},
		{"seed", func(j *Job) { j.Seed++ }, false},
		{"source name", func(j *Job) { j.Sources[0].Name = "x" }, false},
		{"source order", func(j *Job) { slices.Reverse(j.Sources) }, false},
		{"files", func(j *Job) { j.Sources[0].Files = []string{"x"} }, false},
		{"source format", func(j *Job) { j.Sources[0].Format = "json" }, false},
		{"chunk_bytes", func(j *Job) { j.Sources[0].ChunkBytes++ }, false},
		{"template", func(j *Job) { j.Sources[0].Transforms[0] = Text("{x}") }, false},
		{"filter", func(j *Job) { j.Sources[0].Transforms[1] = Filter("x") }, false},
		{"encoding", func(j *Job) { j.Sources[0].Transforms[2].(*Tokenize).Encoding = "o200k_base" }, false},
		{"file", func(j *Job) { j.Sources[0].Transforms[2].(*Tokenize).File = "x" }, false},
		{"post_processor", func(j *Job) { j.Sources[0].Transforms[2].(*Tokenize).PostProcessor = "skip" }, false},
		{"special", func(j *Job) { j.Sources[0].Transforms[2].(*Tokenize).Special = "allow" }, false},
		{"allow", func(j *Job) { j.Sources[0].Transforms[2].(*Tokenize).Allow = []string{"<|endoftext|>"} }, false},
		{"refuse", func(j *Job) { j.Sources[0].Transforms[2].(*Tokenize).Refuse = []string{"<|endoftext|>"} }, false},
		{"eod", func(j *Job) { j.Sources[0].Transforms[3].(*AppendEOD).ID++ }, false},
		{"keep", func(j *Job) { j.Sources[0].Keep = []string{"x"} }, false},
		{"long", func(j *Job) { j.Sources[0].Long.Max-- }, false},
		{"shuffle", func(j *Job) { j.Sources[0].Shuffle.Block++ }, false},
		{"max_record", func(j *Job) { j.Sources[0].MaxRecord = 1 << 20 }, false},
		{"max_elements", func(j *Job) { j.Sources[0].MaxElements = 1 << 20 }, false},
		{"limit", func(j *Job) { j.Sources[0].Limit++ }, false},
		{"unit", func(j *Job) { j.Mix.Unit = "samples" }, false},
		{"weights", func(j *Job) { j.Mix.Stages[0].Weights["code"] += 1e-15 }, false},
		{"stage", func(j *Job) { j.Mix.Stages[1].Over++ }, false},
		{"epochs", func(j *Job) { j.Mix.Epochs++ }, false},
		{"exhausted", func(j *Job) { j.Mix.Exhausted = "renormalize" }, false},
		{"sequence_length", func(j *Job) { j.Batch.SequenceLength++ }, false},
		{"sequences", func(j *Job) { j.Batch.Sequences++ }, false},
		{"packing", func(j *Job) { j.Batch.Packing = false }, false},
		{"fill", func(j *Job) { j.Batch.Fill = 1000 }, false},
		{"outliers", func(j *Job) { j.Batch.Outliers = &Outliers{[]int{2048}, 4, 16} }, false},
		{"output format", func(j *Job) { j.Output.Format = "hf" }, false},
		{"pad_id", func(j *Job) { j.Output.PadID++ }, false},
		{"document_multiple", func(j *Job) { j.Output.DocumentMultiple = 2 }, false},
	} {
		job := mustParse(t, example)
		tc.change(job)
		if reflect.DeepEqual(job, base) {
			t.Errorf("%s: the test changes nothing", tc.name)
		}
		if same := job.Identity() == base.Identity(); same != tc.same {
			t.Errorf("%s: identity is the same: %v, want %v", tc.name, same, tc.same)
		}
	}
}

// TestImageIdentity: all of an image step decides about bytes but the place of work.
func TestImageIdentity(t *testing.T) {
	const spec = "name: a\nsources: [{name: s, files: x.tar, transforms: [tokenize: bytes, image: {columns: [jpg], token: 300}]}]\nbatch: {sequence_length: 8, sequences: 1}\n"
	base := mustParse(t, spec)
	for name, change := range map[string]func(x *Image){
		"columns": func(x *Image) { x.Columns = []string{"png"} }, "token": func(x *Image) { x.Token++ }, "begin": func(x *Image) { x.Begin++ },
		"end": func(x *Image) { x.End++ }, "patch": func(x *Image) { x.Patch++ }, "merge": func(x *Image) { x.Merge++ },
		"min_pixels": func(x *Image) { x.MinPixels++ }, "max_pixels": func(x *Image) { x.MaxPixels++ },
		"max_images": func(x *Image) { x.MaxImages++ }, "verify": func(x *Image) { x.Verify = true }, "decode": func(x *Image) { x.Decode = "loader" },
	} {
		job := mustParse(t, spec)
		change(job.Sources[0].Images())
		if same := job.Identity() == base.Identity(); same != (name == "decode") {
			t.Errorf("%s: identity is the same: %v", name, same)
		}
	}
}

// TestIdentityIsStable pins the canonical form: a change of it would refuse the
// resume tokens of running jobs.
func TestIdentityIsStable(t *testing.T) {
	const want = "e16b0d3497d8536fb0d6937821453b9d382b22d02644c420308a6d8e95cd10b0"
	if got := fmt.Sprintf("%x", mustParse(t, example).Identity()); got != want {
		t.Errorf("the identity of the example is %s, was %s", got, want)
	}
}

// TestPublishedMixtures turns every published recipe into a spec.
func TestPublishedMixtures(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(testdata.Dir(t), "mixtures", "mixtures.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var recipes []struct {
		Name    string             `yaml:"name"`
		Weights map[string]float64 `yaml:"weights"`
	}
	if err := yaml.Unmarshal(raw, &recipes); err != nil {
		t.Fatal(err)
	}
	warnings := map[string]string{ // those whose published weights do not sum to 1
		"doremi-pile-280M-paper": "1.0001",
		"redpajama-v1-baseline":  "0.9999",
		"regmix-1b-human":        "0.7868",
		"stage3_9T_11T-stage2":   "1.00005",
		"stage3_9T_11T-stage3":   "1.00565",
		"nvlm-pretrain-excerpt":  "0.609",
	}
	if len(recipes) != 21 {
		t.Errorf("got %d recipes, want 21", len(recipes))
	}
	for _, r := range recipes {
		names := sortedKeys(r.Weights)
		var b strings.Builder
		fmt.Fprintf(&b, "name: %s\nsources:\n", r.Name)
		for i, name := range names {
			fmt.Fprintf(&b, "  - {name: %s, files: %d.jsonl}\n", quoteYAML(name), i)
		}
		b.WriteString("mix:\n  weights:\n")
		for _, name := range names {
			fmt.Fprintf(&b, "    %s: %v\n", quoteYAML(name), r.Weights[name])
		}
		b.WriteString("batch: {sequence_length: 4096, sequences: 256}\n")
		job, findings := Parse("f", []byte(b.String()), "")
		want := ""
		if sum := warnings[r.Name]; sum != "" {
			want = fmt.Sprintf("f:%d: warning: mix.weights: the weights sum to %s: they are normalised", 4+len(names), sum)
		}
		if findings.Error() != want {
			t.Errorf("%s: got %q, want %q", r.Name, findings.Error(), want)
		}
		checkMixture(t, r.Name, job, r.Weights)
		checkRoundTrip(t, job)
	}
}

// checkMixture compares shares, not weights: normalising must keep the ratios.
func checkMixture(t *testing.T, name string, job *Job, published map[string]float64) {
	t.Helper()
	got, sum, before := job.Mix.Stages[0].Weights, 0.0, 0.0
	for _, k := range sortedKeys(published) {
		sum += got[k]
		before += published[k]
	}
	if len(got) != len(published) || sum < 1-1e-12 || sum > 1+1e-12 {
		t.Errorf("%s: %d weights sum to %v", name, len(got), sum)
	}
	for k, w := range published {
		if d := got[k] - w/before; d < -1e-9 || d > 1e-9 {
			t.Errorf("%s: %s is %v, published %v of %v", name, k, got[k], w, before)
		}
	}
}

func sortedKeys(m map[string]float64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// checkRoundTrip checks that a job printed and read back is the same.
func checkRoundTrip(t *testing.T, job *Job) {
	t.Helper()
	text := job.YAML()
	back, findings := Parse("printed.yaml", text, job.Dir, Env(noEnv))
	if err := findings.Err(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !reflect.DeepEqual(back, written(job)) {
		t.Fatalf("got  %+v\nwant %+v\n%s", back, job, text)
	}
	if string(back.YAML()) != string(text) || back.Identity() != job.Identity() {
		t.Fatalf("printing twice differs:\n%s\n%s", text, back.YAML())
	}
}

// TestRoundTrip prints and reads back random jobs with hostile texts.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		checkRoundTrip(t, randomJob(rng))
	}
}

// Documents of packed sequences are cut over CP, and each part over TP.
func TestRowLength(t *testing.T) {
	for _, tc := range []struct {
		output, topology string
		want             []int // of 1, 12, 13 and 24 tokens
	}{
		{"format: megatron", "cp: 2, tp: 4", []int{1, 12, 13, 24}},
		{"format: megatron-thd", "", []int{1, 12, 13, 24}},
		{"format: megatron-thd", "cp: 3", []int{6, 12, 18, 24}},
		{"format: megatron-thd", "tp: 4", []int{4, 12, 16, 24}},
		{"format: megatron-thd", "cp: 2, tp: 4", []int{8, 16, 16, 24}},
		{"format: megatron-thd", "cp: 2, tp: 3", []int{12, 12, 24, 24}},
		{"format: megatron-thd, document_multiple: 4", "cp: 2, tp: 4", []int{4, 12, 16, 24}},
	} {
		job := mustParse(t, "name: x\nsources: [{name: a, files: a.txt}]\nbatch: {sequence_length: 120, sequences: 4}\n"+
			"output: {"+tc.output+"}\ntopology: {"+tc.topology+"}\n")
		for i, tokens := range []int{1, 12, 13, 24} {
			if got := job.RowLength(tokens); got != tc.want[i] {
				t.Errorf("%s with %s: %d tokens take %d, want %d", tc.output, tc.topology, tokens, got, tc.want[i])
			}
		}
	}
}
