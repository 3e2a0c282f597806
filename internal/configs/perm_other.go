//go:build !unix

package configs

import "os"

// tooOpen returns "", because this system has no file modes.
func tooOpen(string, os.FileInfo) string { return "" }
