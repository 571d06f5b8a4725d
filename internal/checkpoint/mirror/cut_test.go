package mirror

import (
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// TestCutBelow: what came before a key frame is needed where the log goes on below it, by the steps that came before.
func TestCutBelow(t *testing.T) {
	step := func(at int64) checkpoint.Op { return checkpoint.Append{Step: at} }
	framed := func(at int64) checkpoint.Op { return checkpoint.Append{Step: at, Frame: []byte("frame")} }
	truncate := func(from int64) checkpoint.Op { return checkpoint.Truncate{From: from} }
	fork := func(parent uint64, from int64) checkpoint.Op {
		return checkpoint.Fork{Number: 9, Parent: parent, From: from}
	}
	for what, c := range map[string]struct {
		ops  []checkpoint.Op // those of the key frame, and what followed
		want bool
	}{
		"it goes on":                          {[]checkpoint.Op{framed(8), step(9)}, false},
		"back above the key frame":            {[]checkpoint.Op{framed(8), step(9), truncate(9), step(9)}, false},
		"back to its step, and no more":       {[]checkpoint.Op{framed(8), step(9), truncate(8)}, true},
		"back below it, and no more":          {[]checkpoint.Op{framed(8), step(9), truncate(5)}, true},
		"back below it, with a key frame":     {[]checkpoint.Op{framed(8), truncate(5), framed(5), step(6)}, false},
		"back below it, without one":          {[]checkpoint.Op{framed(8), truncate(5), step(5)}, true},
		"all was left":                        {[]checkpoint.Op{framed(8), step(9), truncate(0)}, false},
		"all was left, and others begin":      {[]checkpoint.Op{framed(8), truncate(0), framed(12), step(13)}, false},
		"back below it, then all was left":    {[]checkpoint.Op{framed(8), truncate(5), truncate(0)}, false},
		"back below what began after it":      {[]checkpoint.Op{framed(8), truncate(0), framed(12), truncate(10)}, true},
		"on from a branch before it":          {[]checkpoint.Op{checkpoint.InBranch{Number: 3}, framed(8), fork(2, 20)}, false},
		"on from one that it has":             {[]checkpoint.Op{framed(8), step(9), truncate(9), framed(9), fork(0, 10), step(10)}, false},
		"and back below that":                 {[]checkpoint.Op{framed(8), step(9), truncate(9), framed(9), fork(0, 10), truncate(8)}, true},
		"of no step":                          {nil, false},
		"of no step, and then back":           {[]checkpoint.Op{framed(12), step(13), step(14), truncate(14)}, false},
		"of no step, and then back below all": {[]checkpoint.Op{framed(12), step(13), truncate(12)}, true},
	} {
		st := &state{groups: []group{{}}}
		for _, op := range c.ops {
			st.groups = append(st.groups, group{ops: []checkpoint.Op{op}})
		}
		if got := st.cutBelow(); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
