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
	before   string              // names of native steps that run in the same task
	behind   string
}

// stagesOf divides the segments of a chain. Native steps behind a function that make less of what it gives, and those that
// only hand records on, are a part of its task; light ones before a function are a part of its own. Others are a
// stage as long as no function comes between them.
func stagesOf(segments []transform.Segment) (stages []stage) {
	last := len(segments) - 1
	for k := 0; k <= last; k++ {
		st := stage{name: segments[k].Name, segments: []int{k}, function: segments[k].Function}
		if next := k + 1; k > 0 && next < last && st.function == nil && segments[k].Light && segments[next].Function != nil {
			k = next
			st.function, st.before = segments[k].Function, st.name
			st.name, st.segments = st.name+"+"+segments[k].Name, append(st.segments, k)
		}
		for st.function != nil && k+1 < last && segments[k+1].Function == nil && (segments[k+1].Name == "" || segments[k+1].Fused) {
			k++
			st.segments = append(st.segments, k)
			if name := segments[k].Name; name != "" {
				st.name, st.behind = st.name+"+"+name, name
			}
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
