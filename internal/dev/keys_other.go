//go:build !unix

package dev

// ignoreBackground does nothing on this system, which does not need it.
func ignoreBackground() {}
