//go:build !linux

package main

import "os/exec"

// dieWithParent can't be had here: a child outlives this process if that is killed.
func dieWithParent(*exec.Cmd) {}
