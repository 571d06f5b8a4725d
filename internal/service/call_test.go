package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/service"
)

// moody is a model server that answers something else each time, is away now and then, and takes no text
// with a z in its beginning.
func moody(t *testing.T) (address string, rows *atomic.Int64) {
	rows = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Inputs []string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || rand.IntN(20) == 0 {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		time.Sleep(rand.N(2 * time.Millisecond))
		var out []string
		for _, text := range body.Inputs {
			if strings.Contains(text[:min(len(text), 8)], "z") {
				http.Error(w, "a text with a z", http.StatusUnprocessableEntity)
				return
			}
			out = append(out, fmt.Sprintf(`{"score": %.3f, "text": %q}`, rand.Float64(), fmt.Sprint(rand.IntN(1000), " ", text)))
		}
		rows.Add(int64(len(out)))
		fmt.Fprintf(w, `{"data": [%s]}`, strings.Join(out, ","))
	}))
	t.Cleanup(s.Close)
	return s.URL, rows
}

// callJob is a job whose records a model server scores and rewrites.
func callJob(address, answers string, rows int) recipe {
	return recipe{fmt.Sprint("calls, ", rows, " rows"), fmt.Sprintf(`sources:%s
  - name: scored
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms:
      - filter: "len(text) > 10"
      - call: {url: %q, request: '{"inputs": ["{text}"]}', rows: %d, answers: %q, give: [{column: score, type: float, at: "data[].score"}, {column: text, at: "data[].text"}]}
      - filter: score > 0.25
      - text: "{lang} {text}"
      - tokenize: bytes
    bad_records: {policy: skip, limit: 1000}
    shuffle: {block: 3}
mix: {weights: {books: 0.3, scored: 0.7}}
batch: {sequence_length: 128, sequences: 8, microbatch_size: 2}
topology: {dp: 2}
`, books, address, rows, answers), 20, ""}
}

// TestCalls: a job whose records go through a model server that never answers twice alike is the reference's
// at every step, however it is run, and whoever asked first.
func TestCalls(t *testing.T) {
	dir, answers := writeSources(t), t.TempDir()
	address, rows := moody(t)
	for i, values := range functionSettings {
		if testing.Short() && i > 1 {
			break
		}
		r := callJob(address, answers, []int{4, 1, 16, 3}[i])
		if i == 0 { // the service asks first, the reference reads what was answered
			firstSteps(t, dir, r)
		}
		check(t, dir, r, settingOf(values))
	}
	if a := solve(t, dir, callJob(address, answers, 4)); a.skips == 0 {
		t.Error("no record was refused")
	}
	asked := rows.Load()
	check(t, dir, callJob("http://127.0.0.1:1/away", answers, 5), settingOf(functionSettings[0]))
	if rows.Load() != asked {
		t.Errorf("%d records were asked about again", rows.Load()-asked)
	}
}

// TestServerAway: the status names a model server that does not answer, as does what a rank hears of the planner.
func TestServerAway(t *testing.T) {
	const address = "http://127.0.0.1:1/away"
	opts := setting{loaders: 1, constructors: 1}.options(t, writeSources(t), callJob(address+"?key=of-somebody", t.TempDir(), 4))
	err := service.Run(t.Context(), opts, func(ctx context.Context, planner string) error {
		var s status.Service
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
			var err error
			if s, err = statusOf(ctx, planner); err != nil {
				return err
			}
			if strings.Contains(s.WaitingFor, "; asking "+address+": ") && len(s.Holdups) > 0 && strings.Contains(s.Holdups[0].Text, "; asking "+address+": ") {
				return nil
			}
		}
		return fmt.Errorf("the status never named the server: %q, %v", s.WaitingFor, s.Holdups)
	})
	if err != nil {
		t.Error(err)
	}
}

// firstSteps runs some steps of a job.
func firstSteps(t *testing.T, dir string, r recipe) {
	t.Helper()
	r.steps = 5
	if res := settingOf(functionSettings[1]).run(t, dir, r, nil); res.Next != 5 {
		t.Fatalf("%d steps", res.Next)
	}
}
