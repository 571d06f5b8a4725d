package transform

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
)

// c4Texts returns the texts of the C4 sample.
func c4Texts(t testing.TB) (texts [][]byte, size int64) {
	f, err := os.Open(filepath.Join(testdata.Dir(t), "text", "redpajama-sample", "c4-rp.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var doc struct{ Text string }
		if err := json.Unmarshal(lines.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, []byte(doc.Text))
		size += int64(len(doc.Text))
	}
	if err := lines.Err(); err != nil || len(texts) == 0 {
		t.Fatalf("%d texts, %v", len(texts), err)
	}
	return texts, size
}

func cl100k(t testing.TB) jobspec.Transform {
	return &jobspec.Tokenize{Encoding: "cl100k_base", Ranks: rankFile(t, "cl100k_base")}
}

// TestRealText joins the tokens of split C4 documents and decodes them back.
func TestRealText(t *testing.T) {
	texts, _ := c4Texts(t)
	c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{cl100k(t), eod(-1)}}, 128)
	w := c.Worker()
	for i, doc := range texts {
		rec := &format.Record{Row: int64(i), Values: []format.Value{{Kind: format.String, Bytes: doc}}}
		samples, outcome, err := collect(w, rec)
		if err != nil || outcome != Kept {
			t.Fatalf("document %d: %v, %v", i, outcome, err)
		}
		var joined []int32
		for _, s := range samples {
			joined = append(joined, s.Tokens...)
		}
		back, err := c.Encoding().Decode(joined[:len(joined)-1])
		if err != nil || string(back) != string(doc) || joined[len(joined)-1] != c.Encoding().EOT() {
			t.Fatalf("document %d of %d bytes comes back as %d bytes, %v", i, len(doc), len(back), err)
		}
	}
}

// BenchmarkC4 measures what a chain costs above the tokenizer alone. The two
// take turns, so that a change of the machine's speed meets both.
func BenchmarkC4(b *testing.B) {
	texts, size := c4Texts(b)
	c, err := Compile(jobspec.Source{
		Transforms: []jobspec.Transform{where("len(text) > 20 and lang == 'en'"), text("{text}\n"), cl100k(b), eod(-1)},
		Keep:       []string{"lang"},
	}, 2048, nil)
	if err != nil {
		b.Fatal(err)
	}
	records := make([]*format.Record, len(texts))
	for i, doc := range texts {
		values := columns{"lang": stringOf("en"), "text": {Kind: format.String, Bytes: doc}}
		records[i] = recordFor(c, int64(i), values)
	}

	encoder, w := c.Encoding().NewEncoder(), c.Worker()
	var ids []int32
	encode := func() {
		for _, doc := range texts {
			ids = encoder.Append(ids[:0], doc)
		}
	}
	tokens := 0
	emit := func(s *Sample) error { tokens += len(s.Tokens); return nil }
	apply := func() {
		for _, rec := range records {
			if _, err := w.Apply(context.Background(), rec, emit); err != nil {
				b.Fatal(err)
			}
		}
	}
	encode()
	apply()

	var alone, chain []time.Duration
	timed := func(f func()) time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
	b.ReportAllocs()
	for b.Loop() {
		alone = append(alone, timed(encode))
		chain = append(chain, timed(apply))
	}
	if tokens == 0 {
		b.Fatal("no tokens came out")
	}
	slices.Sort(alone)
	slices.Sort(chain)
	// The fastest turns are those that nothing else on the machine disturbed.
	rate := func(d time.Duration) float64 { return float64(size) / d.Seconds() / 1e6 }
	b.ReportMetric(rate(alone[0]), "tokenizer-MB/s")
	b.ReportMetric(rate(chain[0]), "chain-MB/s")
	b.ReportMetric(100*(float64(chain[0])/float64(alone[0])-1), "overhead-%")
	b.ReportMetric(100*(float64(chain[len(chain)/2])/float64(alone[len(alone)/2])-1), "median-overhead-%")
}
