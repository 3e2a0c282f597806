package plural

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCounts(t *testing.T) {
	t.Parallel()
	for want, has := range map[string]string{
		"0 grants": Of(0, "grant"), "1 grant": Of(1, "grant"), "2 grants": Of(int64(2), "grant"),
		"1 entry": Of(1, "entry"), "3 entries": Of(3, "entry"), "1 dead letter": Of(1, "dead letter"), "12,034 packets": Of(12_034, "packet"),
		"was": Verb(1, "was", "were"), "were": Verb(int64(0), "was", "were"),
	} {
		require.Equal(t, want, has)
	}
}
