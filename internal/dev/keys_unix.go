//go:build unix

package dev

import (
	"os/signal"
	"syscall"
)

// ignoreBackground lets a process that a shell runs in the background go on: reading from its terminal would stop it, and
// fails instead.
func ignoreBackground() { signal.Ignore(syscall.SIGTTIN) }
