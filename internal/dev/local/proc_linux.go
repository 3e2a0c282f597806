package local

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel end the child when this process is killed. A terminal's SIGINT goes only to the
// parent, which ends the child at the right time.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// ownSession lets the child outlive this process and its terminal.
func ownSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
