package service_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/telemetry"
	"github.com/millrace-data/millrace/internal/telemetry/export"
	"github.com/millrace-data/millrace/internal/trainer"
)

// TestTelemetry: every metric that the documents list is on the page of a service and
// the service is ready when it serves. That telemetry changes no byte, the digest says.
func TestTelemetry(t *testing.T) {
	dir := writeSources(t)
	r := recipe{"shown", mixed + "\nbatch: {sequence_length: 512, sequences: 8, microbatch_size: 2}\ntopology: {dp: 2}\n", 12, ""}
	want := solve(t, dir, r)
	x, board, err := export.Open(t.Context(), export.Options{Address: "127.0.0.1:0", Role: "service"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	page := func(path string) string {
		resp, err := http.Get("http://" + x.Addresses()[0].String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := page("/readyz"); got == "ready\n" {
		t.Error("a service that is not there is ready")
	}
	job := parse(t, dir, r.text(resources{}))
	var metrics, ready string
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = service.Run(ctx, service.Options{Job: job, Loaders: 2, Constructors: 2, Telemetry: board}, func(ctx context.Context, address string) error {
		res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: 12, OnStep: func(s trainer.Step) {
			for s.Step == 4 && ctx.Err() == nil { // how long trainers wait is reported every second
				metrics, ready = page("/metrics"), page("/readyz")
				if len(missing(metrics)) == 0 {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
		}})
		if err == nil && res.Digest != want.digests[12] {
			t.Errorf("the digest is %x, want %x", res.Digest, want.digests[12])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if ready != "ready\n" {
		t.Errorf("a service that serves is not ready: %s", ready)
	}
	if names := missing(metrics); len(names) > 0 {
		t.Errorf("the page has no %v", names)
	}
	if len(board.Parts()) != 0 {
		t.Errorf("roles that ended are still shown: %v", board.Parts())
	}
}

// missing are the metrics that a page has not and that a job without Python functions, GPUs and TLS has.
func missing(page string) (names []string) {
	others := []telemetry.ID{telemetry.StageTasks, telemetry.StageQueued, telemetry.FunctionWorkers, telemetry.FunctionWaiting, telemetry.FunctionRestarts,
		telemetry.GPUBusy, telemetry.GPUMultiprocessors, telemetry.GPUTensor, telemetry.GPUReceived, telemetry.CertificateEnds, telemetry.CertificateEndsSoon}
	for id, m := range telemetry.Metrics {
		if !slices.Contains(others, telemetry.ID(id)) && !strings.Contains(page, "\n"+m.Prometheus()) {
			names = append(names, m.Prometheus())
		}
	}
	return names
}

// TestTelemetryPorts: each process has a port of its own, in an order that a person can tell.
func TestTelemetryPorts(t *testing.T) {
	for _, c := range []struct {
		flags service.TelemetryFlags
		i     int
		want  string
	}{
		{service.TelemetryFlags{}, 3, ""},
		{service.TelemetryFlags{Address: "127.0.0.1:9464"}, 0, "--telemetry 127.0.0.1:9464"},
		{service.TelemetryFlags{Address: "[::1]:9464", Pprof: "127.0.0.1:6060"}, 2, "--telemetry [::1]:9466 --pprof 127.0.0.1:6062"},
		{service.TelemetryFlags{Address: "127.0.0.1:0"}, 2, "--telemetry 127.0.0.1:0"},
		{service.TelemetryFlags{Address: "nowhere"}, 2, "--telemetry nowhere"},
	} {
		if got := strings.Join(c.flags.Of(c.i), " "); got != c.want {
			t.Errorf("process %d of %+v has %q, want %q", c.i, c.flags, got, c.want)
		}
	}
}

// TestTraces: of the steps that are traced, and of no others, there is a span for each part of the work, all in the trace of the step.
func TestTraces(t *testing.T) {
	var mu sync.Mutex
	spans := map[string]telemetry.Span{}
	board := telemetry.NewBoard(func(s telemetry.Span) {
		mu.Lock()
		defer mu.Unlock()
		spans[fmt.Sprintf("%d %s %s", s.Of.Step, s.Name, s.Who)] = s
	}, 5)
	r := recipe{"traced", mixed + "\nbatch: {sequence_length: 512, sequences: 8, microbatch_size: 2}\ntopology: {dp: 2}\n", 12, ""}
	job := parse(t, writeSources(t), r.text(resources{}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := service.Run(ctx, service.Options{Job: job, Loaders: 1, Constructors: 2, Telemetry: board}, func(ctx context.Context, address string) error {
		_, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: 12})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []uint64{0, 5} {
		whole := spans[fmt.Sprintf("%d step ", step)]
		for _, part := range []string{"step ", "plan ", "fetch constructor-0", "fetch constructor-1", "assemble constructor-0", "assemble constructor-1", "deliver dp=0 cp=0 pp=0 tp=0", "deliver dp=1 cp=0 pp=0 tp=0"} {
			s, ok := spans[fmt.Sprintf("%d %s", step, part)]
			if !ok || s.Of != whole.Of || s.Of.Identity != job.Identity() || s.Begin.Before(whole.Begin) || s.End.Before(s.Begin) {
				t.Errorf("step %d, %s: %+v, in %+v", step, part, s, whole)
			}
		}
	}
	for name, s := range spans {
		if s.Of.Step%5 != 0 {
			t.Errorf("there is a span of a step that is not traced: %s", name)
		}
	}
}
