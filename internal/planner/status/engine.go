package status

import (
	"fmt"
	"io"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// engine takes in what a loader says of its stages and functions.
func (s *Service) engine(loader string, u *pb.LoaderUsage) {
	for _, x := range u.GetStages() {
		s.Stages = append(s.Stages, Stage{loader, x.Source, x.Stage, x.Running, x.WaitingForRoom, x.Queued, x.QueuedBytes, x.HeldBytes, x.SpilledBytes, x.SpilledEver})
	}
	for _, x := range u.GetFunctions() {
		s.Functions = append(s.Functions, Workers{loader, x.Name, telemetry.Environment(x.Name), x.Runtime, x.Workers, x.Busy, x.Waiting, x.Restarts, x.LastDeath, x.Problem, x.Network, pools(x.Pools)})
	}
}

func pools(from []*pb.PoolUsage) (all []Pool) {
	for _, x := range from {
		all = append(all, Pool{x.Name, x.Connected, x.Workers, x.OnTheWay, x.Batches, x.Losses, x.Problem, x.Busy, x.Waiting})
	}
	return all
}

// pools writes the table of worker pools, if there are any.
func (s Service) pools(w io.Writer) {
	head := "\nloader\tworker pool\tserves\tworkers\ton the way\tdone\tlost\tbusy there\twaiting there\t\n"
	for _, x := range s.Functions {
		for _, p := range x.Pools {
			fmt.Fprint(w, head)
			head = ""
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", x.Loader, p.Name, x.Name, p.Workers, p.OnTheWay, p.Batches, p.Losses, p.Busy, p.Waiting)
		}
	}
}

// stages writes the tables of stages and of functions, if there are any.
func (s Service) stages(w io.Writer) {
	if len(s.Stages) > 0 {
		fmt.Fprintf(w, "\nloader\tsource\tstage\trunning\tqueued\tqueued MiB\theld MiB\twaits for\t\n")
	}
	for _, x := range s.Stages {
		held := ""
		if x.HeldBytes > 0 {
			held = fmt.Sprintf("%.1f", mib(x.HeldBytes))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%.1f\t%s\t%s\t\n", x.Loader, x.Source, x.Stage, x.Running, x.Queued, mib(x.QueuedBytes), held, x.waits())
	}
	for _, x := range s.Stages {
		if x.SpilledEver > 0 {
			fmt.Fprintf(w, "loader %s, source %s: nothing else made room, so %.1f MiB of batches are on the local disk, %.1f MiB were so far\n", x.Loader, x.Source, mib(x.SpilledBytes), mib(x.SpilledEver))
		}
	}
	if len(s.Functions) > 0 {
		fmt.Fprintf(w, "\nloader\tfunctions\tlabel\tworkers\tbusy\twaiting\trestarts\tnetwork\trun by\t\n")
	}
	for _, x := range s.Functions {
		network := "no"
		if x.Network {
			network = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t\n", x.Loader, x.Name, x.Label, x.Workers, x.Busy, x.Waiting, x.Restarts, network, x.Runtime)
	}
	s.pools(w)
}

// waits says what the tasks of a stage wait for.
func (x *Stage) waits() string {
	switch {
	case x.WaitingForRoom > 0:
		return fmt.Sprintf("room, %d", x.WaitingForRoom)
	case x.Queued > 0:
		return "a slot"
	case x.Running == 0:
		return "input"
	}
	return ""
}

// deaths writes why workers ended last, or do not start.
func (s Service) deaths(w io.Writer) {
	for _, x := range s.Functions {
		if x.LastDeath != "" {
			fmt.Fprintf(w, "%s: a worker of %s ended: %s\n", x.Loader, x.Name, oneLine(x.LastDeath))
		}
		if x.Problem != "" {
			fmt.Fprintf(w, "%s: workers of %s do not start: %s\n", x.Loader, x.Name, oneLine(x.Problem))
		}
		for _, p := range x.Pools {
			if p.Problem != "" {
				fmt.Fprintf(w, "%s: worker pool %s for %s: %s\n", x.Loader, p.Name, x.Name, oneLine(p.Problem))
			}
		}
	}
}
