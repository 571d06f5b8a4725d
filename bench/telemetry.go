package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// telemetrySteps are measured of a run: some seconds.
const telemetrySteps = 4 * clockSteps

// benchTelemetry measures what it costs that a service shows itself: tokenized Parquet to 8 ranks, in turns without and with
// steps traced as by default, spans and metrics sent to a collector, these each second, and its page read each second.
func benchTelemetry(ctx context.Context, cfg *config) error {
	dir, err := writePlainTokens(ctx, cfg)
	if err != nil {
		return err
	}
	e, err := newEndToEnd(ctx, cfg, "telemetry", dir, "input_ids", "tokens: input_ids")
	if err != nil {
		return err
	}
	to := &collector{}
	if err := to.open(); err != nil {
		return err
	}
	defer to.server.Close()
	results := []result{{Name: "off"}, {Name: "on"}}
	for range cfg.runs {
		for i := range results {
			s, err := e.shown(ctx, to, i == 1)
			if err != nil {
				return fmt.Errorf("telemetry %s: %w", results[i].Name, err)
			}
			results[i].Scenario, results[i].Unit = "telemetry", "M tokens/s"
			results[i].add(s)
		}
	}
	cfg.report.title("What telemetry costs: tokenized Parquet to 8 ranks, %d runs in turns", cfg.runs)
	if err := cfg.report.table(results, allCPU, idleCores); err != nil {
		return err
	}
	off, on := &results[0], &results[1]
	rate, cpu := ratiosOf(on.Values, off.Values), ratiosOf(on.Extra[allCPU], off.Extra[allCPU])
	cfg.report.note("On over off, median of the turns: rate %.3f, CPU %.3f. The collector got %d spans and %d sets of metrics, the page was read %d times.",
		median(rate), median(cpu), to.spans.Load(), to.metrics.Load(), to.pages.Load())
	if to.spans.Load() == 0 || to.metrics.Load() == 0 || to.pages.Load() == 0 {
		return errors.New("something of telemetry was never sent, so nothing was measured of it")
	}
	return nil
}

// ratiosOf are those of each turn.
func ratiosOf(a, b []float64) (ratios []float64) {
	for i := range min(len(a), len(b)) {
		ratios = append(ratios, a[i]/b[i])
	}
	return ratios
}

// shown measures a service that shows itself, or does not.
func (e *endToEnd) shown(ctx context.Context, to *collector, on bool) (sample, error) {
	args := serveArgs{Spec: e.spec, Telemetry: on}
	for name, value := range map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + to.address, "OTEL_METRIC_EXPORT_INTERVAL": "1000"} {
		if !on {
			value = ""
		}
		if err := os.Setenv(name, value); err != nil {
			return sample{}, err
		}
	}
	service, err := start(ctx, "serve", args)
	if err != nil {
		return sample{}, err
	}
	defer service.stop()
	a := consumeArgs{Spec: e.spec, Warm: warmSteps, Steps: telemetrySteps, Service: service.pid()}
	if err := service.receive(&a.Address); err != nil {
		return sample{}, err
	}
	if on {
		var page string
		if err := service.receive(&page); err != nil {
			return sample{}, err
		}
		reading, stop := context.WithCancel(ctx)
		defer stop()
		go to.read(reading, "http://"+page+"/metrics")
	}
	ranks, err := start(ctx, "consume", a)
	if err != nil {
		return sample{}, err
	}
	defer ranks.stop()
	var got consumed
	err = ranks.receive(&got)
	return sampleOf(got), err
}

// collector takes what a service sends by OTLP, and reads its page as Prometheus does.
type collector struct {
	address               string
	server                http.Server
	spans, metrics, pages atomic.Int64
}

func (c *collector) open() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.address = l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/traces", func(w http.ResponseWriter, r *http.Request) {
		var got coltrace.ExportTraceServiceRequest
		c.take(w, r, &got)
		for _, of := range got.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				c.spans.Add(int64(len(scope.Spans)))
			}
		}
	})
	mux.HandleFunc("/v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		var got colmetrics.ExportMetricsServiceRequest
		c.take(w, r, &got)
		c.metrics.Add(int64(len(got.ResourceMetrics)))
	})
	c.server.Handler = mux
	go c.server.Serve(l) // until Close
	return nil
}

// take reads a message. What is none is answered as wrong, and counts as nothing.
func (c *collector) take(w http.ResponseWriter, r *http.Request, into proto.Message) {
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(raw, into)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// read reads a page each second until ctx ends.
func (c *collector) read(ctx context.Context, url string) {
	for ctx.Err() == nil {
		if resp, err := http.Get(url); err == nil {
			if n, err := io.Copy(io.Discard, resp.Body); err == nil && n > 0 && resp.StatusCode == http.StatusOK {
				c.pages.Add(1)
			}
			resp.Body.Close()
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
