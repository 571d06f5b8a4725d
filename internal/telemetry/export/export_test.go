package export

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// open opens an exporter, and closes it at the end of the test.
func open(t *testing.T, opts Options) (*Exporter, *telemetry.Board) {
	t.Helper()
	x, board, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x, board
}

func get(t *testing.T, x *Exporter, path string) (code int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + x.Addresses()[0].String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestOff: without flags and variables there is no exporter and no board, and both may be used.
func TestOff(t *testing.T) {
	x, board := open(t, Options{})
	if x != nil || board != nil {
		t.Fatalf("there are %v and %v", x, board)
	}
	board.Add(telemetry.Part{Role: "planner"})()
}

// TestPages: metrics have the names that the table says, and readiness names who waits for what.
func TestPages(t *testing.T) {
	x, board := open(t, Options{Address: "127.0.0.1:0", Role: "loader", ID: "l0", Version: "v1"})
	if code, body := get(t, x, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no role") {
		t.Errorf("without a role: %d %q", code, body)
	}
	why := "a planner at nowhere"
	board.Add(telemetry.Part{
		Role: "loader", ID: "l0", Ready: func() string { return why },
		Metrics: func(put telemetry.Observe) {
			for id, m := range telemetry.Metrics {
				if strings.HasPrefix(m.Name, "millrace.") {
					put(telemetry.ID(id), float64(id)+1, m.Labels...)
				}
			}
		},
	})
	if code, body := get(t, x, "/readyz"); code != http.StatusServiceUnavailable || body != "loader l0 waits for a planner at nowhere\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	why = ""
	if code, body := get(t, x, "/readyz"); code != http.StatusOK || body != "ready\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	if code, body := get(t, x, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	_, body := get(t, x, "/metrics")
	for _, m := range telemetry.Metrics {
		if !strings.Contains(body, "# TYPE "+m.Prometheus()+" "+string(m.Kind)+"\n") {
			t.Errorf("the page has no %s %s", m.Kind, m.Prometheus())
		}
	}
	if want := `millrace_rank_step{constructor="constructor",rank="rank"}`; !strings.Contains(body, want) {
		t.Errorf("the page has no %s:\n%s", want, body)
	}
	if code, _ := get(t, x, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles are beside the metrics: %d", code)
	}
}

// TestPprof: profiles are for this machine only, and for requests that name it.
func TestPprof(t *testing.T) {
	x, _ := open(t, Options{Pprof: "127.0.0.1:0"})
	if code, body := get(t, x, "/debug/pprof/goroutine?debug=1"); code != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("%d %q", code, body)
	}
	req, err := http.NewRequest("GET", "http://"+x.Addresses()[0].String()+"/debug/pprof/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "attacker.example"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a request for another host: %d", resp.StatusCode)
	}
}

// TestRefused: what is wrong with options and variables is said, with what would be valid.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		opts Options
		env  [2]string
		says string
	}{
		"open to the network":     {Options{Address: "0.0.0.0:0"}, [2]string{}, "--tls-cert"},
		"no address":              {Options{Address: "9464"}, [2]string{}, "use HOST:PORT"},
		"profiles for all":        {Options{Pprof: "0.0.0.0:0"}, [2]string{}, "give 127.0.0.1:PORT"},
		"profiles, by --insecure": {Options{Pprof: "0.0.0.0:0", Security: rpc.Security{Insecure: true}}, [2]string{}, "this machine only"},
		"half of TLS":             {Options{Address: "0.0.0.0:0", Security: rpc.Security{CertFile: "x"}}, [2]string{}, "all three"},
		"exporter":                {Options{}, [2]string{"OTEL_METRICS_EXPORTER", "zipkin"}, "valid is otlp or none"},
		"sampler":                 {Options{Address: "127.0.0.1:0"}, [2]string{"OTEL_TRACES_SAMPLER", "jaeger_remote"}, "valid is always_on"},
		"an endpoint of colons":   {Options{}, [2]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "::::"}, "OTEL_EXPORTER_OTLP_ENDPOINT is no URL of a collector"},
		"one without a scheme":    {Options{}, [2]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "localhost:4317"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is no URL"},
		"one without a host":      {Options{}, [2]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http:///v1/metrics"}, "give http://HOST:PORT"},
		"protocol":                {Options{}, [2]string{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"}, "valid is grpc or http/protobuf"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.env[0] != "" {
				t.Setenv(c.env[0], c.env[1])
			}
			_, board, err := Open(t.Context(), c.opts)
			if err == nil || board != nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want a user's error that says %q", err, c.says)
			}
		})
	}
}

// TestSamplerIsRefusedFirst: a sampler of another name ends the process, and no line of the log says before that the job goes on.
func TestSamplerIsRefusedFirst(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_TRACES_SAMPLER", "foo")
	var log strings.Builder
	_, _, err := Open(t.Context(), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if fault.ClassOf(err) != fault.User || err == nil || log.Len() > 0 {
		t.Errorf("refused with %v, after the log said %q", err, &log)
	}
}

// TestEnvironment: the standard variables say what is sent, and which steps are traced.
func TestEnvironment(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, c := range map[string]struct {
		env   map[string]string
		want  asked
		every uint64
	}{
		"nothing":         {nil, asked{}, 0},
		"an endpoint":     {map[string]string{endpoint: "http://c:4318"}, asked{metrics: true, traces: true}, traceEvery},
		"one nobody asks": {map[string]string{endpoint: "::::", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}, asked{}, 0},
		"a socket": {map[string]string{endpoint: "unix:///run/otel.sock", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			asked{metrics: true, traces: true, metricsGRPC: true, tracesGRPC: true}, traceEvery},
		"one signal's":    {map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/v1/metrics"}, asked{metrics: true}, 0},
		"the default one": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, asked{traces: true}, traceEvery},
		"no traces":       {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, asked{metrics: true}, 0},
		"disabled":        {map[string]string{endpoint: "http://c:4318", "OTEL_SDK_DISABLED": "true"}, asked{}, 0},
		"gRPC": {map[string]string{endpoint: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
			asked{metrics: true, traces: true, metricsGRPC: true}, traceEvery},
		"all steps":    {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_SAMPLER": "parentbased_always_on"}, asked{metrics: true, traces: true}, 1},
		"one in forty": {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.025"}, asked{metrics: true, traces: true}, 40},
		"no ratio":     {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}, asked{metrics: true, traces: true}, 1},
		"no step":      {map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_SAMPLER": "always_off"}, asked{metrics: true, traces: true}, 0},
	} {
		lookup := func(k string) string { return c.env[k] }
		got, err := environment(lookup)
		every, err2 := TraceEvery(lookup)
		if err != nil || err2 != nil || got != c.want || every != c.every {
			t.Errorf("%s: %+v, every %d (%v, %v), want %+v, every %d", name, got, every, err, err2, c.want, c.every)
		}
	}
	for _, arg := range []string{"2", "-1", "NaN", "half"} {
		_, err := TraceEvery(func(k string) string {
			return map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": arg}[k]
		})
		if fault.ClassOf(err) != fault.User || err == nil {
			t.Errorf("the ratio %q: %v", arg, err)
		}
	}
}

// collector takes what is sent by OTLP over HTTP.
type collector struct {
	mu      sync.Mutex
	metrics map[string]bool
	spans   map[string]string // parents, by name and number
	headers []string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, r.Header.Get("Authorization"))
	var m colmetrics.ExportMetricsServiceRequest
	var s coltrace.ExportTraceServiceRequest
	if r.URL.Path == "/v1/metrics" && proto.Unmarshal(body, &m) == nil {
		for _, of := range m.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			c.metrics[of.Name] = true
		}
	}
	if r.URL.Path == "/v1/traces" && proto.Unmarshal(body, &s) == nil {
		for _, of := range s.ResourceSpans[0].ScopeSpans[0].Spans {
			c.spans[of.Name+" "+string(of.TraceId)+string(of.SpanId)] = string(of.ParentSpanId)
		}
	}
}

// TestOTLP: metrics and spans reach a collector, under the numbers that the step has; what the headers hold
// is in no line of the log, though the collector is away by the end.
func TestOTLP(t *testing.T) {
	c := &collector{metrics: map[string]bool{}, spans: map[string]string{}}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	var log bytes.Buffer
	x, board, err := Open(t.Context(), Options{Role: "planner", Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	step := telemetry.StepID{Generation: 1, Step: 200}
	now := time.Now()
	if board.TraceEvery() != traceEvery || !board.Traces(200, 100) {
		t.Fatal("the step is not traced")
	}
	board.Record(telemetry.Span{Of: step, Name: telemetry.SpanFetch, Who: "constructor-0", Begin: now, End: now.Add(time.Second), Notes: []telemetry.Note{{Key: "bytes", Value: int64(3)}}})
	board.Record(telemetry.Span{Of: step, Name: telemetry.SpanStep, Begin: now, End: now.Add(2 * time.Second)})
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	trace, root, fetch := step.Trace(), step.Span(telemetry.SpanStep, ""), step.Span(telemetry.SpanFetch, "constructor-0")
	if parent, ok := c.spans["step "+string(trace[:])+string(root[:])]; !ok || parent != "" {
		t.Errorf("the step's span is not there, or below %q: %q", parent, c.spans)
	}
	if parent := c.spans["fetch "+string(trace[:])+string(fetch[:])]; parent != string(root[:]) {
		t.Errorf("the fetch is not below the step: %q", c.spans)
	}
	if !c.metrics["process.cpu.time"] || len(c.headers) == 0 || c.headers[0] != "Bearer hush" {
		t.Errorf("metrics %v came with headers %q", c.metrics, c.headers)
	}
	server.Close()
	away, _, err := Open(t.Context(), Options{Role: "planner", Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := away.Close(); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, "did not reach") || strings.Contains(text, "hush") {
		t.Errorf("the log says %q", text)
	}
}

// TestInternal: what OpenTelemetry says of variables that it cannot read is in the log, once, without what they hold.
func TestInternal(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hush%zz")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5")
	var log bytes.Buffer
	x, _, err := Open(t.Context(), Options{Role: "planner", Log: slog.New(slog.NewJSONHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, `"level":"WARN","msg":"telemetry: `) || strings.Contains(text, "hush") {
		t.Errorf("the log says %s", text)
	}
}
