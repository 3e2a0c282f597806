//go:build linux || darwin

package app

import "syscall"

// diskSpace returns the space that an ordinary user may still write on the disk of a path, and the disk's size, in
// bytes.
func diskSpace(path string) (free, size uint64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0, 0, err
	}
	block := uint64(fs.Bsize)
	return fs.Bavail * block, fs.Blocks * block, nil
}
