package sim

import "fmt"

// nodes are those of the trainers, if a run has some: then there is a constructor more than ranks need, and
// some of them are on nodes. Who serves whom changes while they come and go.
type nodes struct {
	ranks int // of each; 0: they are not known
	of    map[string]*uint32
}

// drawNodes has half of the seeds have nodes.
func drawNodes(opts Options) nodes {
	rng := random(opts.Seed, "nodes")
	if opts.Steps > 0 || rng.IntN(2) == 0 {
		return nodes{}
	}
	n := nodes{ranks: pick(rng, 2, 2, 4), of: map[string]*uint32{}}
	for at, i := range rng.Perm(constructors + 1) {
		if at < constructors && rng.IntN(5) > 0 {
			n.of[fmt.Sprintf("constructor-%d", i)] = new(uint32(at))
		}
	}
	return n
}

// constructors is how many a run has.
func (n nodes) constructors() int {
	if n.ranks > 0 {
		return constructors + 1
	}
	return constructors
}
