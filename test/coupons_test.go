package test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/campaign"
)

// docs/coupons.md shows configs/coupons.yaml unchanged, and the file is a valid specification. Tests in internal/cli run
// this campaign.
func TestCouponsOfTheDocs(t *testing.T) {
	t.Parallel()
	spec, err := os.ReadFile("../configs/coupons.yaml")
	require.NoError(t, err)
	page, err := os.ReadFile("../docs/coupons.md")
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(spec), "\n") // after its comment
	require.Contains(t, string(page), "```yaml\n"+body+"```\n")
	c, err := campaign.Read(strings.NewReader(string(spec)))
	require.NoError(t, err)
	c.Packets = 2342
	require.NoError(t, campaign.Validate(c, c.From), "the largest campaign that the page allows for its pattern")
	c.Packets++
	require.ErrorContains(t, campaign.Validate(c, c.From), "code_space_too_small")
}
