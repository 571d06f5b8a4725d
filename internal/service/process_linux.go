package service

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// machineMemory is the memory of this machine in bytes; a small machine's if it does not say.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return smallMachine
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// dieWithParent makes the kernel end a role when the process that started it
// dies without a word, so that nothing is left behind. The role hears of Ctrl-C in a
// terminal from that process alone, which may want to end a step first.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
