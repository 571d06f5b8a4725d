package jobspec

import (
	"fmt"
	"strings"
	"testing"
)

// TestLongSchedule reads a schedule of a thousand stages for twenty sources, with the weights in braces.
func TestLongSchedule(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: long\nseed: 1\nbatch: {sequence_length: 512, sequences: 64}\nsources:\n")
	for i := range 20 {
		fmt.Fprintf(&b, "  - {name: s%d, files: a.jsonl}\n", i)
	}
	b.WriteString("mix:\n  stages:\n")
	for stage := range 1000 {
		fmt.Fprintf(&b, "    - {from: %d, ", 5*stage)
		if stage > 0 {
			b.WriteString("ramp: linear, over: 4, ")
		}
		b.WriteString("weights: {")
		for i := range 20 {
			fmt.Fprintf(&b, "s%d: %d, ", i, 1+i+stage)
		}
		b.WriteString("}}\n")
	}
	job, findings := Parse("job.yaml", []byte(b.String()), "")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	if len(job.Mix.Stages) != 1000 {
		t.Errorf("%d stages", len(job.Mix.Stages))
	}
}
