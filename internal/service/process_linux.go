package service

import "syscall"

// dieWithParent makes the kernel end a role when the process that started it
// dies without a word, so that nothing is left behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
