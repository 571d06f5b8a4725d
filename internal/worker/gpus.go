package worker

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
)

// A worker of a function that needs a GPU owns it, or a share of it, from its fork to its end: it sees no other. How many such
// workers there are follows from the devices, which are dealt to all functions of the process in turn.

// GPU is a device that workers may own.
type GPU struct {
	ID     string // as CUDA_VISIBLE_DEVICES takes it
	Memory int64  // bytes that workers may have together
}

// Need is what a worker takes of GPUs: below 1 a share of one device, else whole ones. Memory is bytes of each device that it
// is on. The zero value needs none.
type Need struct {
	Thousandths int // of a GPU
	Memory      int64
}

// wholeGPU is the Thousandths of one.
const wholeGPU = 1000

func (n Need) any() bool { return n != Need{} }

// needOf reads what a function declares.
func needOf(d *Description) (Need, error) {
	n := Need{int(math.Round(d.Needs["gpu"] * wholeGPU)), int64(d.Needs["gpu_memory"])}
	if n.Thousandths > wholeGPU && n.Thousandths%wholeGPU != 0 {
		return n, fault.Userf("function %s needs %v GPUs: give a share of one, such as 0.5, or a whole number", d.Name, d.Needs["gpu"])
	}
	return n, nil
}

// GPUs deals devices to the workers of all environments of a process. It is safe for concurrent use.
type GPUs struct {
	all []GPU

	mu     sync.Mutex // guards the fields below
	left   []room     // of each device
	claims []*claim
}

// room is what is free of a device.
type room struct {
	thousandths int
	memory      int64
}

// claim is that of the workers of an environment with the same need.
type claim struct {
	gpus *GPUs
	need Need
	held []*share
}

// share is what a worker owns.
type share struct {
	claim   *claim
	devices []int
	revoked chan struct{} // closed when it is to be given back
	told    bool          // that it is
}

// NewGPUs returns a dealer of devices.
func NewGPUs(all []GPU) *GPUs { return &GPUs{all: all, left: full(all)} }

// Len is how many devices there are; g may be nil.
func (g *GPUs) Len() int {
	if g == nil {
		return 0
	}
	return len(g.all)
}

func full(all []GPU) []room {
	left := make([]room, len(all))
	for i, d := range all {
		left[i] = room{wholeGPU, d.Memory}
	}
	return left
}

// fit returns the devices for a worker, nil if there is no room: of those that have it, the ones with the least left.
func fit(left []room, n Need) (devices []int) {
	each := min(n.Thousandths, wholeGPU)
	for i, r := range left {
		if r.thousandths >= each && r.memory >= n.Memory {
			devices = append(devices, i)
		}
	}
	slices.SortStableFunc(devices, func(a, b int) int {
		return cmp.Or(cmp.Compare(left[a].thousandths, left[b].thousandths), cmp.Compare(left[a].memory, left[b].memory))
	})
	count := max(n.Thousandths/wholeGPU, 1)
	if len(devices) < count {
		return nil
	}
	return devices[:count]
}

func move(left []room, n Need, devices []int, sign int) {
	for _, i := range devices {
		left[i].thousandths -= sign * min(n.Thousandths, wholeGPU)
		left[i].memory -= int64(sign) * n.Memory
	}
}

// deal returns how many workers each need gets: one after the other, in turn, as long as one finds room.
func deal(all []GPU, needs []Need) []int {
	left, counts := full(all), make([]int, len(needs))
	for more := true; more; {
		more = false
		for i, n := range needs {
			if devices := fit(left, n); devices != nil && n.any() {
				move(left, n, devices, 1)
				counts[i]++
				more = true
			}
		}
	}
	return counts
}

// claim adds a need. Others get fewer devices from now on.
func (g *GPUs) claim(n Need) *claim {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &claim{gpus: g, need: n}
	g.claims = append(g.claims, c)
	return c
}

// close gives a claim up whose shares are back.
func (c *claim) close() {
	c.gpus.mu.Lock()
	defer c.gpus.mu.Unlock()
	c.gpus.claims = slices.DeleteFunc(c.gpus.claims, func(other *claim) bool { return other == c })
}

// target is how many workers it gets.
func (c *claim) target() int {
	c.gpus.mu.Lock()
	defer c.gpus.mu.Unlock()
	return c.dealt()
}

// dealt is target for whoever has the mutex. One that was given up gets none.
func (c *claim) dealt() int {
	g := c.gpus
	at := slices.Index(g.claims, c)
	if at < 0 {
		return 0
	}
	needs := make([]Need, len(g.claims))
	for i, other := range g.claims {
		needs[i] = other.need
	}
	return deal(g.all, needs)[at]
}

// take returns a share for one more worker, nil if it has all that it gets or others have not given back yet what they have to;
// and it revokes its own that are too many, the last ones first.
func (c *claim) take() *share {
	g := c.gpus
	g.mu.Lock()
	defer g.mu.Unlock()
	most := c.dealt()
	for _, s := range c.held[min(most, len(c.held)):] {
		if !s.told {
			s.told = true
			close(s.revoked)
		}
	}
	if len(c.held) >= most {
		return nil
	}
	devices := fit(g.left, c.need)
	if devices == nil {
		return nil
	}
	s := &share{claim: c, devices: devices, revoked: make(chan struct{})}
	move(g.left, c.need, devices, 1)
	c.held = append(c.held, s)
	return s
}

// give gives a share back.
func (s *share) give() {
	c := s.claim
	c.gpus.mu.Lock()
	defer c.gpus.mu.Unlock()
	c.held = slices.DeleteFunc(c.held, func(other *share) bool { return other == s })
	move(c.gpus.left, c.need, s.devices, -1)
}

// environ are the variables of a worker that owns the share. s may be nil.
func (s *share) environ() map[string]string {
	if s == nil {
		return nil
	}
	var ids []string
	for _, i := range s.devices {
		ids = append(ids, s.claim.gpus.all[i].ID)
	}
	return map[string]string{"CUDA_VISIBLE_DEVICES": strings.Join(ids, ",")}
}

// need is that of the share's worker. s may be nil.
func (s *share) need() Need {
	if s == nil {
		return Need{}
	}
	return s.claim.need
}
