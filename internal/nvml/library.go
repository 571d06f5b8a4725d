//go:build cgo && nvml

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// library is the driver's library, which go-nvml loads with dlopen.
type library struct {
	devices []nvml.Device
	last    []nvml.GpmSample // of each device that has GPM; nil: none was taken yet
	gpm     []bool
}

func load() (driver, error) {
	if r := nvml.Init(); r != nvml.SUCCESS {
		return nil, failure(r)
	}
	return &library{}, nil
}

// failure is the error of a return value; nil if it is none.
func failure(r nvml.Return) error {
	if r == nvml.SUCCESS {
		return nil
	}
	return fmt.Errorf("NVML: %s", nvml.ErrorString(r))
}

func (l *library) count() (int, error) {
	n, r := nvml.DeviceGetCount()
	if r != nvml.SUCCESS {
		return 0, failure(r)
	}
	l.devices, l.last, l.gpm = make([]nvml.Device, n), make([]nvml.GpmSample, n), make([]bool, n)
	return n, nil
}

func (l *library) device(i int) (d Device, err error) {
	handle, r := nvml.DeviceGetHandleByIndex(i)
	if r != nvml.SUCCESS {
		return d, failure(r)
	}
	l.devices[i] = handle
	if d.Name, r = handle.GetName(); r != nvml.SUCCESS {
		return d, failure(r)
	}
	if d.UUID, r = handle.GetUUID(); r != nvml.SUCCESS {
		return d, failure(r)
	}
	memory, r := handle.GetMemoryInfo()
	if r != nvml.SUCCESS {
		return d, failure(r)
	}
	d.Total, d.Free = int64(memory.Total), int64(memory.Free)
	support, r := nvml.GpmQueryDeviceSupport(handle)
	l.gpm[i] = r == nvml.SUCCESS && support.IsSupportedDevice != 0
	return d, nil
}

func (l *library) utilisation(i int) (float64, error) {
	u, r := l.devices[i].GetUtilizationRates()
	return float64(u.Gpu) / 100, failure(r)
}

func (l *library) received(i int) (float64, error) {
	kb, r := l.devices[i].GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
	return float64(kb) * 1000, failure(r)
}

func (l *library) profile(i int) (*Profile, error) {
	if !l.gpm[i] {
		return nil, nil
	}
	now, r := nvml.GpmSampleAlloc()
	if r != nvml.SUCCESS {
		return nil, failure(r)
	}
	if r := nvml.GpmSampleGet(l.devices[i], now); r != nvml.SUCCESS {
		now.Free()
		return nil, failure(r)
	}
	before := l.last[i]
	l.last[i] = now
	if before == nil {
		return nil, nil
	}
	defer before.Free()
	get := nvml.GpmMetricsGetType{Version: nvml.GPM_METRICS_GET_VERSION, NumMetrics: 2, Sample1: before, Sample2: now}
	get.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
	get.Metrics[1].MetricId = uint32(nvml.GPM_METRIC_ANY_TENSOR_UTIL)
	if r := nvml.GpmMetricsGet(&get); r != nvml.SUCCESS {
		return nil, failure(r)
	}
	for _, m := range get.Metrics[:2] {
		if r := nvml.Return(m.NvmlReturn); r != nvml.SUCCESS {
			return nil, failure(r)
		}
	}
	return &Profile{SM: get.Metrics[0].Value / 100, Tensor: get.Metrics[1].Value / 100}, nil
}

func (l *library) close() {
	for _, s := range l.last {
		if s != nil {
			s.Free()
		}
	}
	nvml.Shutdown()
}
