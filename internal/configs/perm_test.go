//go:build unix

package configs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The rule for secret files is PostgreSQL's rule for ssl_key_file. It allows mode 0440 with owner root:group, because
// Kubernetes mounts secrets like that.
func TestWhoMayReadASecret(t *testing.T) {
	t.Parallel()
	const us, group, other = 1000, 2000, 3000
	for _, c := range []struct {
		what string
		file fileOwner
		us   int
		says string
	}{
		{"our own", fileOwner{0o600, us, group}, us, ""},
		{"our own, read only", fileOwner{0o400, us, group}, us, ""},
		{"our own, for the group", fileOwner{0o440, us, group}, us, "open to others than its owner (mode 0440): chmod 600 f"},
		{"our own, for all", fileOwner{0o604, us, group}, us, "open to others than its owner (mode 0604): chmod 600 f"},
		{"Kubernetes", fileOwner{0o440, 0, group}, us, ""},
		{"root's, for our group", fileOwner{0o640, 0, group}, us, ""},
		{"root's, for another group", fileOwner{0o440, 0, other}, us,
			"can be read by group 3000, which is not a group of this process"},
		{"root's, the group may write", fileOwner{0o660, 0, group}, us, "(mode 0660): chmod 600 f"},
		{"root's, for all", fileOwner{0o644, 0, group}, us, "(mode 0644): chmod 600 f"},
		{"root reads its own", fileOwner{0o440, 0, group}, 0, ""},
		{"root reads its own file of another group", fileOwner{0o440, 0, other}, 0, "can be read by group 3000"},
		{"another's", fileOwner{0o600, other, group}, us, "belongs to user 3000, who could change it: chown 1000 f"},
		{"another's, read by root", fileOwner{0o600, other, group}, 0, "belongs to user 3000"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			got := c.file.openTo("f", c.us, []int{group})
			require.Contains(t, got, c.says)
			require.Equal(t, c.says == "", got == "", got)
		})
	}
}
