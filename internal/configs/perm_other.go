//go:build !unix

package configs

import "os"

// tooOpen can't tell: this system has no file modes.
func tooOpen(string, os.FileInfo) string { return "" }
