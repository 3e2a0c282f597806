//go:build unix

package dev

import (
	"os/signal"
	"syscall"
)

// ignoreBackground lets a process that runs in the shell's background continue. Without it a read from the terminal
// would stop the process; with it the read fails.
func ignoreBackground() { signal.Ignore(syscall.SIGTTIN) }
