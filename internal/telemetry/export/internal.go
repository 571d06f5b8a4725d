package export

import (
	"errors"
	"log/slog"
	"net/url"

	"github.com/go-logr/logr"
)

// internal has OpenTelemetry's own lines in the log: it would print them beside it. What they have beside their text is left
// out, as it holds what variables hold.
type internal struct{ log *slog.Logger }

var _ logr.LogSink = internal{}

// warnings is OpenTelemetry's level of a warning; what is above it is for its own developers.
const warnings = 1

// Init implements logr.LogSink.
func (internal) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (internal) Enabled(level int) bool { return level <= warnings }

// Info implements logr.LogSink.
func (i internal) Info(level int, text string, _ ...any) {
	if i.Enabled(level) {
		i.log.Warn("telemetry: " + text)
	}
}

// Error implements logr.LogSink.
func (i internal) Error(err error, text string, _ ...any) {
	if of := (*url.Error)(nil); errors.As(err, &of) {
		err = of.Err // the rest is what could not be read
	}
	i.log.Warn("telemetry: "+text, "err", err)
}

// WithValues implements logr.LogSink.
func (i internal) WithValues(...any) logr.LogSink { return i }

// WithName implements logr.LogSink.
func (i internal) WithName(string) logr.LogSink { return i }
