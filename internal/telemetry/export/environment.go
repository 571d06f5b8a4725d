package export

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/millrace-data/millrace/internal/fault"
)

// asked is what the environment asks for. Endpoints, headers, certificates, intervals and limits are read
// by the exporters themselves.
type asked struct {
	metrics, traces         bool
	metricsGRPC, tracesGRPC bool
}

// environment reads the variables. Nothing is sent by OTLP unless one of them names an endpoint, or names
// otlp as the exporter: OpenTelemetry's own default would look for a collector on each machine.
func environment(get func(string) string) (a asked, err error) {
	if strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") {
		return a, nil
	}
	if a.metrics, a.metricsGRPC, err = signal(get, "METRICS"); err != nil {
		return a, err
	}
	a.traces, a.tracesGRPC, err = signal(get, "TRACES")
	return a, err
}

// signal says whether metrics or traces are sent by OTLP, and whether that is by gRPC.
func signal(get func(string) string, name string) (on, grpc bool, err error) {
	first := func(names ...string) (string, string) {
		for _, n := range names {
			if v := get(n); v != "" {
				return n, v
			}
		}
		return "", ""
	}
	variable, endpoint := first("OTEL_EXPORTER_OTLP_"+name+"_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	switch exporter := get("OTEL_" + name + "_EXPORTER"); exporter {
	case "otlp":
		on = true
	case "none", "prometheus": // the page of --telemetry is there in any case
	case "":
		on = endpoint != ""
	default:
		return false, false, fault.Userf("OTEL_%s_EXPORTER is %q: valid is otlp or none", name, exporter)
	}
	switch from, protocol := first("OTEL_EXPORTER_OTLP_"+name+"_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "", "http/protobuf":
	case "grpc":
		grpc = true
	default:
		return false, false, fault.Userf("%s is %q: valid is grpc or http/protobuf", from, protocol)
	}
	if on && endpoint != "" && !isEndpoint(endpoint, grpc) {
		return false, false, fault.Userf("%s is no URL of a collector: give http://HOST:PORT or https://HOST:PORT", variable)
	}
	return on, grpc, nil
}

// isEndpoint says whether exporters take a text as the address of a collector: what they cannot read they leave out, and
// send to this machine.
func isEndpoint(text string, grpc bool) bool {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return false
	}
	return (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" || grpc && u.Scheme == "unix"
}

// TraceEvery is how many steps there are to one that is traced, as OTEL_TRACES_SAMPLER and its argument say:
// steps are chosen by their number, so that all roles choose the same. 0: none.
func TraceEvery(get func(string) string) (uint64, error) {
	a, err := environment(get)
	if err != nil {
		return 0, err
	}
	every, err := sampler(get)
	if !a.traces {
		every = 0
	}
	return every, err
}

// sampler is what OTEL_TRACES_SAMPLER says.
func sampler(get func(string) string) (uint64, error) {
	switch name := get("OTEL_TRACES_SAMPLER"); strings.TrimPrefix(name, "parentbased_") {
	case "":
		return traceEvery, nil
	case "always_on":
		return 1, nil
	case "always_off":
		return 0, nil
	case "traceidratio":
		ratio, err := strconv.ParseFloat(cmp.Or(get("OTEL_TRACES_SAMPLER_ARG"), "1"), 64) // OpenTelemetry's default
		if err != nil || !(ratio >= 0) || ratio > 1 {
			return 0, fault.Userf("OTEL_TRACES_SAMPLER_ARG is %q: valid is a number from 0 to 1", get("OTEL_TRACES_SAMPLER_ARG"))
		}
		if ratio == 0 {
			return 0, nil
		}
		return uint64(max(math.Round(1/ratio), 1)), nil
	default:
		return 0, fault.Userf("OTEL_TRACES_SAMPLER is %q: valid is always_on, always_off or traceidratio, steps are chosen by their number", name)
	}
}

// traceEvery is the default: a step every few minutes of most trainings, of as many spans as there are ranks.
const traceEvery = 100

func metricExporter(ctx context.Context, grpc bool) (metric.Exporter, error) {
	if grpc {
		return otlpmetricgrpc.New(ctx)
	}
	return otlpmetrichttp.New(ctx)
}

func traceExporter(ctx context.Context, grpc bool) (trace.SpanExporter, error) {
	if grpc {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

// complaints logs what exporters cannot do, the same thing once a minute at most: a collector that is
// away is nothing that a job waits for.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex // guards last
	last time.Time
}

const complainEvery = time.Minute

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	late := c.last.IsZero() || time.Since(c.last) >= complainEvery
	if late {
		c.last = time.Now()
	}
	c.mu.Unlock()
	if late {
		c.log.Warn("telemetry was not sent; the job goes on", "err", err)
	}
}
