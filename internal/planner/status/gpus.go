package status

import (
	"fmt"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// GPU is what a GPU beside a constructor did in the last second. Shares are 0 to 1.
type GPU struct {
	Index    uint32   `json:"index"`
	Busy     float64  `json:"busy"`             // share of the time in which a kernel ran
	SM       *float64 `json:"sm,omitempty"`     // in which multiprocessors worked; absent where the driver does not count it
	Tensor   *float64 `json:"tensor,omitempty"` // in which their tensor cores did
	Received float64  `json:"received_bytes_per_sec"`
}

func gpus(from []*pb.GPUUsage) (all []GPU) {
	for _, g := range from {
		x := GPU{Index: g.Index, Busy: g.Busy, Received: g.Received}
		if g.Counted {
			x.SM, x.Tensor = &g.Sm, &g.Tensor
		}
		all = append(all, x)
	}
	return all
}

// working says in words what all GPUs beside constructors did in the last second; "" if none is sampled.
func (s *Service) working() string {
	var n, counted, busy, sm, tensor, received float64
	for _, c := range s.Constructors {
		for _, g := range c.GPUs {
			n, busy, received = n+1, busy+g.Busy, received+g.Received
			if g.SM != nil {
				counted, sm, tensor = counted+1, sm+*g.SM, tensor+*g.Tensor
			}
		}
	}
	if n == 0 {
		return ""
	}
	line := fmt.Sprintf("%.0f GPUs are busy %s of the time", n, percent(busy/n))
	if counted > 0 {
		line += fmt.Sprintf(" (multiprocessors %s, tensor cores %s)", percent(sm/counted), percent(tensor/counted))
	}
	return fmt.Sprintf("%s and receive %.2f GB/s each over PCIe", line, received/n/1e9)
}
