package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/jobspec"
)

const steered = `
name: steered
sources: [{name: web, files: web.txt}, {name: code, files: code.txt}]
mix:
  weights: {web: 0.7, code: 0.3}
  feedback: {policy: exponential, every: 2, rate: 500}
batch: {sequence_length: 48, sequences: 2}
`

// withService runs a service of the job and calls use with its address.
func withService(t *testing.T, use func(ctx context.Context, address string)) {
	t.Helper()
	withServiceOf(t, steered, use)
}

func withServiceOf(t *testing.T, spec string, use func(ctx context.Context, address string)) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"web.txt", "code.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("one line of "+name+"\n", 50)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	job, findings := jobspec.Parse("steered.yaml", []byte(spec), dir)
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := service.Run(ctx, service.Options{Job: job}, func(ctx context.Context, address string) error {
		use(ctx, address)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// status is a part of what the service says of itself.
type status struct {
	Changes     []string
	Calibration string
	Acked       int64 `json:"steps_acked"` // by all ranks
}

func statusOf(ctx context.Context, t *testing.T, address string) (s status) {
	t.Helper()
	conn, err := rpc.Dial(address, client.Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reply, err := pb.NewPlannerClient(conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(reply.Json, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func open(ctx context.Context, t *testing.T, address string, opts client.Options) *client.Client {
	t.Helper()
	c, err := client.Open(ctx, address, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func isUser(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || fault.ClassOf(err) != fault.User {
		t.Errorf("%v, want a user error with %q", err, want)
	}
}

// Reported losses move the mix, as a change that the status shows.
func TestReport(t *testing.T) {
	withService(t, func(ctx context.Context, address string) {
		c := open(ctx, t, address, client.Options{})
		report := client.Report{Losses: map[string]float64{"web": 1, "code": 3}, Tokens: map[string]uint64{"web": 70}, StepSeconds: 0.1}
		isUser(t, c.Report(ctx, report), "none so far")
		for range 2 {
			if made := statusOf(ctx, t, address).Changes; len(made) != 0 {
				t.Errorf("changes before the policy's step: %s", made)
			}
			if _, err := c.Next(ctx); err != nil {
				t.Fatal(err)
			}
			if err := c.Report(ctx, report); err != nil {
				t.Fatal(err)
			}
		}
		if got := statusOf(ctx, t, address).Calibration; !strings.Contains(got, "not known yet") || !strings.Contains(got, "2 observations") {
			t.Errorf("what two step times say of costs: %q", got)
		}
		var got struct{ Weights map[string]float64 }
		made := statusOf(ctx, t, address).Changes
		if len(made) != 1 || json.Unmarshal([]byte(made[0]), &got) != nil {
			t.Fatalf("changes %s, want one", made)
		}
		if web, code := got.Weights["web"], got.Weights["code"]; !(code/(web+code) > 0.4) || !(web > 0) {
			t.Errorf("weights %v, want more of the source that is learned worst, and some of the other", got.Weights)
		}
		isUser(t, c.Report(ctx, client.Report{Losses: map[string]float64{"cod": 1}}), `did you mean "code"`)
		c.Close()
		isUser(t, c.Report(ctx, report), "closed")
	})
}

func TestReportRefused(t *testing.T) {
	withService(t, func(ctx context.Context, address string) {
		c := open(ctx, t, address, client.Options{})
		if _, err := c.Next(ctx); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			report client.Report
			want   string
		}{
			{client.Report{}, "empty"},
			{client.Report{StepSeconds: -1}, "took -1 seconds"},
			{client.Report{StepSeconds: math.NaN()}, "took NaN seconds"},
			{client.Report{StepSeconds: math.Inf(1)}, "took +Inf seconds"},
			{client.Report{Losses: map[string]float64{"web": math.NaN()}}, `loss of source "web" is NaN`},
			{client.Report{Losses: map[string]float64{"web": math.Inf(-1)}}, `loss of source "web" is -Inf`},
			{client.Report{Losses: map[string]float64{"web": 1}, Tokens: map[string]uint64{"code": 1}}, `tokens of source "code"`},
		} {
			isUser(t, c.Report(ctx, test.report), test.want)
		}
	})
}

// A change of the topology ends the data of the old ranks with an error that says
// where it goes on, and a rank of the new mesh goes on there.
func TestChange(t *testing.T) {
	withService(t, func(ctx context.Context, address string) {
		c := open(ctx, t, address, client.Options{})
		if _, err := c.Next(ctx); err != nil {
			t.Fatal(err)
		}
		step, err := client.Change(ctx, address, []byte(`{"topology":{"dp":2},"reason":"more machines"}`), client.Security{})
		if err != nil || step < 1 {
			t.Fatal(step, err)
		}
		var changed *client.TopologyError
		for !errors.As(err, &changed) {
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Next(ctx)
		}
		if changed.Step != step || !strings.Contains(changed.Topology, "dp2") || c.Step() != step {
			t.Errorf("%+v at step %d, want step %d and dp2", changed, c.Step(), step)
		}
		token, _, err := c.State(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next := open(ctx, t, address, client.Options{Rank: client.Rank{DP: 1}, Mesh: client.Mesh{DP: 2}, Token: token})
		if b, err := next.Next(ctx); err != nil || b.Step != step {
			t.Errorf("step %v, %v, want %d", b, err, step)
		}
		_, err = client.Change(ctx, address, []byte(`{"pause":"wbe"}`), client.Security{})
		isUser(t, err, `did you mean "web"`)
	})
}

func TestChangeLost(t *testing.T) {
	_, err := client.Change(t.Context(), "127.0.0.1:1", []byte(`{"skip":1}`), client.Security{})
	if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "may have been made") {
		t.Errorf("%v, want a lost error that says what to look at", err)
	}
}
