//go:build !linux

package service

import "syscall"

// machineMemory is that of a small machine: this one does not say.
func machineMemory() int64 { return smallMachine }

func dieWithParent() *syscall.SysProcAttr { return nil }
