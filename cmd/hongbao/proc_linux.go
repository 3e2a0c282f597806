package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel end the child when this process is killed.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
