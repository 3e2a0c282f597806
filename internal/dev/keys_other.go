//go:build !unix

package dev

// ignoreBackground does nothing: this system never stops a background process that reads the terminal.
func ignoreBackground() {}
