//go:build !linux

package local

import "os/exec"

// dieWithParent can't be had here: a child outlives this process if that is killed.
func dieWithParent(*exec.Cmd) {}

// ownSession is not needed where the child only waits for the end of its input.
func ownSession(*exec.Cmd) {}
