package service

import (
	"net"
	"strconv"
)

// TelemetryFlags are the addresses at which processes show themselves: the planner at these, and each
// loader, shadow and constructor after it one port further on. Port 0 is a free one for each.
type TelemetryFlags struct {
	Address string // --telemetry; "": none
	Pprof   string // --pprof
}

// Of are the flags of process i.
func (f TelemetryFlags) Of(i int) (flags []string) {
	if f.Address != "" {
		flags = append(flags, "--telemetry", furtherOn(f.Address, i))
	}
	if f.Pprof != "" {
		flags = append(flags, "--pprof", furtherOn(f.Pprof, i))
	}
	return flags
}

// furtherOn is an address n ports further on. What is no address is left to whoever opens it.
func furtherOn(address string, n int) string {
	host, port, err := net.SplitHostPort(address)
	number, bad := strconv.Atoi(port)
	if err != nil || bad != nil || number == 0 {
		return address
	}
	return net.JoinHostPort(host, strconv.Itoa(number+n))
}
