package constructor

import (
	"strings"
	"testing"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
)

// TestSourceThatIsGone: a step that was fetched before the job began again, without a source that had
// joined it, is given up.
func TestSourceThatIsGone(t *testing.T) {
	p := &pb.StepPlan{
		SequenceLength: 4, GlobalRows: 1, Blocks: []*pb.PlanBlock{{Source: 1}},
		Rows: []uint32{0}, RowRank: []uint32{0}, RowMicrobatch: []uint32{0}, RowSamples: []uint32{1},
		SampleBlock: []uint32{0}, SampleIndex: []uint32{0}, SampleLength: []uint32{3},
	}
	asks, at := asksOf(p)
	if len(asks) != 1 || len(at) != 1 {
		t.Fatalf("the plan asks for %v, %v", asks, at)
	}
	set := samples.Set{Tokens: []int32{1, 2, 3}, Offsets: []int32{0, 3}}
	from := content{kept: []*pb.KeptColumns{{}, {}}}
	if _, err := layOut(p, []samples.Set{set}, at, from); err != nil {
		t.Errorf("while the source is there: %v", err)
	}
	from.kept = from.kept[:1]
	if _, err := layOut(p, []samples.Set{set}, at, from); err == nil || !strings.Contains(err.Error(), "source 1 is none of the job's 1") {
		t.Errorf("after it has gone: %v", err)
	}
}

// TestLostLoaderIsALine: a loader that is lost is reported once in a while, however many
// fetches meet it; each loader has its own word.
func TestLostLoaderIsALine(t *testing.T) {
	p, now := newPeers(nil), time.Now()
	words := 0
	for i := range 600 { // a minute of one fetch
		for _, address := range []string{"a:1", "b:1"} {
			if p.shouldLog(address, now.Add(time.Duration(i)*100*time.Millisecond)) {
				words++
			}
		}
	}
	if words != 4 {
		t.Errorf("%d words on two loaders in a minute, want 4", words)
	}
}
