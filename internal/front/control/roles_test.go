package control

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
)

// Each role may use exactly the endpoints in the table of roles; all others answer 403, whatever the request contains.
// Data outside a key's scope does not exist for it.
func TestRoles(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	d.campaign("snow", 10, 1_000)
	path := strings.NewReplacer("{id}", "rain", "{sink}", "balance", "{shard}", "0", "{entry}", "1-1", "{number}", "7",
		"{name}", "repair")
	for _, o := range operations() {
		at := path.Replace(o.path)
		d.call("", o.method, at, "{}").Refused(t, "unauthorized")
		for _, role := range access.Roles() {
			all, scoped := access.Caller{Role: role}, access.Caller{Role: role, Campaigns: []string{"rain*"}}
			r := d.call(string(role), o.method, at, `{"odd":1}`)
			if all.May(o.action) != nil {
				require.Equal(t, "forbidden", r.Code(), "%s %s", role, o.id)
			} else {
				require.False(t, ofBank(role), "%s: a key for the balance API has no rights here", o.id)
				require.NotContains(t, []string{"forbidden", "unauthorized"}, r.Code(), "%s %s: %s", role, o.id, r.Text)
				require.Less(t, r.Status, 500, r.Text)
			}
			if ofBank(role) {
				continue
			}
			r = d.call(string(role)+"/rain*", o.method, at, `{"odd":1}`)
			require.Equal(t, scoped.May(o.action) != nil, r.Code() == "forbidden", "%s %s: %s", role, o.id, r.Text)
			if strings.Contains(o.path, "{id}") && scoped.May(o.action) == nil {
				r := d.call(string(role)+"/rain*", o.method, strings.Replace(at, "rain", "snow", 1), "{}")
				require.Equal(t, "unknown_campaign", r.Code(), "%s %s", role, o.id)
			}
		}
	}
	d.post("treasurer/rain*", "/v1/campaigns", specOf(t, campaignOf("snow-2", 10, 100))).Refused(t, "unknown_campaign")
	d.post("treasurer/rain*", "/v1/campaigns", specOf(t, campaignOf("rain-2", 10, 100))).OK(t, http.StatusOK, nil)
	require.Len(t, d.ledgerCampaigns(), 3)
}
