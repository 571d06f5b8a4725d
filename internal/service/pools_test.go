package service_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/functions"
	"github.com/millrace-data/millrace/internal/testdata"
)

// poolProcess is a worker pool of the tests, which is killed and started again.
type poolProcess struct {
	address string
	cmd     *exec.Cmd
}

func (p *poolProcess) start(t *testing.T, python, path string) {
	t.Helper()
	os.Remove(strings.TrimPrefix(p.address, "unix:")) // of one that was killed
	p.cmd = exec.Command(binary(t), "workers", "--listen", p.address, "--env", "test="+python, "--path", path, "--workers", "2", "--network")
	p.cmd.Env = append(os.Environ(), "MILLRACE_ACCESS_KEY=of-all-pools-of-the-test")
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (p *poolProcess) kill(t *testing.T) {
	if err := p.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	p.cmd.Wait() // says that it was killed
}

// poolTotals are the batches that pools did, and those that were lost with them.
func poolTotals(s *functions.Set) (batches, losses, onTheWay, connected int) {
	for _, e := range s.Environments() {
		for _, p := range e.Pools {
			batches, losses, onTheWay = batches+int(p.Batches), losses+int(p.Losses), onTheWay+p.OnTheWay
			if p.Workers > 0 {
				connected++
			}
		}
	}
	return batches, losses, onTheWay, connected
}

// TestWorkerPools: a job whose functions run in worker pools too is the reference's at every step, however often pools are killed
// in the middle of it, and come back.
func TestWorkerPools(t *testing.T) {
	python, _ := testdata.Python(t)
	dir := writeSources(t)
	r := pythonPath(t, func(path string) recipe { return functionsJob("worker pools", "cleaning", python, path) })
	path, err := filepath.Abs("testdata/functions")
	if err != nil {
		t.Fatal(err)
	}
	r.steps = 12
	solve(t, dir, r) // without pools
	pools, addresses := make([]*poolProcess, 3), make([]string, 3)
	for i := range pools {
		addresses[i] = fmt.Sprintf("unix:%s/pool-%d", t.TempDir(), i)
		pools[i] = &poolProcess{address: addresses[i]}
		pools[i].start(t, python, path)
	}
	t.Setenv("MILLRACE_ACCESS_KEY", "of-all-pools-of-the-test")
	helped = &functions.Set{Workers: 1, Pools: addresses}
	stop := make(chan struct{})
	var killing sync.WaitGroup
	t.Cleanup(func() {
		close(stop)
		killing.Wait()
		for _, p := range pools {
			p.kill(t)
		}
		helped.Close()
		helped = nil
	})
	killing.Go(func() { killPools(t, pools, stop, python, path) })
	settings := [][]int{functionSettings[0], functionSettings[2]}
	const most = 100 // of a second or less, where the machine is fast
	for round := range most {
		check(t, dir, r, settingOf(settings[round%len(settings)]))
		batches, losses, _, _ := poolTotals(helped)
		if batches > 50 && losses > 2 && round+1 >= len(settings) {
			t.Logf("%d batches in pools, %d of them lost, in %d runs", batches, losses, round+1)
			break
		}
		if round == most-1 {
			t.Errorf("%d batches in pools, %d lost with them: the runs say nothing of pools", batches, losses)
		}
	}
	t.Setenv("MILLRACE_WORKER_POOLS", strings.Join(addresses, ","))
	t.Setenv("MILLRACE_PYTHON_WORKERS", "1")
	check(t, dir, r, settingOf(functionSettings[3])) // processes
}

// killPools kills a pool that works, and starts it again, until stop is closed.
func killPools(t *testing.T, pools []*poolProcess, stop <-chan struct{}, python, path string) {
	const every = 2 * time.Second // twice, at the most: a pool that comes back imports for a second or two
	rng := rand.New(rand.NewPCG(1, 2))
	for {
		wait := time.NewTimer(time.Duration(rng.Int64N(int64(every))))
		select {
		case <-wait.C:
		case <-stop:
			wait.Stop()
			return
		}
		for _, _, onTheWay, _ := poolTotals(helped); onTheWay == 0 && !over(stop); _, _, onTheWay, _ = poolTotals(helped) {
			time.Sleep(time.Millisecond)
		}
		p := pools[rng.IntN(len(pools))]
		p.kill(t)
		p.start(t, python, path)
	}
}

func over(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
