package planner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
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
	Joined       bool                `json:"joined"` // a trainer has, so that it is known where the job goes on
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
	Constructors []ConstructorStatus `json:"constructors"`
}

// SourceStatus is the ledger of one source.
type SourceStatus struct {
	Name      string  `json:"name"`
	State     string  `json:"state,omitempty"` // paused, dropped; nothing for one that is drawn from
	Files     uint64  `json:"files"`
	Bytes     uint64  `json:"bytes"`
	Scheduled float64 `json:"scheduled_share"` // at the next step
	Realised  float64 `json:"realised_share"`  // of all tokens (or samples) drawn so far
	Lag       float64 `json:"lag"`             // behind the schedule, in the mix's units
	Tokens    int64   `json:"tokens"`
	Samples   int64   `json:"samples"`
	Epoch     int64   `json:"epoch"`
	Filtered  uint64  `json:"filtered"`
	Dropped   uint64  `json:"dropped"`
	Empty     uint64  `json:"empty"`
	Skipped   uint64  `json:"skipped"`
	LastSkip  string  `json:"last_skip,omitempty"`

	Absent []AbsentField `json:"absent_fields,omitempty"`
}

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
}

// Status implements the Planner service.
func (p *Planner) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusReply, error) {
	s, err := p.currentStatus(ctx)
	if err != nil {
		return nil, rpc.ToStatus(err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return nil, rpc.ToStatus(err)
	}
	return &pb.StatusReply{Text: s.String(), Json: data}, nil
}

func (p *Planner) status() Status {
	s := Status{
		Job: p.id.name, State: "starting", Joined: p.positioned, UptimeSec: time.Since(p.started).Seconds(),
		Generation: p.generation, End: p.ended, EndReason: p.endReason, WaitingFor: p.blockedOn(),
	}
	if p.core != nil {
		p.progress(&s)
	}
	s.Changes = slices.Clone(p.made)
	if p.failed != nil {
		s.State, s.Error, s.Class = "failed", p.failed.Error(), fault.ClassOf(p.failed).String()
	}
	for i := range p.sources {
		s.Sources = append(s.Sources, p.sourceStatus(i))
	}
	p.shares(s.Sources)
	for _, l := range p.loaders {
		u := l.usage
		s.Loaders = append(s.Loaders, LoaderStatus{l.id, l.address, u.GetHeldBytes(), u.GetBudgetBytes(), u.GetReadBytes(), u.GetBlocksRead(), u.GetBlocksReread(),
			u.GetDiskBytes(), u.GetDiskBudgetBytes(), u.GetDiskProblem()})
	}
	for _, c := range p.constructors {
		if c == nil {
			continue
		}
		u := c.usage
		s.Constructors = append(s.Constructors, ConstructorStatus{c.id, c.address, c.buckets, u.GetHeldBytes(), u.GetBudgetBytes(),
			u.GetDeliveredBytes(), u.GetDeliveredBatches(), u.GetFetchSeconds(), u.GetWaitSeconds()})
	}
	return s
}

// silence is how long a role may say nothing before the status names it: they report
// their memory every second.
const silence = 5 * time.Second

// silent names the roles that are connected and have said nothing for long: stopped,
// starved, or behind a network that is gone. The connection is given up later.
func (p *Planner) silent(now time.Time) string {
	var b strings.Builder
	note := func(role, id, address string, heard time.Time) {
		if quiet := now.Sub(heard); quiet > silence {
			fmt.Fprintf(&b, "; %s %s at %s has said nothing for %.0f s", role, id, address, quiet.Seconds())
		}
	}
	if len(p.loaders) == 0 && p.core != nil {
		b.WriteString("; no loader is connected")
	}
	for _, l := range p.loaders {
		note("loader", l.id, l.address, l.heard)
	}
	for _, c := range p.constructors {
		if c != nil {
			note("constructor", c.id, c.address, c.heard)
		}
	}
	return b.String()
}

// progress fills in what the core knows.
func (p *Planner) progress(s *Status) {
	s.Topology = p.tree.Canonical()
	s.Calibration = p.measures.calibration()
	s.State, s.Planned, s.Acked = "running", p.core.Planned(), p.core.Acked()
	if p.ended >= 0 && s.Acked >= p.ended {
		s.State = "ended"
	}
	s.DigestStep, _ = p.core.Missing()
	if d, ok := p.core.Digest(s.DigestStep); ok {
		s.Digest = fmt.Sprintf("%x", d)
	}
	if state, ok := p.core.State(s.Planned); ok {
		s.Carried, s.Held = len(state.Carry), len(state.Held)
	}
	if last := p.steps[s.Planned-1]; last != nil {
		s.Fill = float64(last.Filled) / float64(last.Shape.Rows*int(last.Shape.SequenceLength))
	}
}

func (p *Planner) sourceStatus(i int) SourceStatus {
	led := &p.ledger[i]
	s := SourceStatus{
		Name:  p.sources[i].Name,
		Files: p.indexed[i].GetFiles(), Bytes: p.indexed[i].GetBytes(),
		Filtered: led.filtered, Dropped: led.dropped, Empty: led.empty, Skipped: led.skipped,
		Absent: led.fields.list(),
	}
	if led.lastSkip != nil {
		s.LastSkip = skipText(led.lastSkip)
	}
	if p.core == nil {
		return s
	}
	if state, ok := p.core.State(p.core.Planned()); ok && i < len(state.Cursors) {
		c := state.Cursors[i]
		s.State = state.Settings.StateOf(int32(i))
		s.Tokens, s.Samples = c.Tokens, c.Samples
		s.Lag = float64(c.Deficit) / 4096
		s.Epoch = c.Seq / max(int64(p.indexed[i].Blocks), 1)
	}
	return s
}

// shares fills in what each source should have and has of the whole.
func (p *Planner) shares(sources []SourceStatus) {
	if p.core == nil {
		return
	}
	scheduled := p.core.Shares()
	count := func(s *SourceStatus) int64 {
		if p.opts.Job.Mix.Unit == "samples" {
			return s.Samples
		}
		return s.Tokens
	}
	var total int64
	for i := range sources {
		total += count(&sources[i])
	}
	for i := range scheduled {
		sources[i].Scheduled = float64(scheduled[i]) / (1 << 32)
		sources[i].Realised = float64(count(&sources[i])) / float64(max(total, 1))
	}
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
	fmt.Fprintf(w, "\nloader\theld MiB\tof MiB\ton disk MiB\tof MiB\tread MiB\tblocks\tread again\t\n")
	for _, l := range s.Loaders {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%d\t\n", l.ID, mib(l.HeldBytes), mib(l.BudgetBytes),
			mib(l.DiskBytes), mib(l.DiskBudget), mib(l.ReadBytes), l.BlocksRead, l.Rereads)
	}
	fmt.Fprintf(w, "\nconstructor\tdp ranks\theld MiB\tof MiB\tdelivered MiB\tbatches\tfetch s\tranks waited s\t\n")
	for _, c := range s.Constructors {
		fmt.Fprintf(w, "%s\t%v\t%.1f\t%.1f\t%.1f\t%d\t%.1f\t%.1f\t\n", c.ID, c.Buckets, mib(c.HeldBytes), mib(c.BudgetBytes),
			mib(c.DeliveredBytes), c.Delivered, c.FetchSec, c.WaitSec)
	}
	w.Flush()
	return b.String()
}

func mib(n uint64) float64 { return float64(n) / (1 << 20) }
