//go:build !linux

package service

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
