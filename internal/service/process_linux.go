package service

import "syscall"

// dieWithParent makes the kernel end a role when the process that started it
// dies without a word, so that nothing is left behind. The role hears of Ctrl-C in a
// terminal from that process alone, which may want to end a step first.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
