package rpc_test

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestAgreeRole: a planner speaks with roles of its version and of the one before, which say
// nothing of it, and refuses others with who is to be upgraded.
func TestAgreeRole(t *testing.T) {
	for _, c := range []struct {
		lowest, newest, want uint32
		upgrade              string
	}{
		{0, 0, rpc.Oldest, ""},
		{rpc.Oldest, rpc.Protocol, rpc.Protocol, ""},
		{rpc.Oldest - 1, rpc.Oldest, rpc.Oldest, ""},
		{rpc.Protocol, rpc.Protocol + 2, rpc.Protocol, ""},
		{rpc.Oldest - 1, rpc.Oldest - 1, 0, "loader a is older than this planner (protocol 1; the oldest spoken here is 2): upgrade it"},
		{rpc.Protocol + 1, rpc.Protocol + 2, 0, "loader a is newer than this planner (protocol 4; the newest spoken here is 3): upgrade the planner"},
	} {
		version, err := rpc.AgreeRole(c.lowest, c.newest, "loader a")
		switch {
		case c.upgrade == "" && (err != nil || version != c.want):
			t.Errorf("%d to %d: %d, %v; want %d", c.lowest, c.newest, version, err, c.want)
		case c.upgrade != "" && (fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), c.upgrade)):
			t.Errorf("%d to %d: %v; want %q", c.lowest, c.newest, err, c.upgrade)
		}
	}
}
