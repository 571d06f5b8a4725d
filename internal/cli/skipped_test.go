package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// skippedLines are those of the ledger of a job, up to a step.
func skippedLines(t testing.TB, dir, log string, steps int64) (lines []string) {
	t.Helper()
	r := millrace(t, dir, "skipped", "job.yaml", "--log-dir", log)
	r.expect(t, 0)
	for line := range strings.Lines(r.stdout) {
		var s skippedRecord
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if s.Step < steps {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestSkippedBeforeDelivery: whenever the planner dies, the ledger has every record that a batch
// which a rank has got left out; the steps that the service goes on with name the others, and
// none twice. The batches are the reference's.
func TestSkippedBeforeDelivery(t *testing.T) {
	t.Parallel()
	edits := words("bad.jsonl", "bad_records: {policy: skip, limit: 1000}")
	var data strings.Builder
	for i, line := range slices.Collect(strings.Lines(lines(400))) {
		if data.WriteString(line); i%9 == 8 {
			data.WriteString("{\"text\": 17,\n")
		}
	}
	whole := folder(t, edits...)
	put(t, whole, "bad.jsonl", data.String())
	millrace(t, whole, "run", "job.yaml", "--steps", "14", "--log-dir", "log").digest(t)
	want := skippedLines(t, whole, "log", 14)
	if len(want) < 10 || !strings.Contains(want[0], `"source":"words"`) || !strings.Contains(want[0], "bad.jsonl") {
		t.Fatalf("the ledger of an undisturbed run is\n%s", want)
	}
	dir := folder(t, edits...)
	put(t, dir, "bad.jsonl", data.String())
	r := startRoles(t, dir, freeAddress(t))
	ranks := openRanks(t, r.planner, -1, nil)
	for step := range int64(12) {
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatal(failed)
		}
		if step != 3 && step != 8 {
			continue
		}
		for _, c := range ranks { // a service that begins again finds them here
			if _, _, err := c.State(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r.killPlanner()
		sameLedger(t, dir, skippedLines(t, dir, "log", step+1), before(t, want, step+1))
		r = startRoles(t, dir, r.planner.address)
	}
	r.killPlanner()
	sameLedger(t, dir, skippedLines(t, dir, "log", 12), before(t, want, 12))
}

// before are the lines of the ledger up to a step.
func before(t testing.TB, all []string, steps int64) (lines []string) {
	for _, line := range all {
		var s skippedRecord
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		if s.Step < steps {
			lines = append(lines, line)
		}
	}
	return lines
}

// sameLedger compares ledgers of equal data in two folders.
func sameLedger(t testing.TB, dir string, got, want []string) {
	t.Helper()
	short := func(lines []string) (places []string) {
		for _, line := range lines {
			var s skippedRecord
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatal(err)
			}
			s.File, s.Reason = s.File[strings.LastIndex(s.File, "/")+1:], ""
			text, _ := json.Marshal(s)
			places = append(places, string(text))
		}
		return places
	}
	if !slices.Equal(short(got), short(want)) {
		t.Errorf("the ledger in %s is\n%s\nwant\n%s", dir, got, want)
	}
}
