// Package status describes a running service: as JSON, and as the page that `millrace status`
// prints.
//
// It owns the form of both, which programs rely on. It asks nobody: all that it says is given.
package status

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// Service describes a running service. Its JSON form is part of the contract of
// `millrace status --json`; fields are added, never changed.
type Service struct {
	Job            string                 `json:"job"`
	State          string                 `json:"state"` // starting, running, ended, failed
	Error          string                 `json:"error,omitempty"`
	Class          string                 `json:"class,omitempty"` // of the error: user, lost, bug
	WaitingFor     string                 `json:"waiting_for"`
	UptimeSec      float64                `json:"uptime_sec"`
	Joined         bool                   `json:"joined"`                    // a trainer has, so that it is known where the job goes on
	Epoch          uint64                 `json:"epoch,omitempty"`           // of the planner; none without a log
	StaleRefused   uint64                 `json:"stale_refused,omitempty"`   // messages of planners, or to them, that were refused as another planner took their place
	AppendsRefused uint64                 `json:"appends_refused,omitempty"` // writes to the log's mirror, of all planners of the job, that were refused as another planner had taken over
	Generation     uint64                 `json:"generation"`
	Planned        int64                  `json:"steps_planned"`
	Acked          int64                  `json:"steps_acked"`
	End            int64                  `json:"end_step"`             // -1 while unknown
	EndReason      string                 `json:"end_reason,omitempty"` // why the data ends, if not that it is used up
	Digest         string                 `json:"digest,omitempty"`
	DigestStep     int64                  `json:"digest_step"`
	Fill           float64                `json:"fill"` // tokens in the rows of the last plan / room
	Carried        int                    `json:"carried_samples"`
	Held           int                    `json:"held_samples"` // outliers that wait for others of their length
	Topology       string                 `json:"topology"`
	Calibration    string                 `json:"calibration,omitempty"` // of the quadratic cost, from reported step times
	Changes        []string               `json:"changes,omitempty"`     // made so far, and to be made, JSON each
	Sources        []control.SourceStatus `json:"sources"`
	Loaders        []Loader               `json:"loaders"`
	Promotions     int                    `json:"promotions"`        // of shadows that took the place of a loader
	ReadAgain      int                    `json:"blocks_read_again"` // asked of loaders as those that had them were lost
	Constructors   []Constructor          `json:"constructors"`
	Wanted         Wanted                 `json:"members_wanted"`
	Elsewhere      []Elsewhere            `json:"served_elsewhere,omitempty"`   // nodes whose ranks have been served from another one for long
	Misplaced      []Misplaced            `json:"misplaced_sidecars,omitempty"` // sidecars on nodes that have no ranks
	Stages         []Stage                `json:"stages,omitempty"`             // of sources with functions, by loader
	Scaling        *Scaling               `json:"scaling,omitempty"`            // none: loaders are not scaled
	Functions      []Workers              `json:"functions,omitempty"`          // of the environments of functions, by loader
	Trainers       Trainers               `json:"trainers"`
	Holdups        []Holdup               `json:"holdups,omitempty"` // what held up most of late comes first
	Stall          Stall                  `json:"stall"`

	facts facts
}

// Wanted is how many members there are to be.
type Wanted struct {
	Loaders      int `json:"loaders"` // shadows among them
	Constructors int `json:"constructors"`
}

// Scaling is what was decided of the number of loaders.
type Scaling struct {
	Loaders int      `json:"loaders_wanted"`      // shadows among them: those that the job begins with, until it was decided
	Decided bool     `json:"decided"`             // by this planner: ranks take steps
	Drained []string `json:"drained,omitempty"`   // loaders that nothing needs any more
	Did     []string `json:"decisions,omitempty"` // the last ones, and why
	Problem string   `json:"problem,omitempty"`   // why there are not as many as are wanted
}

// MostDecisions are shown.
const MostDecisions = 8

// Stage is what a stage of a source does in a loader.
type Stage struct {
	Loader         string `json:"loader"`
	Source         string `json:"source"`
	Stage          string `json:"stage"`
	Running        uint32 `json:"running"`          // tasks
	WaitingForRoom uint32 `json:"waiting_for_room"` // of them, for room for what they give
	Queued         uint32 `json:"queued"`           // tasks that wait for a slot or for their turn
	QueuedBytes    uint64 `json:"queued_bytes"`
	HeldBytes      uint64 `json:"held_bytes"`                   // of the first stage: what all stages of the source hold
	SpilledBytes   uint64 `json:"spilled_bytes,omitempty"`      // of the first stage: what of the source is on the local disk
	SpilledEver    uint64 `json:"spilled_ever_bytes,omitempty"` // and what was put there so far
}

// Workers is what the worker processes of an environment of functions do. Loaders in one process have the same.
type Workers struct {
	Loader    string `json:"loader"`
	Name      string `json:"name"`    // interpreter and folder
	Label     string `json:"label"`   // what metrics call it
	Runtime   string `json:"runtime"` // versions, which no digest covers
	Workers   uint32 `json:"workers"`
	Busy      uint32 `json:"busy"`
	Waiting   uint32 `json:"waiting"` // batches that wait for a worker
	Restarts  uint32 `json:"restarts"`
	LastDeath string `json:"last_death,omitempty"`
	Problem   string `json:"problem,omitempty"` // why processes do not start
	Network   bool   `json:"network"`
	Pools     []Pool `json:"pools,omitempty"`
}

// Pool describes what a worker pool does for an environment of functions of a loader.
type Pool struct {
	Name      string `json:"name"` // address
	Connected bool   `json:"connected"`
	Workers   uint32 `json:"workers"`    // that serve this loader's functions
	OnTheWay  uint32 `json:"on_the_way"` // batches of this loader
	Batches   uint64 `json:"batches"`    // done so far
	Losses    uint32 `json:"losses"`     // batches that were lost with the pool or the way to it
	Problem   string `json:"problem,omitempty"`
	Busy      uint32 `json:"busy"`    // workers of the pool with a batch, whoever's
	Waiting   uint32 `json:"waiting"` // batches that wait for one there
}

// Loader describes one loader.
type Loader struct {
	ID          string `json:"id"`
	Address     string `json:"address"`
	HeldBytes   uint64 `json:"held_bytes"`
	BudgetBytes uint64 `json:"budget_bytes"`
	ReadBytes   uint64 `json:"read_bytes"`
	BlocksRead  uint64 `json:"blocks_read"`
	Rereads     uint64 `json:"blocks_reread"`
	DiskBytes   uint64 `json:"disk_bytes"` // kept on the local disk
	DiskBudget  uint64 `json:"disk_budget_bytes"`
	DiskProblem string `json:"disk_problem,omitempty"` // why nothing is written there
	Suspect     string `json:"suspect,omitempty"`      // why others are asked in its place
	Place       int    `json:"place"`                  // its share of the reading; -1: it is a shadow

	Sources int      `json:"open_sources,omitempty"` // of a shadow: those that it has open
	Cold    []string `json:"cold_sources,omitempty"` // those that it has not, or says nothing of
	Copies  int      `json:"copies,omitempty"`       // blocks that it has read beside the loaders of its places
	Lacks   int      `json:"copies_to_read,omitempty"`
}

// Constructor describes one constructor.
type Constructor struct {
	ID             string   `json:"id"`
	Address        string   `json:"address"`
	Buckets        []uint32 `json:"dp_ranks"`
	HeldBytes      uint64   `json:"held_bytes"`
	BudgetBytes    uint64   `json:"budget_bytes"`
	DeliveredBytes uint64   `json:"delivered_bytes"`
	Delivered      uint64   `json:"delivered_batches"`
	FetchSec       float64  `json:"fetch_sec"`
	WaitSec        float64  `json:"wait_sec"`
	Suspect        string   `json:"suspect,omitempty"` // why its session may be ended
	Hedged         uint64   `json:"fetches_hedged"`    // another loader was asked, as the first was late
	HedgesWon      uint64   `json:"hedges_won"`        // another one answered than the loader asked first
	Moved          uint64   `json:"fetches_moved"`     // asked elsewhere while they were under way, as the planner said so
	AssembleSec    float64  `json:"assemble_sec"`
	SharedBytes    uint64   `json:"shared_bytes"` // of held_bytes, what ranks of its machine map
	Ways           []Way    `json:"ways"`
	GPUs           []GPU    `json:"gpus,omitempty"` // of its machine, where it samples them
	Trainers       Trainers `json:"trainers"`       // of its ranks
}

// Way is how some ranks get their batches: shared, socket, stream or calls; or gone: the lines of these have ended.
type Way struct {
	Way    string   `json:"way"`
	Reason string   `json:"reason,omitempty"` // why not in a better way
	Ranks  uint32   `json:"ranks"`
	First  []string `json:"first"` // a few of them
}

// waysOf reads what a constructor says of the DP ranks that it serves. It may have said it of some that another
// one serves by now, until it speaks again: these are not named, and a spare one, which says it of those that it served last, has none.
func waysOf(u *pb.ConstructorUsage, buckets []uint32) []Way {
	all := []Way{}
	if len(buckets) == 0 {
		return all
	}
	for _, d := range u.GetWays() {
		w := Way{Way: d.Way, Reason: d.Reason, Ranks: d.Ranks, First: []string{}}
		for _, r := range d.First {
			if slices.Contains(buckets, r.Dp) {
				w.First = append(w.First, r.Name())
			} else {
				w.Ranks--
			}
		}
		if w.Ranks > 0 {
			all = append(all, w)
		}
	}
	return all
}

// Of describes the service of a job, with what its members say of themselves. quiet is how long a session has said nothing.
func Of(x control.Snapshot, loader func(control.Session) *pb.LoaderUsage, constructor func(control.Session) *pb.ConstructorUsage, quiet func(control.Session) time.Duration) Service {
	s := Service{
		Job: x.Job, State: x.State, WaitingFor: x.WaitingFor,
		Joined: x.Joined, Generation: x.Generation, Planned: x.Planned, Acked: x.Acked, End: x.End, EndReason: x.EndReason,
		DigestStep: x.DigestStep, Fill: x.Fill, Carried: x.Carried, Held: x.Held, Topology: x.Topology, Calibration: x.Calibration,
		Changes: x.Changes, Sources: x.Sources, Promotions: x.Promotions, ReadAgain: x.ReadAgain,
	}
	if x.Digest != nil {
		s.Digest = fmt.Sprintf("%x", x.Digest)
	}
	if x.Err != nil {
		s.Error, s.Class = x.Err.Error(), fault.ClassOf(x.Err).String()
	}
	for _, l := range x.Loaders {
		u := loader(l.Session)
		x := Loader{l.Name, l.Address, u.GetHeldBytes(), u.GetBudgetBytes(), u.GetReadBytes(), u.GetBlocksRead(), u.GetBlocksReread(),
			u.GetDiskBytes(), u.GetDiskBudgetBytes(), u.GetDiskProblem(), l.Suspect, l.Place, 0, nil, 0, 0}
		if w := l.Warmth; w != nil {
			x.Sources, x.Cold, x.Copies, x.Lacks = w.Sources, w.Cold, w.Copies, w.Lacks
		}
		s.Loaders = append(s.Loaders, x)
		s.engine(l.Name, u)
	}
	for _, c := range x.Constructors {
		u := constructor(c.Session)
		s.Constructors = append(s.Constructors, Constructor{c.Name, c.Address, c.Buckets, u.GetHeldBytes(), u.GetBudgetBytes(),
			u.GetDeliveredBytes(), u.GetDeliveredBatches(), u.GetFetchSeconds(), u.GetWaitSeconds(), c.Suspect, u.GetHedged(), u.GetHedgesWon(), u.GetMoved(), u.GetAssembleSeconds(), u.GetSharedBytes(), waysOf(u, c.Buckets), gpus(u.GetGpus()), Trainers{}})
		s.hear(x, c, u.GetTrainers(), quiet)
	}
	s.lose(x, quiet)
	s.elsewhere(&x)
	return s
}
