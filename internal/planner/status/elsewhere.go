package status

import (
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
)

// Elsewhere is a node whose ranks have been served from elsewhere for long: they map no memory of their constructor.
type Elsewhere struct {
	Node        int      `json:"node"`
	Buckets     []uint32 `json:"dp_ranks"`     // those whose first rank is on it
	Constructor string   `json:"constructor"`  // that serves them
	On          *uint32  `json:"on,omitempty"` // the node that it is on; none: it did not say
	Sec         float64  `json:"for_sec"`
}

// Misplaced is a sidecar on a node that has no ranks.
type Misplaced struct {
	Constructor string `json:"constructor"`
	Node        uint32 `json:"node"`           // that it says it is on
	Nodes       int    `json:"nodes"`          // that have ranks, from 0 on
	Ranks       int    `json:"ranks_per_node"` // as --ranks-per-node says
}

// elsewhere takes what the core says of nodes.
func (s *Service) elsewhere(x *control.Snapshot) {
	for _, x := range x.Misplaced {
		s.Misplaced = append(s.Misplaced, Misplaced{x.Name, x.Node, x.Nodes, x.Ranks})
	}
	for _, x := range x.Elsewhere {
		s.Elsewhere = append(s.Elsewhere, Elsewhere{Node: x.Node, Buckets: x.Buckets, Constructor: x.Name, On: x.On, Sec: x.Seconds})
	}
}

// String is the line of the page.
func (x Elsewhere) String() string {
	on := "on no node"
	if x.On != nil {
		on = fmt.Sprintf("on node %d", *x.On)
	}
	return fmt.Sprintf("node %d: constructor %s, %s, has served its dp ranks %d for %s, as none on the node does",
		x.Node, x.Constructor, on, x.Buckets, time.Duration(x.Sec)*time.Second)
}

// String is the line of the page.
func (x Misplaced) String() string {
	return fmt.Sprintf("constructor %s is on node %d, as it says, which has no ranks: with --ranks-per-node %d nodes 0 to %d have; it serves what is left, or is spare, until it is started with its node's number",
		x.Constructor, x.Node, x.Ranks, x.Nodes-1)
}
