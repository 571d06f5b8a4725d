package status_test

import (
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/status"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// What the core knows of a job, and a loader says of itself, is a page.
func Example() {
	snapshot := control.Snapshot{
		Job: "demo", State: "running", WaitingFor: "loader l0, block 7 of source web", Planned: 12, Acked: 8, End: -1, Fill: 0.975,
		Sources: []control.SourceStatus{{Name: "web", Scheduled: 1, Realised: new(1.0), Tokens: 4096, Samples: new(int64(12))}},
		Loaders: []control.Member{{Session: 1, Name: "l0", Address: "10.0.0.1:7000", Suspect: "it has said nothing for 2 s"},
			{Session: 2, Name: "l1", Address: "10.0.0.2:7000", Place: -1, Warmth: &control.Warmth{Cold: []string{"web"}, Copies: 3, Lacks: 1}}},
	}
	usage := func(control.Session) *pb.LoaderUsage {
		return &pb.LoaderUsage{HeldBytes: 3 << 20, BudgetBytes: 64 << 20, BlocksRead: 8}
	}
	busy := func(session control.Session) *pb.LoaderUsage {
		u := usage(session)
		if session == 1 {
			u.Stages = []*pb.StageUsage{{Source: "web", Stage: "read", Running: 2, WaitingForRoom: 1, HeldBytes: 5 << 20}, {Source: "web", Stage: "python clean:strip", Running: 4, Queued: 3, QueuedBytes: 3 << 20}}
			u.Functions = []*pb.WorkersUsage{{Name: "python3 with .", Runtime: "Python 3.12.1, NumPy 2.1.0", Workers: 4, Busy: 4, Waiting: 1, Restarts: 2, LastDeath: "it took longer than 1m0s", Problem: "forking: out of memory", Pools: []*pb.PoolUsage{
				{Name: "gpu1:7080", Connected: true, Workers: 32, OnTheWay: 64, Batches: 12345, Losses: 2, Busy: 32, Waiting: 40}, {Name: "gpu2:7080", Problem: "it has said nothing for 2.5s"},
			}}}
		}
		return u
	}
	s := status.Of(snapshot, busy, nil, func(control.Session) time.Duration { return 0 })
	s.UptimeSec = 90
	fmt.Print(s)
	// Output:
	// job demo: running, planner up for 1m30s
	// steps: 12 planned, 8 done by all ranks; last plan 97.50 % full, 0 samples carried over
	// waiting for: loader l0, block 7 of source web
	// suspect: loader l0 at 10.0.0.1:7000: it has said nothing for 2 s; others are asked in its place
	// shadow l1 has 0 sources open, and not web; it has read 3 blocks beside other loaders, and has 1 to read
	//
	//   source   share  scheduled  tokens  samples  epoch  lag  filtered  dropped  empty  skipped
	//      web  1.0000     1.0000    4096       12      0    0         0        0      0        0
	//
	//   loader   place  held MiB  of MiB  on disk MiB  of MiB  read MiB  blocks  read again
	//       l0       0       3.0    64.0          0.0     0.0       0.0       8           0
	//       l1  shadow       3.0    64.0          0.0     0.0       0.0       8           0
	//
	//   constructor  dp ranks  held MiB  of MiB  delivered MiB  batches  fetch s  ranks waited s  hedged
	//
	//   loader  source               stage  running  queued  queued MiB  held MiB  waits for
	//       l0     web                read        2       0         0.0       5.0    room, 1
	//       l0     web  python clean:strip        4       3         3.0               a slot
	//
	//   loader       functions            label  workers  busy  waiting  restarts  network                      run by
	//       l0  python3 with .  python-96b9b097        4     4        1         2       no  Python 3.12.1, NumPy 2.1.0
	//
	//   loader  worker pool          serves  workers  on the way   done  lost  busy there  waiting there
	//       l0    gpu1:7080  python3 with .       32          64  12345     2          32             40
	//       l0    gpu2:7080  python3 with .        0           0      0     0           0              0
	// l0: a worker of python3 with . ended: it took longer than 1m0s
	// l0: workers of python3 with . do not start: forking: out of memory
	// l0: worker pool gpu2:7080 for python3 with .: it has said nothing for 2.5s
}
