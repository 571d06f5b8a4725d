package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/planner/status"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// The job of the clients scenario: a step has a row for each DP rank, which its 16 TP ranks all get.
// At some 8 bytes a token over the wire a row is 64 KiB. The buffers are what the steps of 4096 clients need: with room for more,
// the memory of a client is what the collector leaves in that room.
const clientsSpec = `
name: clients
seed: 1
batch: {sequence_length: 8000, sequences: %[1]d, microbatch_size: 1}
topology: {dp: %[1]d, tp: %[2]d}
output: {broadcast_at: %[3]s}
resources: {loader_buffer: 64MiB, constructor_buffer: 96MiB, prefetch: 4}
sources:
  - name: corpus
    files: %[4]q
    transforms: [tokens: input_ids]
`

const (
	clientsTP    = 16
	clientsBytes = 64 << 10
	// clientsProcesses hold all clients, as few as the machine's cores keep busy.
	clientsProcesses = 4
	// clientsLoaders are what each client is connected to without a constructor.
	clientsLoaders = 4
	// clientsPause is between two barriers: what is to be delivered is ready by then.
	clientsPause = 2 * time.Second
)

// clientCounts are how many clients one constructor serves.
var clientCounts = []int{256, 1024, 4096}

// benchClients measures how long many clients of one constructor take for one step that all of them
// ask for at once, beside gRPC alone, which moves as many bytes.
func benchClients(ctx context.Context, cfg *config) error {
	dir, err := writePlainTokens(ctx, cfg)
	if err != nil {
		return err
	}
	cfg.report.title("One constructor and many clients, which ask for %d KiB each at once (tp %d)", clientsBytes>>10, clientsTP)
	for _, n := range clientCounts {
		var all []result
		for _, way := range clientWays {
			r := result{Scenario: "clients", Name: fmt.Sprintf("%d clients, %s", n, way.name), Unit: "ms", Less: true}
			if err := way.run(ctx, cfg, n, dir, &r); err != nil {
				return fmt.Errorf("%s: %w", r.Name, err)
			}
			all = append(all, r)
		}
		if err := cfg.report.table(all, connections, clientMemory); err != nil {
			return err
		}
	}
	return nil
}

// Names of the further measurements.
const (
	connections  = "connections"
	clientMemory = "KiB a client"
)

// clientWays are how clients get their bytes.
var clientWays = []struct {
	name string
	run  func(ctx context.Context, cfg *config, n int, dir string, r *result) error
}{
	{"the service, by wire", func(ctx context.Context, cfg *config, n int, dir string, r *result) error {
		return servedClients(ctx, cfg, n, dir, "none", r)
	}},
	{"the service, broadcast_at tp: one in 16 fetches", func(ctx context.Context, cfg *config, n int, dir string, r *result) error {
		return servedClients(ctx, cfg, n, dir, "tp", r)
	}},
	{"gRPC alone", func(ctx context.Context, cfg *config, n int, _ string, r *result) error {
		return bareClients(ctx, cfg, n, 1, r)
	}},
	{fmt.Sprintf("gRPC alone, a part from each of %d loaders", clientsLoaders), func(ctx context.Context, cfg *config, n int, _ string, r *result) error {
		return bareClients(ctx, cfg, n, clientsLoaders, r)
	}},
}

// servedClients measures a service.
func servedClients(ctx context.Context, cfg *config, n int, dir, broadcastAt string, r *result) error {
	spec := filepath.Join(cfg.dir, fmt.Sprintf("clients-%d-%s.yaml", n, broadcastAt))
	yaml := fmt.Sprintf(clientsSpec, n/clientsTP, clientsTP, broadcastAt, dir)
	if broadcastAt == "none" {
		yaml = strings.Replace(yaml, "output: {broadcast_at: none}\n", "", 1)
	}
	if err := os.WriteFile(spec, []byte(yaml), 0o644); err != nil {
		return err
	}
	profile, err := cfg.profileOf(fmt.Sprintf("clients-%d-%s", n, broadcastAt), 0)
	if err != nil {
		return err
	}
	service, err := start(ctx, "serve", serveArgs{Spec: spec, Profile: profile})
	if err != nil {
		return err
	}
	defer service.stop()
	var address string
	if err := service.receive(&address); err != nil {
		return err
	}
	time.Sleep(clientsPause) // the first steps are built
	before, err := restingMemory(ctx, service, address)
	if err != nil {
		return err
	}
	fetchers, tp := n, clientsTP
	if broadcastAt == "tp" {
		fetchers, tp = n/clientsTP, 1
	}
	a := clientsArgs{Addresses: []string{address}, Served: true, TP: tp}
	return barriers(ctx, cfg, fetchers, a, r, func() (map[string]float64, error) {
		more := map[string]float64{connections: float64(fetchers)}
		if fetchers < n { // too few: what the rest of the service takes and gives back in the meantime is more
			return more, nil
		}
		after, err := restingMemory(ctx, service, address)
		more[clientMemory] = (after - before) / 1024 / float64(fetchers)
		return more, err
	})
}

// restingMemory is the memory of a service beside the data that it holds.
func restingMemory(ctx context.Context, service *process, address string) (float64, error) {
	m, err := memoryOf(service.pid())
	if err != nil {
		return 0, err
	}
	conn, err := rpc.Dial(address, rpc.Security{}.Of(address))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	reply, err := pb.NewPlannerClient(conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return 0, rpc.FromStatus(err)
	}
	var s status.Service
	if err := json.Unmarshal(reply.Json, &s); err != nil {
		return 0, err
	}
	held := uint64(0)
	for _, l := range s.Loaders {
		held += l.HeldBytes
	}
	for _, c := range s.Constructors {
		held += c.HeldBytes
	}
	return float64(m.PSS) - float64(held), nil
}

// bareClients measures gRPC that moves the same bytes, from one process for each of several loaders.
func bareClients(ctx context.Context, cfg *config, n, loaders int, r *result) error {
	a := clientsArgs{TP: 1}
	for range loaders {
		server, err := start(ctx, "bare-serve", bareArgs{Sizes: []int{clientsBytes / loaders}})
		if err != nil {
			return err
		}
		defer server.stop()
		var address string
		if err := server.receive(&address); err != nil {
			return err
		}
		a.Addresses = append(a.Addresses, address)
	}
	return barriers(ctx, cfg, n, a, r, func() (map[string]float64, error) {
		return map[string]float64{connections: float64(n * loaders)}, nil
	})
}

// barriers starts the processes of n clients, and measures how long all of them take for a step.
func barriers(ctx context.Context, cfg *config, n int, a clientsArgs, r *result, look func() (map[string]float64, error)) error {
	var all []*process
	for i := range clientsProcesses {
		a.From, a.To = i*n/clientsProcesses, (i+1)*n/clientsProcesses
		p, err := start(ctx, "clients", a)
		if err != nil {
			return err
		}
		defer p.stop()
		all = append(all, p)
	}
	const warm = 2 // the first barriers begin streams and make buffers
	for run := range warm + cfg.runs {
		if err := eachReady(all); err != nil {
			return err
		}
		time.Sleep(clientsPause)
		begun := time.Now()
		for _, p := range all {
			if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
				return err
			}
		}
		if err := eachReady(all); err != nil {
			return err
		}
		took := time.Since(begun)
		if run < warm {
			continue
		}
		extra, err := look()
		if err != nil {
			return err
		}
		r.add(sample{float64(took.Microseconds()) / 1000, extra})
	}
	return nil
}

// eachReady waits for a line of each process.
func eachReady(all []*process) error {
	for _, p := range all {
		var ready bool
		if err := p.receive(&ready); err != nil {
			return err
		}
	}
	return nil
}
