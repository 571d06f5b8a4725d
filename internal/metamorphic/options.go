package metamorphic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/rig"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// Options are what may differ between the runs of a seed without changing a byte, and which
// job it is.
type Options struct {
	Recipe            int // of rig.Recipes
	Packing           bool
	Loaders           int
	Constructors      int
	LoaderBuffer      int // bytes
	ConstructorBuffer int
	Prefetch          int // steps planned
	Ahead             int // steps that ranks read ahead; -1: none
	Window            int // samples of a source
	Lossy             bool
}

// DrawOptions draws those of a run.
func DrawOptions(rng *rand.Rand) Options {
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	return Options{
		Recipe: rng.IntN(len(rig.Recipes)), Packing: rng.IntN(4) > 0, Loaders: pick(1, 2, 3), Constructors: pick(1, 2),
		LoaderBuffer: pick(1, 4e3, 1<<20), ConstructorBuffer: pick(20e3, 60e3, 1<<20), Prefetch: pick(1, 2, 4, 8),
		Ahead: pick(-1, 1, 2, 4), Window: pick(1, 20, 200), Lossy: rng.IntN(3) == 0,
	}
}

// dir is where the files of all jobs are, in a store in memory.
const dir = "/data"

// files makes the sources, once.
var files = sync.OnceValue(func() *store.Memory {
	st := &store.Memory{}
	_ = rig.Files(func(name, text string) error { st.Put(dir+"/"+name, []byte(text)); return nil })
	return st
})

// job is the spec of the options.
func (o *Options) job() (*jobspec.Job, error) {
	r := &rig.Recipes[o.Recipe]
	spec := r.Spec
	if !o.Packing {
		spec = strings.Replace(spec, "batch: {", "batch: {packing: false, ", 1)
	}
	text := fmt.Sprintf("name: metamorphic\nseed: 42\n%sresources: {loader_disk: 0, loader_buffer: %d, constructor_buffer: %d, prefetch: %d, window: %d}\n",
		spec, o.LoaderBuffer, o.ConstructorBuffer, o.Prefetch, o.Window)
	job, findings := jobspec.Parse("job.yaml", []byte(text), dir)
	return job, findings.Err()
}

func (o *Options) changes() ([]change.Change, error) {
	r := &rig.Recipes[o.Recipe]
	return change.Read(strings.NewReader(r.Changes), r.Name)
}

// answers are computed once for each job. There are no channels in them, so that bubbles
// may share them.
var answers struct {
	sync.Mutex
	of map[[2]int][][32]byte
}

// answer is what the reference reader says: the digest after every step, the first of them
// before any.
func (o *Options) answer(job *jobspec.Job, changes []change.Change) (digests [][32]byte, err error) {
	key := [2]int{o.Recipe, 0}
	if o.Packing {
		key[1] = 1
	}
	answers.Lock()
	defer answers.Unlock()
	if known := answers.of[key]; known != nil {
		return known, nil
	}
	_, root, err := reference.Read(context.Background(), files(), job, changes, 0, nil)
	if err != nil {
		return nil, err
	}
	limit := rig.Recipes[o.Recipe].Steps
	if limit == 0 {
		limit = -1
	}
	digests = append(digests, root)
	_, _, err = reference.Read(context.Background(), files(), job, changes, limit, func(s *reference.Step) error {
		digests = append(digests, s.Digest)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if answers.of == nil {
		answers.of = map[[2]int][][32]byte{}
	}
	answers.of[key] = digests
	return digests, nil
}
