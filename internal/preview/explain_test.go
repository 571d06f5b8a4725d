package preview_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/planner/dgraph"
)

// TestExplain asks for parts of a step, which together are the step.
func TestExplain(t *testing.T) {
	st := files()
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			const step = 7
			whole, err := r.open(t, st, nil).Explain(t.Context(), preview.Query{Step: step, Microbatch: -1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if documents := placesOf(r.solve(t, st)[step].Places); len(whole.Samples) != documents {
				t.Errorf("step %d has %d documents, want %d", step, len(whole.Samples), documents)
			}
			var parts []preview.Sample
			for dp := range r.job(t).Topology.DP {
				for m := range whole.Microbatches {
					part, err := r.open(t, st, nil).Explain(t.Context(), preview.Query{Step: step, Rank: map[string]int{"dp": dp}, Microbatch: m}, nil)
					if err != nil {
						t.Fatal(err)
					}
					for _, x := range part.Samples {
						if int(x.DP) != dp || int(x.Microbatch) != m {
							t.Errorf("dp %d microbatch %d was asked for, and %+v came", dp, m, x)
						}
					}
					parts = append(parts, part.Samples...)
				}
			}
			slices.SortStableFunc(parts, func(a, b preview.Sample) int { return a.Row - b.Row })
			if fmt.Sprint(parts) != fmt.Sprint(whole.Samples) {
				t.Errorf("the parts of step %d have %d documents, the step %d, or others", step, len(parts), len(whole.Samples))
			}
		})
	}
}

func placesOf[T any](rows [][]T) (n int) {
	for _, row := range rows {
		n += len(row)
	}
	return n
}

// TestExplainLoss holds the runs without loss against the tokens, each of which says
// itself what it is: in whole documents and in pieces.
func TestExplainLoss(t *testing.T) {
	var lines strings.Builder
	for i := range 90 {
		var ids, loss []string
		for k := range i {
			ids, loss = append(ids, fmt.Sprint(i*100+k)), append(loss, fmt.Sprint(min(1, k%7/2)))
		}
		fmt.Fprintf(&lines, `{"ids":[%s],"loss":[%s]}`+"\n", strings.Join(ids, ","), strings.Join(loss, ","))
	}
	st := &store.Memory{}
	st.Put("a.jsonl", []byte(lines.String()))
	r := recipe{name: "loss", spec: `name: test
sources:
  - {name: a, files: a.jsonl, transforms: [tokens: ids, loss_mask: loss], long: {rule: split, max: 50}}
batch: {sequence_length: 128, sequences: 8}
topology: {dp: 2}
`}
	p, err := r.open(t, st, nil).Preview(t.Context(), preview.Query{Step: 1, Microbatch: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pieces, masked := 0, 0
	for _, d := range p.Documents {
		var loss, want []int32
		for bounds := d.Loss(); len(bounds) > 0; bounds = bounds[2:] {
			for i := bounds[0]; i < bounds[1]; i++ {
				loss = append(loss, i)
			}
		}
		for i, id := range d.IDs {
			if id%100%7/2 > 0 && i > 0 {
				want = append(want, int32(i))
			}
		}
		if !slices.Equal(loss, want) {
			t.Errorf("piece %d of record %d: tokens %v carry loss, want %v", d.Piece, d.Record, loss, want)
		}
		pieces, masked = pieces+int(d.Piece), masked+len(d.Masked)
	}
	if pieces == 0 || masked == 0 {
		t.Errorf("%d later pieces and %d bounds show nothing", pieces, masked)
	}
	trace, err := r.open(t, st, nil).Trace(t.Context(), preview.FileQuery{File: "a.jsonl", Record: -1, From: 1, To: 1}, nil)
	if err != nil || len(trace.Samples) != len(p.Documents) || !slices.ContainsFunc(trace.Samples, func(x preview.Sample) bool { return len(x.Masked) > 0 }) {
		t.Errorf("the trace of the step has other documents, or no masks: %v", err)
	}
}

// TestTraceIsTheInverse holds where files go against what each step has.
func TestTraceIsTheInverse(t *testing.T) {
	st := files()
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			steps := r.solve(t, st)
			from, to := int64(2), int64(len(steps)-2)
			for _, q := range []preview.FileQuery{
				{File: "part-1.jsonl", Record: -1}, {File: "part-1.jsonl", Record: 0}, {File: "12.txt", Record: -1}, {Source: "chat", File: "part-0.jsonl", Record: -1},
			} {
				var want []string
				for _, s := range steps[from : to+1] {
					for row, places := range s.Places {
						for _, p := range places {
							if p.File == q.File && (q.Record < 0 || p.Row == q.Record) && (q.Source == "" || p.Source == q.Source) {
								want = append(want, fmt.Sprint(s.Step, row, p))
							}
						}
					}
				}
				q.From, q.To = from, to
				trace, err := r.open(t, st, nil).Trace(t.Context(), q, nil)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, x := range trace.Samples {
					got = append(got, fmt.Sprint(x.Step, x.Row, struct {
						a, b string
						c    int64
						d    int32
						e    int64
						f    int32
					}{x.Source, x.File, x.Record, x.Piece, x.Block, x.Index}))
				}
				if !slices.Equal(got, want) {
					t.Errorf("%+v: %d documents, want %d\n%v\n%v", q, len(got), len(want), got, want)
				}
			}
		})
	}
}

func TestGraph(t *testing.T) {
	x, err := recipes[0].open(t, files(), nil).Explain(t.Context(), preview.Query{Step: 3, Microbatch: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, dot := range []bool{false, true} {
		var b strings.Builder
		if err := x.WriteGraph(t.Context(), &b, dgraph.Text, 1000, dot); err != nil {
			t.Fatal(err)
		}
		if dot != strings.HasPrefix(b.String(), "digraph") {
			t.Errorf("the graph begins with %.40s", b.String())
		}
		for _, s := range x.Samples {
			if !strings.Contains(b.String(), fmt.Sprintf("%s:%d:%d", s.Source, s.Block, s.Index)) || !strings.Contains(b.String(), fmt.Sprintf("%s %s %d", s.File, s.RecordUnit, s.Record)) {
				t.Fatalf("the graph (dot %v) lacks %+v", dot, s)
			}
		}
	}
	if err := x.WriteGraph(t.Context(), nil, dgraph.Image, 0, false); fault.ClassOf(err) != fault.User {
		t.Errorf("a graph of images that a job lacks: %v", err)
	}
}

// TestImages explains a step with images, and prints where they are encoded.
func TestImages(t *testing.T) {
	i := slices.IndexFunc(recipes, func(r recipe) bool { return r.name == "images" })
	x, err := recipes[i].open(t, files(), nil).Explain(t.Context(), preview.Query{Step: 2, Microbatch: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var encoders [4]int // dp 2 x cp 2
	for _, s := range x.Samples {
		for _, image := range s.Images {
			encoders[image.Encoder]++
		}
	}
	if slices.Contains(encoders[:], 0) {
		t.Errorf("the four ranks encode %v images", encoders)
	}
	var b strings.Builder
	if err := x.WriteGraph(t.Context(), &b, dgraph.Image, 1000, false); err != nil || !strings.Contains(b.String(), "pictures.tar") {
		t.Errorf("the graph of images is %v\n%s", err, b.String())
	}
}

// TestBadQuestions checks that each is refused with what would be valid.
func TestBadQuestions(t *testing.T) {
	st := files()
	stop, mixed := recipes[2], recipes[0]
	last := len(stop.solve(t, st)) - 1
	explain := func(q preview.Query) func(*preview.Job) error {
		return func(j *preview.Job) error { _, err := j.Explain(t.Context(), q, nil); return err }
	}
	trace := func(q preview.FileQuery) func(*preview.Job) error {
		return func(j *preview.Job) error { _, err := j.Trace(t.Context(), q, nil); return err }
	}
	for _, c := range []struct {
		r    recipe
		ask  func(*preview.Job) error
		says string
	}{
		{stop, explain(preview.Query{Step: 1000, Microbatch: -1}), fmt.Sprintf("steps 0 to %d are valid", last)},
		{mixed, explain(preview.Query{Step: 1, Microbatch: 2}), "valid are 0 to 1"},
		{mixed, explain(preview.Query{Step: 1, Microbatch: -1, Rank: map[string]int{"dp": 2}}), "goes from 0 to 1"},
		{mixed, explain(preview.Query{Step: 1, Microbatch: -1, Rank: map[string]int{"tp": 1}}), "goes from 0 to 0"},
		{mixed, trace(preview.FileQuery{File: "part1.jsonl", Record: -1, To: 3}), `did you mean "part-1.jsonl"?`},
		{mixed, trace(preview.FileQuery{File: "nothing-like-it.csv", Record: -1, To: 3}), "no file"},
		{mixed, trace(preview.FileQuery{Source: "chatt", File: "part-1.jsonl", Record: -1, To: 3}), `did you mean "chat"?`},
		{mixed, trace(preview.FileQuery{File: "part-1.jsonl", Record: -1, From: 4, To: 3}), "are not a range"},
		{stop, trace(preview.FileQuery{File: "part-1.jsonl", Record: -1, From: 1000, To: 1001}), "the data ends after"},
	} {
		err := c.ask(c.r.open(t, st, nil))
		if fault.ClassOf(err) != fault.User || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v does not say %q", err, c.says)
		}
	}
}
