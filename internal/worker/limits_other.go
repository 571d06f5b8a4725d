//go:build !linux

package worker

import "syscall"

// canLimit says whether memoryOf knows, canIsolate whether attributes can take the network away.
const canLimit, canIsolate = false, false

// attributes put the fork server into a group of its own. It hears of its loader's end from
// the socket, and cannot be kept from the network.
func attributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// expendable is not known here.
func expendable(int) {}

func memoryOf(int) int64 { return 0 }

func peakOf(int) int64 { return 0 }

func privateOf(int) int64 { return 0 }
