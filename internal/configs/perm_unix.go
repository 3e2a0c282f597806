//go:build unix

package configs

import (
	"fmt"
	"os"
	"slices"
	"syscall"
)

// tooOpen returns what is wrong with the owner or the mode of a file with a secret; "" if nothing is wrong.
func tooOpen(path string, info os.FileInfo) string {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Sprintf("%s has no owner that could be checked: keep it in a plain file system", path)
	}
	groups, err := os.Getgroups()
	if err != nil {
		return fmt.Sprintf("%s can't be checked: this process can't read its own groups: %v", path, err)
	}
	file := fileOwner{perm: info.Mode().Perm(), user: int(owner.Uid), group: int(owner.Gid)}
	return file.openTo(path, os.Geteuid(), append(groups, os.Getegid()))
}

type fileOwner struct {
	perm        os.FileMode
	user, group int
}

// openTo applies PostgreSQL's rule for ssl_key_file. If user us owns the file, no other user may have access. If root
// owns it, one of the given groups may also read it, because Kubernetes mounts secrets like that.
func (f fileOwner) openTo(path string, us int, groups []int) string {
	switch {
	case f.user != 0 && f.user != us:
		return fmt.Sprintf("%s belongs to user %d, who could change it: chown %d %s, or chown root", path, f.user, us, path)
	case f.perm&0o077 == 0:
		return ""
	case f.user != 0 || f.perm&0o037 != 0:
		return fmt.Sprintf("%s is open to others than its owner (mode %04o): chmod 600 %s", path, f.perm, path)
	case !slices.Contains(groups, f.group):
		return fmt.Sprintf("%s can be read by group %d, which is not a group of this process: chmod 600 %s, or chgrp", path,
			f.group, path)
	}
	return ""
}
