package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/preview"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/planner/mesh"
)

// askStatus asks a service for its status.
func askStatus(ctx context.Context, address string, sec rpc.Security) (*pb.StatusReply, error) {
	conn, err := rpc.Dial(address, sec)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return askOver(ctx, conn)
}

// askOver asks the service at the other end of a connection for its status.
func askOver(ctx context.Context, conn rpc.Conn) (*pb.StatusReply, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	reply, err := pb.NewPlannerClient(conn).Status(ctx, &pb.StatusRequest{})
	return reply, rpc.FromStatus(err)
}

// findStatus asks in turn at addresses that commas separate: a planner's, and those of others that may take its place. The first
// that answers is the one that serves, as others wait without a word; at is its address.
func findStatus(ctx context.Context, addresses string, sec rpc.Security) (reply *pb.StatusReply, at string, err error) {
	all, err := rpc.Addresses(addresses)
	if err != nil {
		return nil, "", err
	}
	for _, at = range all {
		reply, failed := askStatus(ctx, at, sec)
		if failed == nil {
			return reply, at, nil
		}
		if failed = notThere(at, failed); fault.ClassOf(err) != fault.User { // what asking again does not mend is said before others
			err = failed
		}
	}
	return nil, "", err
}

// statusOver is askOver for programs.
func statusOver(ctx context.Context, conn rpc.Conn) (s status.Service, err error) {
	reply, err := askOver(ctx, conn)
	if err != nil {
		return s, fmt.Errorf("asking the service for its status: %w", err)
	}
	return s, json.Unmarshal(reply.Json, &s)
}

// statusAt is findStatus for programs.
func statusAt(ctx context.Context, addresses string, sec rpc.Security) (s status.Service, at string, err error) {
	reply, at, err := findStatus(ctx, addresses, sec)
	if err != nil {
		return s, "", err
	}
	return s, at, json.Unmarshal(reply.Json, &s)
}

// notThere says what to look for when no service answers.
func notThere(address string, err error) error {
	if fault.ClassOf(err) == fault.Lost && !rpc.NoHost(err) {
		return fault.Lostf("asking %s for its status: %w; is a service running there, and with the same --tls-* flags?", address, err)
	}
	return err
}

// statusTimeout is plenty for an answer that waits for nothing but the planner's loop.
const statusTimeout = 5 * time.Second

// runJSON is the last line but one of `run --json`.
type runJSON struct {
	Job          string         `json:"job"`
	FirstStep    int64          `json:"first_step"`
	Steps        int64          `json:"steps"`
	Ended        bool           `json:"ended"`
	Tokens       int64          `json:"tokens"`
	TokensPerSec float64        `json:"tokens_per_sec"`
	Fill         float64        `json:"fill"`
	Bytes        int64          `json:"bytes"`
	Seconds      float64        `json:"seconds"` // of the steps, without the service's start and stop
	WaitSec      float64        `json:"wait_sec"`
	TokenBytes   int            `json:"resume_token_bytes"`
	Digest       string         `json:"digest"`
	Status       status.Service `json:"status"`
}

// finish prints what the run came to, the digest last.
func (p *progress) finish(res *trainer.Result) {
	if p.json {
		p.encode(p.sum(res))
		printDigest(p.out, res.Next, res.Digest)
		return
	}
	p.clear()
	p.headline(res)
	if p.done > 0 {
		fmt.Fprintf(p.out, "%s tokens, %s tokens/s; rows %.2f %% full; %.1f MiB delivered; resume token %d bytes\n",
			grouped(p.tokens), short(p.rate()), 100*ratio(p.tokens, p.room), float64(p.bytes)/(1<<20), len(res.Token))
		fmt.Fprintf(p.out, "as fast as the service goes: its trainer computes nothing; the longest wait for a step was %v\n", elapsed(p.longest))
	}
	p.table()
	p.skips()
	p.reread()
	printDigest(p.out, res.Next, res.Digest)
}

func (p *progress) sum(res *trainer.Result) runJSON {
	return runJSON{
		Job: p.job.Name, FirstStep: res.First, Steps: p.done, Ended: res.Ended, Tokens: p.tokens,
		TokensPerSec: p.rate(), Fill: ratio(p.tokens, p.room), Bytes: p.bytes,
		Seconds: p.took().Seconds(), WaitSec: p.wait.Seconds(), TokenBytes: len(res.Token),
		Digest: fmt.Sprintf("%x", res.Digest), Status: p.status,
	}
}

// rate is in tokens a second; 0 before the first step.
func (p *progress) rate() float64 {
	if p.took() <= 0 {
		return 0
	}
	return float64(p.tokens) / p.took().Seconds()
}

func (p *progress) headline(res *trainer.Result) {
	t := p.mesh()
	ranks := fmt.Sprintf("%d ranks (dp %d x cp %d x pp %d x tp %d)", t.DP*t.CP*t.PP*t.TP, t.DP, t.CP, t.PP, t.TP)
	if p.done == 0 {
		fmt.Fprintf(p.out, "%s: no step from step %d on for %s\n", p.job.Name, res.First, ranks)
	} else {
		fmt.Fprintf(p.out, "%s: %s for %s in %v\n", p.job.Name, fromTo(res.First, res.Next-1), ranks, elapsed(p.took()))
	}
	if res.Ended {
		fmt.Fprintf(p.out, "the data ended after %s, for all ranks at once\n", preview.Count(res.Next, "step"))
		if p.status.EndReason != "" {
			fmt.Fprintln(p.out, p.status.EndReason)
		}
	}
}

// mesh is that of the last step: a change may have moved the job to another one.
func (p *progress) mesh() mesh.Sizes {
	if tree, err := mesh.Parse(p.status.Topology); err == nil {
		return tree.Sizes()
	}
	t := p.job.Topology
	return mesh.Sizes{DP: t.DP, CP: t.CP, PP: t.PP, TP: t.TP}
}

// clear takes the live line away.
func (p *progress) clear() {
	if p.width > 0 {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// interrupted prints how far a run got that has no result.
func (p *progress) interrupted() {
	p.clear()
	if p.done > 0 {
		printDigest(p.out, p.next, p.digest) // there is another error to tell of
	}
}

func (p *progress) table() {
	fmt.Fprintln(p.out)
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "source\tfiles\ttokens\tshare\tscheduled\tepoch\tfiltered\ttoo long\tempty\tskipped\t\n")
	for _, s := range p.status.Sources {
		name := s.Name
		if s.State != "" {
			name += " (" + s.State + ")"
		}
		has, should := p.shares(s.Name)
		fmt.Fprintf(w, "%s\t%d\t%s\t%.2f %%\t%.2f %%\t%d\t%d\t%d\t%d\t%d\t\n", name, s.Files, grouped(p.drawn[s.Name]),
			100*has, 100*should, s.Epoch, s.Filtered, s.Dropped, s.Empty, s.Skipped)
	}
	w.Flush()
	fmt.Fprintln(p.out, "epoch and the columns after it count what was read ahead of these steps, too; plan counts the steps alone")
	fmt.Fprintln(p.out)
}

// reread names the loaders that read blocks more than once, and why.
func (p *progress) reread() {
	for _, l := range p.status.Loaders {
		if l.Rereads == 0 {
			continue
		}
		why := fmt.Sprintf("resources.loader_buffer (%.1f MiB) and loader_disk (%.1f MiB) do not hold what is in use", mib(l.BudgetBytes), mib(l.DiskBudget))
		if l.DiskProblem != "" {
			why = "nothing more is kept on its local disk: " + l.DiskProblem
		}
		fmt.Fprintf(p.out, "%s read %d of %d blocks again, which takes time: %s\n\n", l.ID, l.Rereads, l.BlocksRead, why)
	}
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// skips names the last bad record of each source that skipped some, and the fields that
// records lack, and the sources that nothing is learned from.
func (p *progress) skips() {
	for _, s := range p.status.Sources {
		if s.Skipped > 0 {
			fmt.Fprintf(p.out, "%s: %d bad records skipped, with those read ahead; the last: %s\n\n", s.Name, s.Skipped, s.LastSkip)
		}
		for _, a := range s.Absent {
			fmt.Fprintf(p.out, "%s: %s\n\n", s.Name, a)
		}
		if s.NoLoss != nil && s.NoLoss.All() {
			fmt.Fprintf(p.out, "%s: %s\n\n", s.Name, s.NoLoss)
		}
	}
}
