//go:build unix

package configs

import (
	"fmt"
	"os"
)

// tooOpen tells what is wrong if others than its owner can read or change a file with a secret.
func tooOpen(path string, perm os.FileMode) string {
	if perm&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("%s is open to others than its owner (mode %04o): chmod 600 %s", path, perm, path)
}
