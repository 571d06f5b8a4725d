package transform

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// TestLongLaws: split concatenates back to the whole in full pieces, truncate
// is a prefix, drop loses exactly the longer ones, and nothing is longer than
// max.
func TestLongLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		sequenceLength := 1 + rng.IntN(20)
		max := 1 + rng.IntN(sequenceLength)
		whole := make([]int32, rng.IntN(60))
		for i := range whole {
			whole[i] = rng.Int32()
		}
		for _, rule := range []string{ruleSplit, ruleTruncate, ruleDrop} {
			src := jobspec.Source{Transforms: []jobspec.Transform{ids("t")}, Long: jobspec.Long{Rule: rule, Max: max}}
			c := mustCompile(t, src, sequenceLength)
			samples, outcome, err := collect(c.Worker(), recordFor(c, 9, columns{"t": tokensOf(whole...)}))
			if err != nil {
				t.Fatal(err)
			}
			if err := checkLong(rule, max, whole, samples, outcome); err != nil {
				t.Fatalf("%s of %d tokens at %d: %v", rule, len(whole), max, err)
			}
		}
	}
}

func checkLong(rule string, max int, whole []int32, samples []Sample, outcome Outcome) error {
	var joined []int32
	for i, s := range samples {
		joined = append(joined, s.Tokens...)
		full := len(s.Tokens) == max || i == len(samples)-1 && len(s.Tokens) > 0 && len(s.Tokens) < max
		if !full || s.Piece != int32(i) || s.Row != 9 {
			return fmt.Errorf("sample %d is row %d, piece %d with %d tokens", i, s.Row, s.Piece, len(s.Tokens))
		}
	}
	want, wantOutcome := whole, Kept
	switch {
	case len(whole) == 0:
		wantOutcome = Empty
	case len(whole) > max && rule == ruleTruncate:
		want = whole[:max]
	case len(whole) > max && rule == ruleDrop:
		want, wantOutcome = nil, TooLong
	}
	if !slices.Equal(joined, want) || outcome != wantOutcome || (len(samples) > 0) != (outcome == Kept) {
		return fmt.Errorf("outcome %v with tokens %v, want %v with %v", outcome, joined, wantOutcome, want)
	}
	return nil
}

// randomSource makes a chain over the columns of randomRow and returns those it names.
func randomSource(rng *rand.Rand) (jobspec.Source, map[string]bool) {
	names := []string{"a", "b.c", "d[].e", "f"}
	used := map[string]bool{}
	name := func() string {
		n := names[rng.IntN(len(names))]
		used[n] = true
		return n
	}
	var src jobspec.Source
	add := func(s jobspec.Transform) { src.Transforms = append(src.Transforms, s) }
	hasText := rng.IntN(4) > 0
	if hasText {
		add(text("<{" + name() + "}|{" + name() + "}"))
	} else {
		used["text"] = true
	}
	if rng.IntN(2) == 0 {
		add(where(fmt.Sprintf("len(text) > %d or %s == null", rng.IntN(10), name())))
	}
	if rng.IntN(2) == 0 {
		add(where("lower(`" + name() + "`) < 'k'"))
	}
	if rng.IntN(3) == 0 {
		add(text("[{text}] {" + name() + "}"))
	}
	add(tokenizeBytes)
	if rng.IntN(2) == 0 {
		add(eod(-1))
	}
	if rng.IntN(2) == 0 {
		src.Keep = []string{name()}
	}
	src.Long.Rule = []string{"", ruleSplit, ruleTruncate, ruleDrop}[rng.IntN(4)]
	return src, used
}

func randomRow(rng *rand.Rand) columns {
	value := func() format.Value {
		b := make([]byte, rng.IntN(30))
		for i := range b {
			b[i] = "abcXYZ \n\xc3\xa4"[rng.IntN(10)]
		}
		switch rng.IntN(12) {
		case 0:
			return format.Value{}
		case 1:
			return intOf(rng.Int64N(1000) - 500)
		case 2:
			return format.Value{Kind: format.Bytes, Bytes: b} // often not UTF-8
		case 3:
			return listOf(stringOf(string(b)), stringOf("x"))
		}
		return stringOf(string(b))
	}
	return columns{"text": value(), "a": value(), "b.c": value(), "d[].e": value(), "f": value()}
}

// TestWorkersHaveNoMemory: a worker that has seen other records, good and bad,
// gives the results of a new one, on several goroutines at once, and does not change
// records. The columns requested are those that the chain names.
func TestWorkersHaveNoMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	outcomes := map[string]int{}
	for range 200 {
		src, used := randomSource(rng)
		c := mustCompile(t, src, 1+rng.IntN(40))
		if got := c.Columns(); len(got) != len(used) || slices.ContainsFunc(got, func(p string) bool { return !used[p] }) {
			t.Fatalf("%+v has columns %q, want those of %v", src, got, used)
		}
		rows := make([]columns, 30)
		want := make([]string, len(rows))
		for i := range rows {
			rows[i] = randomRow(rng)
			want[i] = describe(c.Worker(), recordFor(c, int64(i), rows[i]), outcomes)
		}
		var wg sync.WaitGroup
		for g := range 2 {
			wg.Go(func() {
				w := c.Worker()
				for i := range rows {
					i = (i*7 + g*13) % len(rows)
					rec := recordFor(c, int64(i), rows[i])
					if got := describe(w, rec, nil); got != want[i] {
						t.Errorf("%+v, row %d: a used worker gives\n%s\na new one\n%s", src, i, got, want[i])
					}
					if !reflect.DeepEqual(rec, recordFor(c, int64(i), rows[i])) {
						t.Errorf("%+v, row %d: the record was changed", src, i)
					}
				}
			})
		}
		wg.Wait()
	}
	for _, o := range []string{"kept", "filtered", "too long", "empty", "error"} {
		if outcomes[o] < 20 {
			t.Errorf("outcome %s came %d times: the generator tests too little", o, outcomes[o])
		}
	}
}

func describe(w *Worker, rec *format.Record, outcomes map[string]int) string {
	samples, outcome, err := collect(w, rec)
	if outcomes != nil {
		if err != nil {
			outcomes["error"]++
		} else {
			outcomes[outcome.String()]++
		}
	}
	return fmt.Sprintf("%v %v %v", outcome, samples, err)
}

// TestScratchIsBounded: a huge record does not hold its memory.
func TestScratchIsBounded(t *testing.T) {
	c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{text("x{text}"), tokenizeBytes}, Long: jobspec.Long{Rule: ruleDrop}}, 10)
	w := c.Worker()
	huge := recordFor(c, 1, columns{"text": {Kind: format.String, Bytes: make([]byte, maxScratch+1)}})
	if _, outcome, err := collect(w, huge); outcome != TooLong || err != nil {
		t.Fatal(outcome, err)
	}
	if _, outcome, err := collect(w, recordFor(c, 2, row)); outcome != Kept || err != nil {
		t.Fatal(outcome, err)
	}
	for name, held := range map[string]int{"text": cap(w.buffers[0]) + cap(w.buffers[1]), "tokens": 4 * cap(w.tokens)} {
		if held > maxScratch {
			t.Errorf("after a small record the worker holds %d bytes of %s", held, name)
		}
	}
}

// TestKeptNumbersAreBounded: the text of kept numbers does not accumulate.
func TestKeptNumbersAreBounded(t *testing.T) {
	c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes}, Keep: []string{"n"}}, 10)
	w, rec := c.Worker(), recordFor(c, 1, row)
	for range 1000 {
		if _, err := w.Apply(context.Background(), rec, func(*Sample) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if cap(w.numbers) > 64 {
		t.Errorf("1000 records of two bytes left %d bytes of scratch", cap(w.numbers))
	}
}

func TestApplyDoesNotAllocate(t *testing.T) {
	src := jobspec.Source{
		Transforms: []jobspec.Transform{where("len(text) > 2 and n < 0"), text("{title} {n}\n{text}"), tokenizeBytes, eod(-1)},
		Keep:       []string{"n", "title"},
	}
	c := mustCompile(t, src, 4)
	w, rec := c.Worker(), recordFor(c, 1, row)
	emitted := 0
	emit := func(*Sample) error { emitted++; return nil }
	if n := testing.AllocsPerRun(100, func() { w.Apply(context.Background(), rec, emit) }); n != 0 || emitted < 100 {
		t.Errorf("Apply makes %v allocations and %d samples, want 0 allocations", n, emitted)
	}
}
