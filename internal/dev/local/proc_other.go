//go:build !linux

package local

import "os/exec"

// dieWithParent does nothing on this system: a child outlives a parent that is killed.
func dieWithParent(*exec.Cmd) {}

// ownSession does nothing on this system: the child only waits for the end of its input.
func ownSession(*exec.Cmd) {}
