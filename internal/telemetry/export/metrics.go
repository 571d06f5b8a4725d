package export

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	bridge "go.opentelemetry.io/otel/exporters/prometheus"
	api "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/millrace-data/millrace/internal/telemetry"
)

// scope names who measures.
const scope = "github.com/millrace-data/millrace"

// openMetrics makes the instruments and whoever reads them, and returns the Prometheus page.
func (x *Exporter) openMetrics(ctx context.Context, env asked, about *resource.Resource) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	page, err := bridge.New(bridge.WithRegisterer(registry), bridge.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes), bridge.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	opts := []metric.Option{metric.WithResource(about), metric.WithReader(page), metric.WithCardinalityLimit(mostSeries)}
	if env.metrics {
		exporter, err := metricExporter(ctx, env.metricsGRPC)
		if err != nil {
			return nil, err
		}
		opts = append(opts, metric.WithReader(metric.NewPeriodicReader(exporter)))
	}
	x.meters = metric.NewMeterProvider(opts...)
	if err := x.instruments(x.meters.Meter(scope)); err != nil {
		return nil, err
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: mostScrapes}), nil
}

// mostScrapes at a time are answered: a page asks each role once.
const mostScrapes = 4

// instruments makes an instrument of each metric, and has all parts of the board asked at each collection.
func (x *Exporter) instruments(m api.Meter) error {
	all := make([]api.Observable, len(telemetry.Metrics))
	for id, of := range telemetry.Metrics {
		var err error
		if of.Kind == telemetry.Counter {
			all[id], err = m.Float64ObservableCounter(of.Name, api.WithUnit(of.Unit), api.WithDescription(of.Help))
		} else {
			all[id], err = m.Float64ObservableGauge(of.Name, api.WithUnit(of.Unit), api.WithDescription(of.Help))
		}
		if err != nil {
			return err
		}
	}
	_, err := m.RegisterCallback(func(_ context.Context, to api.Observer) error {
		observe := func(id telemetry.ID, value float64, labels ...string) {
			var attrs []attribute.KeyValue
			for i, key := range telemetry.Metrics[id].Labels {
				attrs = append(attrs, attribute.String(key, labels[i]))
			}
			to.ObserveFloat64(all[id].(api.Float64Observable), value, api.WithAttributes(attrs...))
		}
		process(observe)
		for _, p := range x.board.Parts() {
			if p.Metrics != nil {
				p.Metrics(observe)
			}
		}
		return nil
	}, all...)
	return err
}
