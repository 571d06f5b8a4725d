package planner

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/jobspec"
)

// TestCheckNodes: ranks that do not fill the nodes that they are said to be on are a mistake more often than not, and nothing
// to refuse: a mesh may grow.
func TestCheckNodes(t *testing.T) {
	t.Parallel()
	job := &jobspec.Job{Topology: jobspec.Topology{DP: 2, CP: 1, PP: 1, TP: 2}}
	for n, want := range map[int]string{
		0: "", 1: "", 2: "", 4: "",
		3: `--ranks-per-node does not divide the ranks of the job: the last node is taken to have fewer" ranks_per_node=3 ranks=4 nodes=2 last_node=1`,
		8: `--ranks-per-node is more than the ranks of the job: all of them are taken to be on node 0" ranks_per_node=8 ranks=4`,
	} {
		var log strings.Builder
		o := Options{Job: job, RanksPerNode: n, Log: slog.New(slog.NewTextHandler(&log, nil))}
		if o.checkNodes(); want == "" && log.Len() > 0 || !strings.Contains(log.String(), want) {
			t.Errorf("of %d ranks on a node it says %q, want %q", n, &log, want)
		}
	}
}
