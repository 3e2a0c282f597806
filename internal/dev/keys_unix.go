//go:build unix

package dev

import (
	"os/signal"
	"syscall"
)

// ignoreBackground ignores SIGTTIN, so that the process can run in the background of a shell. A read from the
// terminal would then stop the process; with the signal ignored, only the read fails.
func ignoreBackground() { signal.Ignore(syscall.SIGTTIN) }
