package hongbao_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// Check accepts the examples of W3C Trace Context, and rejects each malformed variant.
func TestGrabsTraceparentFollowsW3C(t *testing.T) {
	t.Parallel()
	check := func(trace string) error {
		g := hongbao.Grab{Campaign: "rain", User: "u1", Trace: trace}
		return g.Check()
	}
	for _, good := range []string{"", traceparent, "00" + traceparent[2:53] + "00", "cc" + traceparent[2:],
		"cc" + traceparent[2:] + "-what-comes-then"} {
		require.NoError(t, check(good), good)
	}
	for name, bad := range map[string]string{
		"word": "t", "short": traceparent[:54], "longer": traceparent + "-x", "version ff": "ff" + traceparent[2:],
		"upper case": strings.ToUpper(traceparent), "no hex": strings.Replace(traceparent, "4bf9", "4bg9", 1),
		"zero trace":  "00-" + strings.Repeat("0", 32) + traceparent[35:],
		"zero parent": traceparent[:36] + strings.Repeat("0", 16) + traceparent[52:],
		"no dash":     strings.Replace(traceparent, "4736-00f0", "4736_00f0", 1),
		"flags":       traceparent[:53] + "0g", "glued": "cc" + traceparent[2:] + "x",
		"too long": "cc" + traceparent[2:] + "-" + strings.Repeat("x", 100),
	} {
		require.ErrorContains(t, check(bad), "traceparent", name)
	}
}
