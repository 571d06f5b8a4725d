package nvml

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// machine is a driver that a test makes up: there is no GPU where these tests run.
type machine struct {
	devices []Device
	broken  int // the device that says nothing; -1: none
	asked   int // profiles
	closed  bool
}

var errBroken = errors.New("it has fallen off the bus")

func (m *machine) count() (int, error) {
	if m.devices == nil {
		return 0, errBroken
	}
	return len(m.devices), nil
}

func (m *machine) device(i int) (Device, error) {
	if i == m.broken {
		return Device{}, errBroken
	}
	return m.devices[i], nil
}

func (m *machine) utilisation(i int) (float64, error) { return 0.25 * float64(i), nil }

func (m *machine) received(i int) (float64, error) {
	if i == 2 {
		return 0, errBroken
	}
	return 1e9, nil
}

func (m *machine) profile(i int) (*Profile, error) {
	if m.asked++; i == 0 || m.asked <= len(m.devices) {
		return nil, nil
	}
	return &Profile{0.5, 0.125}, nil
}

func (m *machine) close() { m.closed = true }

// TestDevices: a GPU that does not answer is left out, and said to be; the others keep their numbers.
func TestDevices(t *testing.T) {
	var log bytes.Buffer
	m := &machine{devices: []Device{{Name: "a", UUID: "GPU-a", Total: 80, Free: 79}, {Name: "b"}, {Name: "c", UUID: "GPU-c"}}, broken: 1}
	l := open(m, slog.New(slog.NewTextHandler(&log, nil)))
	want := []Device{{0, "a", "GPU-a", 80, 79}, {2, "c", "GPU-c", 0, 0}}
	if got := l.Devices(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if !strings.Contains(log.String(), "gpu=1") || strings.Count(log.String(), "\n") != 1 {
		t.Error(log.String())
	}
	l.Close()
	if !m.closed {
		t.Error("the driver is not closed")
	}
	if l := open(&machine{}, slog.New(slog.DiscardHandler)); len(l.Devices()) != 0 {
		t.Errorf("a driver without devices: %+v", l.Devices())
	}
}

// TestAbsent: without the library there are no GPUs, and one line in the log.
func TestAbsent(t *testing.T) {
	var log bytes.Buffer
	l := Open(slog.New(slog.NewTextHandler(&log, nil)))
	defer l.Close()
	if len(l.Devices()) > 0 {
		t.Skip("this machine has GPUs")
	}
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("the log is %q", log.String())
	}
	l.Samples(t.Context(), time.Hour, func([]Sample) { t.Error("a sample of nothing") }) // it returns at once
}

// TestWatch: the last samples are kept, of GPUs that can be read.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		if all := w.Last(); all != nil {
			t.Errorf("%+v before the first second", all)
		}
		ctx, stop := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer stop()
		began := time.Now()
		w.Run(ctx, open(&machine{devices: make([]Device, 3), broken: -1}, slog.New(slog.DiscardHandler)))
		all := w.Last()
		if len(all) != 2 || all[1].Device != 1 || all[1].Busy != 0.25 || all[1].Profile == nil || !all[0].At.Equal(began.Add(3*time.Second)) {
			t.Errorf("%+v", all)
		}
	})
}

// BenchmarkSample is what is done here for a sample of eight GPUs, without the driver.
func BenchmarkSample(b *testing.B) {
	l := open(&machine{devices: make([]Device, 8), broken: -1}, slog.New(slog.DiscardHandler))
	for b.Loop() {
		l.sample(time.Now())
	}
}

// TestSamples: each GPU is sampled every second, and what cannot be read takes nothing else away.
func TestSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(&machine{devices: make([]Device, 3), broken: -1}, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		began := time.Now()
		var all [][]Sample
		l.Samples(ctx, 0, func(s []Sample) {
			if all = append(all, s); len(all) == 2 {
				stop()
			}
		})
		if len(all) != 2 || time.Since(began) != 2*time.Second {
			t.Fatalf("%d samples in %v", len(all), time.Since(began))
		}
		for i, s := range all[1] {
			if s.Device != i || s.Busy != 0.25*float64(i) || (s.Profile == nil) != (i == 0) || (s.Err == nil) != (i < 2) || !s.At.Equal(began.Add(2*time.Second)) {
				t.Errorf("GPU %d: %+v", i, s)
			}
		}
		if all[0][1].Profile != nil || all[1][2].Err.Error() != "reading the PCIe traffic of GPU 2: it has fallen off the bus" {
			t.Errorf("%+v", all)
		}
	})
}
