package nvml

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Device is a GPU.
type Device struct {
	Index       int // among those of the machine, from 0 on
	Name        string
	UUID        string // as CUDA_VISIBLE_DEVICES takes it: GPU-...
	Total, Free int64  // bytes of its memory, when it was asked for
}

// Library is the driver's. Its methods are for one goroutine at a time.
type Library struct {
	driver  driver // nil: there is none
	devices []Device
}

// driver is what is asked of the driver; the real one is in builds with cgo and the tag nvml, and tests have another.
// Devices have numbers from 0 on.
type driver interface {
	count() (int, error)
	device(i int) (Device, error)
	// utilisation is the share of the last second, or less, in which a kernel ran, 0 to 1.
	utilisation(i int) (float64, error)
	// received is bytes a second over PCIe to the device. It takes 20 ms, in which nothing is computed here.
	received(i int) (float64, error)
	// profile is what GPM counted since the last call: nil where the device or the driver has no GPM, or at the first call.
	profile(i int) (*Profile, error)
	close()
}

// Open loads the library. That it is not there is no error: there are no GPUs then.
func Open(log *slog.Logger) *Library {
	d, err := load()
	if err != nil {
		log.Info("no GPUs are used: the NVIDIA management library cannot be loaded", "error", err)
		return &Library{}
	}
	return open(d, log)
}

func open(d driver, log *slog.Logger) *Library {
	l := &Library{driver: d}
	n, err := d.count()
	if err != nil {
		log.Warn("no GPUs are used: the NVIDIA driver does not say how many there are", "error", err)
		return l
	}
	for i := range n {
		device, err := d.device(i)
		if err != nil {
			log.Warn("a GPU is not used", "gpu", i, "error", err)
			continue
		}
		device.Index = i
		l.devices = append(l.devices, device)
	}
	return l
}

// Devices are the GPUs of the machine, with the memory that they had free when the library was opened; none is an
// empty list.
func (l *Library) Devices() []Device { return append([]Device(nil), l.devices...) }

// Close gives the library back.
func (l *Library) Close() {
	if l.driver != nil {
		l.driver.close()
		l.driver = nil
	}
}

// Profile is what GPM, the counters of Hopper and later, say of the time between two samples.
type Profile struct {
	SM     float64 // share of the time in which multiprocessors worked, 0 to 1
	Tensor float64 // in which their tensor cores did
}

// Sample is what a GPU did at a time.
type Sample struct {
	Device   int // Device.Index
	At       time.Time
	Busy     float64  // share of the last second or less in which a kernel ran, 0 to 1
	Received float64  // bytes a second over PCIe to the device, the driver's sample of 20 ms
	Profile  *Profile // nil: there is none, as on devices before Hopper, and of the first sample
	Err      error    // of what could not be read, which is 0 then
}

// Every is how often GPUs are sampled: what a person, or a controller that decides by the minute, needs.
const Every = time.Second

// Samples calls take with a sample of each GPU, every so often (0: Every), until ctx ends. Without GPUs it returns at once.
func (l *Library) Samples(ctx context.Context, every time.Duration, take func([]Sample)) {
	if len(l.devices) == 0 {
		return
	}
	ticks := time.NewTicker(cmp.Or(every, Every))
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			take(l.sample(time.Now()))
		}
	}
}

// sample asks for all that is known of each GPU now.
func (l *Library) sample(now time.Time) (all []Sample) {
	for _, d := range l.devices {
		s := Sample{Device: d.Index, At: now}
		failed := func(what string, err error) {
			if err != nil && s.Err == nil {
				s.Err = fmt.Errorf("reading %s of GPU %d: %w", what, d.Index, err)
			}
		}
		var err error
		s.Busy, err = l.driver.utilisation(d.Index)
		failed("the utilisation", err)
		s.Received, err = l.driver.received(d.Index)
		failed("the PCIe traffic", err)
		s.Profile, err = l.driver.profile(d.Index)
		failed("the GPM counters", err)
		all = append(all, s)
	}
	return all
}
