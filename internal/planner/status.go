package planner

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/control"
)

// Status describes a running service. Its JSON form is part of the contract of
// `millrace status --json`; fields are added, never changed.
type Status struct {
	Job          string              `json:"job"`
	State        string              `json:"state"` // starting, running, ended, failed
	Error        string              `json:"error,omitempty"`
	Class        string              `json:"class,omitempty"` // of the error: user, lost, bug
	WaitingFor   string              `json:"waiting_for"`
	UptimeSec    float64             `json:"uptime_sec"`
	Joined       bool                `json:"joined"`                  // a trainer has, so that it is known where the job goes on
	Epoch        uint64              `json:"epoch,omitempty"`         // of the planner; none without a log
	StaleRefused uint64              `json:"stale_refused,omitempty"` // messages of planners, or to them, that were refused as another planner took their place
	Generation   uint64              `json:"generation"`
	Planned      int64               `json:"steps_planned"`
	Acked        int64               `json:"steps_acked"`
	End          int64               `json:"end_step"`             // -1 while unknown
	EndReason    string              `json:"end_reason,omitempty"` // why the data ends, if not that it is used up
	Digest       string              `json:"digest,omitempty"`
	DigestStep   int64               `json:"digest_step"`
	Fill         float64             `json:"fill"` // tokens in the rows of the last plan / room
	Carried      int                 `json:"carried_samples"`
	Held         int                 `json:"held_samples"` // outliers that wait for others of their length
	Topology     string              `json:"topology"`
	Calibration  string              `json:"calibration,omitempty"` // of the quadratic cost, from reported step times
	Changes      []string            `json:"changes,omitempty"`     // made so far, and to be made, JSON each
	Sources      []SourceStatus      `json:"sources"`
	Loaders      []LoaderStatus      `json:"loaders"`
	Promotions   int                 `json:"promotions"`        // of shadows that took the place of a loader
	ReadAgain    int                 `json:"blocks_read_again"` // asked of loaders as those that had them were lost
	Constructors []ConstructorStatus `json:"constructors"`
}

// SourceStatus is the ledger of one source.
type SourceStatus = control.SourceStatus

// AbsentField is a field that a source names and some of its records lack.
type AbsentField = control.AbsentField

// LoaderStatus describes one loader.
type LoaderStatus struct {
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
}

// ConstructorStatus describes one constructor.
type ConstructorStatus struct {
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
}

// ranks are the DP ranks that it serves, in words.
func (c *ConstructorStatus) ranks() string {
	if len(c.Buckets) == 0 {
		return "spare"
	}
	return fmt.Sprint(c.Buckets)
}

// look asks the loop for the status.
func (p *Planner) look(ctx context.Context) (s Status, err error) {
	seen := make(chan Status, 1)
	if err := p.put(ctx, looking{seen}); err != nil {
		return s, err
	}
	select {
	case s = <-seen:
		return s, nil
	case <-p.done:
		return s, errClosing
	case <-ctx.Done():
		return s, ctx.Err()
	}
}

// status is called by the loop.
func (p *Planner) status() Status {
	x := p.core.Snapshot()
	s := Status{
		Job: x.Job, State: x.State, WaitingFor: x.WaitingFor, UptimeSec: time.Since(p.started).Seconds(),
		Joined: x.Joined, Epoch: p.epoch, StaleRefused: p.staleRefused(), Generation: x.Generation, Planned: x.Planned, Acked: x.Acked, End: x.End, EndReason: x.EndReason,
		DigestStep: x.DigestStep, Fill: x.Fill, Carried: x.Carried, Held: x.Held, Topology: x.Topology, Calibration: x.Calibration,
		Changes: x.Changes, Sources: x.Sources, Promotions: x.Promotions, ReadAgain: x.ReadAgain,
	}
	if x.Digest != nil {
		s.Digest = fmt.Sprintf("%x", x.Digest)
	}
	if x.Err != nil {
		s.Error, s.Class = x.Err.Error(), fault.ClassOf(x.Err).String()
	} else {
		s.WaitingFor += p.silent(x, time.Since(clock))
	}
	for _, l := range x.Loaders {
		u := p.loaders[l.Session].usage.Load()
		s.Loaders = append(s.Loaders, LoaderStatus{l.Name, l.Address, u.GetHeldBytes(), u.GetBudgetBytes(), u.GetReadBytes(), u.GetBlocksRead(), u.GetBlocksReread(),
			u.GetDiskBytes(), u.GetDiskBudgetBytes(), u.GetDiskProblem(), l.Suspect, l.Place})
	}
	for _, c := range x.Constructors {
		u := p.constructors[c.Session].usage.Load()
		s.Constructors = append(s.Constructors, ConstructorStatus{c.Name, c.Address, c.Buckets, u.GetHeldBytes(), u.GetBudgetBytes(),
			u.GetDeliveredBytes(), u.GetDeliveredBatches(), u.GetFetchSeconds(), u.GetWaitSeconds(), c.Suspect, u.GetHedged(), u.GetHedgesWon(), u.GetMoved()})
	}
	return s
}

// silence is how long a role may say nothing before the status names it: they report
// their memory every second.
const silence = 5 * time.Second

// silent names the roles that are connected and have said nothing for long: stopped,
// starved, or behind a network that is gone. The connection is given up later.
func (p *Planner) silent(x control.Snapshot, now time.Duration) string {
	var b strings.Builder
	note := func(role string, m control.Member, quiet time.Duration) {
		if quiet > silence {
			fmt.Fprintf(&b, "; %s %s at %s has said nothing for %.0f s", role, m.Name, m.Address, quiet.Seconds())
		}
	}
	if len(x.Loaders) == 0 && x.State != "starting" {
		b.WriteString("; no loader is connected")
	}
	for _, l := range x.Loaders {
		note("loader", l, p.loaders[l.Session].quiet(now))
	}
	for _, c := range x.Constructors {
		note("constructor", c, p.constructors[c.Session].quiet(now))
	}
	return b.String()
}

// String is the page that `millrace status` prints.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s: %s for %s\n", s.Job, s.State, (time.Duration(s.UptimeSec) * time.Second).String())
	if s.Error != "" {
		fmt.Fprintf(&b, "error (%s): %s\n", s.Class, s.Error)
	}
	fmt.Fprintf(&b, "steps: %d planned, %d done by all ranks", s.Planned, s.Acked)
	if s.End >= 0 {
		fmt.Fprintf(&b, ", data ends at step %d", s.End)
	}
	fmt.Fprintf(&b, "; last plan %.2f %% full, %d samples carried over", 100*s.Fill, s.Carried)
	if s.Held > 0 {
		fmt.Fprintf(&b, ", %d outliers wait for others", s.Held)
	}
	b.WriteByte('\n')
	if s.EndReason != "" {
		fmt.Fprintln(&b, s.EndReason)
	}
	fmt.Fprintf(&b, "waiting for: %s\n", s.WaitingFor)
	for _, l := range s.Loaders {
		if l.DiskProblem != "" {
			fmt.Fprintf(&b, "%s keeps nothing more on its local disk: %s\n", l.ID, l.DiskProblem)
		}
		if l.Suspect != "" {
			fmt.Fprintf(&b, "suspect: loader %s at %s: %s; others are asked in its place\n", l.ID, l.Address, l.Suspect)
		}
	}
	for _, c := range s.Constructors {
		if c.Suspect != "" {
			fmt.Fprintf(&b, "suspect: constructor %s at %s: %s\n", c.ID, c.Address, c.Suspect)
		}
	}
	if s.Promotions > 0 || s.ReadAgain > 0 {
		fmt.Fprintf(&b, "loaders lost: %d places taken by shadows, %d blocks read again\n", s.Promotions, s.ReadAgain)
	}
	if s.StaleRefused > 0 {
		fmt.Fprintf(&b, "epoch %d: %d messages refused of planners before it\n", s.Epoch, s.StaleRefused)
	}
	if s.Digest != "" {
		fmt.Fprintf(&b, "digest step=%d %s\n", s.DigestStep, s.Digest)
	}
	if s.Calibration != "" {
		fmt.Fprintf(&b, "cost by step times: %s\n", s.Calibration)
	}
	for _, c := range s.Changes[max(len(s.Changes)-5, 0):] {
		fmt.Fprintf(&b, "change %s\n", c)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nsource\tshare\tscheduled\ttokens\tsamples\tepoch\tlag\tfiltered\tdropped\tempty\tskipped\t\n")
	for _, x := range s.Sources {
		name := x.Name
		if x.State != "" {
			name += " (" + x.State + ")"
		}
		fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%d\t%d\t%d\t%.0f\t%d\t%d\t%d\t%d\t\n", name, x.Realised, x.Scheduled,
			x.Tokens, x.Samples, x.Epoch, x.Lag, x.Filtered, x.Dropped, x.Empty, x.Skipped)
	}
	w.Flush()
	for _, x := range s.Sources {
		for _, a := range x.Absent {
			fmt.Fprintf(&b, "source %s: %s\n", x.Name, a)
		}
	}
	s.members(w)
	w.Flush()
	return b.String()
}

// members writes the tables of loaders and constructors.
func (s Status) members(w io.Writer) {
	fmt.Fprintf(w, "\nloader\tplace\theld MiB\tof MiB\ton disk MiB\tof MiB\tread MiB\tblocks\tread again\t\n")
	for _, l := range s.Loaders {
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%d\t\n", l.ID, l.role(), mib(l.HeldBytes), mib(l.BudgetBytes),
			mib(l.DiskBytes), mib(l.DiskBudget), mib(l.ReadBytes), l.BlocksRead, l.Rereads)
	}
	fmt.Fprintf(w, "\nconstructor\tdp ranks\theld MiB\tof MiB\tdelivered MiB\tbatches\tfetch s\tranks waited s\thedged\t\n")
	for _, c := range s.Constructors {
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%.1f\t%.1f\t%d\t%.1f\t%.1f\t%d\t\n", c.ID, c.ranks(), mib(c.HeldBytes), mib(c.BudgetBytes),
			mib(c.DeliveredBytes), c.Delivered, c.FetchSec, c.WaitSec, c.Hedged)
	}
}

// role is a loader's place in words.
func (l *LoaderStatus) role() string {
	if l.Place < 0 {
		return "shadow"
	}
	return strconv.Itoa(l.Place)
}

func mib(n uint64) float64 { return float64(n) / (1 << 20) }
