package export

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/millrace-data/millrace/internal/telemetry"
)

// openTraces makes what sends spans, if the environment asks for it.
func (x *Exporter) openTraces(ctx context.Context, env asked, about *resource.Resource) error {
	if !env.traces {
		return nil
	}
	exporter, err := traceExporter(ctx, env.tracesGRPC)
	if err != nil {
		return err
	}
	x.tracer = provider(trace.WithBatcher(exporter), about)
	return nil
}

// provider makes spans of every step that a role records: which ones these are is decided by then.
func provider(to trace.TracerProviderOption, about *resource.Resource) *trace.TracerProvider {
	return trace.NewTracerProvider(to, trace.WithResource(about), trace.WithSampler(trace.AlwaysSample()), trace.WithIDGenerator(numbers{}))
}

// spans takes the spans of the board; nil if nobody wants them.
func (x *Exporter) spans() func(telemetry.Span) {
	if x.tracer == nil {
		return nil
	}
	tracer := x.tracer.Tracer(scope)
	return func(s telemetry.Span) { send(tracer, s) }
}

// send gives OpenTelemetry a span that is done. All spans of a step are below its SpanStep, which the planner
// sends when all ranks are done with the step.
func send(tracer api.Tracer, s telemetry.Span) {
	ctx := context.WithValue(context.Background(), wanted{}, s)
	opts := []api.SpanStartOption{api.WithTimestamp(s.Begin), api.WithAttributes(
		attribute.Int64("millrace.step", int64(s.Of.Step)), attribute.Int64("millrace.generation", int64(s.Of.Generation)))}
	if s.Who != "" {
		opts = append(opts, api.WithAttributes(attribute.String("millrace.who", s.Who)))
	}
	for _, n := range s.Notes {
		opts = append(opts, api.WithAttributes(attributeOf(n)))
	}
	if s.Name == telemetry.SpanStep {
		opts = append(opts, api.WithNewRoot())
	} else {
		ctx = api.ContextWithRemoteSpanContext(ctx, api.NewSpanContext(api.SpanContextConfig{
			TraceID: s.Of.Trace(), SpanID: s.Of.Span(telemetry.SpanStep, ""), TraceFlags: api.FlagsSampled, Remote: true}))
	}
	_, span := tracer.Start(ctx, s.Name, opts...)
	span.End(api.WithTimestamp(s.End))
}

func attributeOf(n telemetry.Note) attribute.KeyValue {
	if v, ok := n.Value.(int64); ok {
		return attribute.Int64("millrace."+n.Key, v)
	}
	return attribute.String("millrace."+n.Key, fmt.Sprint(n.Value))
}

// wanted is the key of the span that is being made, in its context.
type wanted struct{}

// numbers names spans as the board has them.
type numbers struct{}

// NewIDs implements trace.IDGenerator.
func (numbers) NewIDs(ctx context.Context) (api.TraceID, api.SpanID) {
	s := ctx.Value(wanted{}).(telemetry.Span)
	return s.Of.Trace(), s.Of.Span(s.Name, s.Who)
}

// NewSpanID implements trace.IDGenerator.
func (numbers) NewSpanID(ctx context.Context, _ api.TraceID) api.SpanID {
	s := ctx.Value(wanted{}).(telemetry.Span)
	return s.Of.Span(s.Name, s.Who)
}
