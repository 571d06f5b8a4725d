package functions

import (
	"cmp"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/nvml"
	"github.com/millrace-data/millrace/internal/pool"
	"github.com/millrace-data/millrace/internal/worker"
)

// poolTime is how long a step that needs a GPU, on a machine without, waits for a worker pool that has one: such a
// job is refused before it begins, and a pool is found in a second.
const poolTime = 10 * time.Second

// devices are the GPUs of this process, looked for once.
func (s *Set) devices() *worker.GPUs {
	s.looking.Do(func() {
		if s.GPUs == nil {
			s.GPUs = GPUs(cmp.Or(s.Log, slog.New(slog.DiscardHandler)))
		}
	})
	return s.GPUs
}

// GPUs are the devices of this machine that CUDA_VISIBLE_DEVICES does not leave out.
func GPUs(log *slog.Logger) *worker.GPUs {
	library := nvml.Open(log)
	defer library.Close()
	named, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	var all []worker.GPU
	for _, d := range visible(library.Devices(), named, set) {
		all = append(all, worker.GPU{ID: d.UUID, Memory: d.Free})
	}
	return worker.NewGPUs(all)
}

// visible are the devices that a list of numbers and beginnings of UUIDs names, in its order; all if it is not set.
func visible(all []nvml.Device, named string, set bool) (some []nvml.Device) {
	if !set {
		return all
	}
	for name := range strings.SplitSeq(named, ",") {
		name = strings.TrimSpace(name)
		for _, d := range all {
			if name != "" && (name == strconv.Itoa(d.Index) || strings.HasPrefix(name, "GPU-") && strings.HasPrefix(d.UUID, name)) {
				some = append(some, d)
			}
		}
	}
	return some
}

// served waits for a pool that runs a function.
func served(f *worker.Function, pools *pool.Client) bool {
	if pools == nil {
		return false
	}
	for end := time.Now().Add(poolTime); time.Now().Before(end); time.Sleep(poolTime / 200) {
		if f.Served() {
			return true
		}
	}
	return false
}

// refusals says why pools do not serve functions of an environment, as the end of a message.
func refusals(pools *pool.Client, env *worker.Environment) (text string) {
	if pools == nil {
		return ""
	}
	for _, u := range pools.Usage(env) {
		if u.Problem != "" {
			text += "; " + u.Name + ": " + u.Problem
		}
	}
	return text
}
