package sourceloader

import (
	"slices"

	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// stage is a part of a chain that the engine carries out as one task; the last one, who reads the block.
type stage struct {
	name     string
	segments []int
	function *transform.Function // nil: native
}

// stagesOf divides the segments of a chain. Native steps are one stage as long as no function comes between
// them, and records that a function gives cross to the next one as they are where no step changes them.
func stagesOf(segments []transform.Segment) (stages []stage) {
	for k := 0; k < len(segments); k++ {
		st := stage{segments[k].Name, []int{k}, segments[k].Function}
		if k > 0 && k+1 < len(segments)-1 && segments[k+1].Name == "" { // it only hands records on
			k++
			st.segments = append(st.segments, k)
		}
		stages = append(stages, st)
	}
	return stages
}

// partitionTarget is the size at which batches are cut: what the first function of the source asks for, if the
// engine's share of memory holds enough of that.
func partitionTarget(steps []jobspec.Transform, share int64) int64 {
	target := int64(1 << 20)
	at := slices.IndexFunc(steps, func(t jobspec.Transform) bool {
		step, ok := t.(*jobspec.Python)
		return ok && step.BatchBytes > 0
	})
	if at >= 0 {
		target = steps[at].(*jobspec.Python).BatchBytes
	}
	return max(min(target, share/mostBatches), min(leastBatch, share/mostBatches))
}

// shareOf is the part of a loader's memory that the engine may use.
func shareOf(budget int64) int64 { return max(budget/engineShare, leastEngine) }
