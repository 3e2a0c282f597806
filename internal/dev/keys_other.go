//go:build !unix

package dev

// ignoreBackground is not needed here.
func ignoreBackground() {}
