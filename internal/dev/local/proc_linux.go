package local

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel end the child when this process is killed. The child gets its own process
// group, so that Ctrl-C reaches only the parent, which then stops the child in order.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// ownSession starts the child in its own session, so that it outlives this process and its terminal.
func ownSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
