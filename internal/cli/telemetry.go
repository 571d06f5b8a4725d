package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/telemetry"
	"github.com/millrace-data/millrace/internal/telemetry/export"
	"github.com/millrace-data/millrace/jobspec"
)

// telemetryFlags are what the verbs that start roles have in common.
type telemetryFlags struct {
	Telemetry string `help:"Address of the pages /metrics (Prometheus), /healthz and /readyz. Off loopback it takes --tls-* or --insecure. With --processes the planner has it, and each loader and constructor one port further on. OTEL_* variables send metrics and traces by OTLP." placeholder:"HOST:PORT"`
	Pprof     string `help:"Address of Go's profiles, /debug/pprof/: on loopback only. Ports as of --telemetry." placeholder:"HOST:PORT"`
}

// show opens what shows the roles of this process, if the flags or the environment ask for it. close ends
// that, and logs what the end could not do.
func (f *telemetryFlags) show(ctx context.Context, role, id string, sec rpc.Security, log *slog.Logger) (board *telemetry.Board, close func(), err error) {
	x, board, err := export.Open(ctx, export.Options{
		Address: f.Telemetry, Pprof: f.Pprof, Security: sec, Role: role, ID: id, Version: version(debug.ReadBuildInfo()), Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	return board, func() {
		if err := x.Close(); err != nil {
			log.Warn("ending the telemetry pages", "err", err)
		}
	}, nil
}

// logFormat is how the lines of the log are written.
type logFormat string

const (
	logText logFormat = "text"
	logJSON logFormat = "json"
)

// handler writes a log to w.
func (f logFormat) handler(w io.Writer, level slog.Level) slog.Handler {
	if f == logJSON {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	}
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})
}

// report prints the error that ends the program in the log's format, and returns its exit code.
func (f logFormat) report(stderr io.Writer, err error) int {
	if f != logJSON || err == nil {
		return report(stderr, err)
	}
	code := report(io.Discard, err)
	slog.New(f.handler(stderr, slog.LevelError)).Error(fmt.Sprint(err), "class", fault.ClassOf(err).String(), "exit_code", code)
	return code
}

// warn prints a finding that stops nothing in the log's format.
func (f logFormat) warn(stderr io.Writer, found jobspec.Finding) {
	if f != logJSON {
		fmt.Fprintln(stderr, found)
		return
	}
	slog.New(f.handler(stderr, slog.LevelWarn)).Warn(found.String())
}
