//go:build !linux

package rig

import "syscall"

// dieWithParent can do nothing here: processes outlive a rig that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
