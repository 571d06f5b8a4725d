package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/planner/status"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Sizes of the job that many loaders read.
const (
	fleetSources = 16
	fleetFiles   = 8   // of a source
	fleetRecords = 120 // of a file
)

// Fleet is a job for many loaders: 16 sources, eight ranks.
func Fleet(steps int64) *Recipe {
	var sources, weights []string
	for i := range fleetSources {
		sources = append(sources, fmt.Sprintf("  - {name: s%02d, files: fleet/s%02d/*.jsonl, chunk_bytes: 6000, shuffle: {block: 2}}", i, i))
		weights = append(weights, fmt.Sprintf("s%02d: %d", i, 1+i%4))
	}
	return &Recipe{Name: "fleet", Steps: steps, Spec: "sources:\n" + strings.Join(sources, "\n") + "\nmix: {weights: {" + strings.Join(weights, ", ") + `}}
batch: {sequence_length: 512, sequences: 32, microbatch_size: 4}
topology: {dp: 4, cp: 2}
`}
}

// WriteFleet makes the sources of Fleet in a folder.
func WriteFleet(dir string) error {
	rng := Random(11, "fleet")
	for s := range fleetSources {
		for f := range fleetFiles {
			var b strings.Builder
			for range fleetRecords {
				fmt.Fprintf(&b, `{"text":%q}`+"\n", words(rng, rng.IntN(50)+1))
			}
			if err := write(filepath.Join(dir, "fleet", fmt.Sprintf("s%02d", s), fmt.Sprintf("%d.jsonl", f)), b.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// statusTime is how long a planner may take to answer.
const statusTime = 250 * time.Millisecond

// Status asks the planner that began to serve last for its status; it fails while there is none.
func (r *Rig) Status(ctx context.Context) (s status.Service, err error) {
	_, number, _ := cutRole(r.Leader())
	conn, err := rpc.Dial(r.addresses[number], rpc.Security{})
	if err != nil {
		return s, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	reply, err := pb.NewPlannerClient(conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(reply.Json, &s)
}
