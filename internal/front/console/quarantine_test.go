package console

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// The list says first how many grants wait and how much that is; grants of other campaigns and decided ones do not count.
func TestQuarantineSaysWhatWaits(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	one := f.fakeSource.quarantined()
	done := one
	done.Resolved, done.ResolvedBy, done.Resolution = time.Unix(1_800_000_000, 0), "key:ann", "void: forged"
	other := one
	other.Grant.Campaign = "other"
	f.inQuarantine = []model.Quarantined{one, one, done, other}
	page := f.ask(t, "viewer:rain", "/quarantine?all=1", nil).Body.String()
	for _, text := range []string{"2 grants wait for a decision: 3.70 CNY.", `<a href="/quarantine/7">u1</a>`, `<a href="/campaigns/rain">Spring rain</a>`,
		"void: forged", "key:ann", "Times in Asia/Shanghai."} {
		require.Contains(t, page, text)
	}
	require.NotContains(t, page, ">other<")
	f.inQuarantine = []model.Quarantined{done}
	require.Contains(t, f.ask(t, "viewer", "/quarantine?all=1", nil).Body.String(), "No grant waits for a decision.")
	f.inQuarantine = []model.Quarantined{}
	require.Contains(t, f.ask(t, "viewer", "/quarantine", nil).Body.String(), "No grant is in quarantine.")
}

// The page of a grant in quarantine says in one sentence who came and whom the ledger had paid, marks what differs, and
// says what each decision does.
func TestAGrantInQuarantineSaysWhatEachDecisionDoes(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	page := f.ask(t, "treasurer", "/quarantine/7", nil).Body.String()
	for _, text := range []string{"u1 came as the winner of packet 3 of Spring rain. The ledger had paid it to u2.", "Pay 1.85 CNY to u1",
		"From the reserve", "The grant is not paid, also if it comes again.", "A decision is final.", `name="why" required`} {
		require.Contains(t, page, text)
	}
	require.Contains(t, page, `<td class="wrap">u1 <span class="state wait">differs</span></td>`)
	require.Contains(t, page, "<td>1.85 CNY</td><td>1.85 CNY</td>", "the amounts agree")

	p := quarantinedPage{Quarantined: &model.Quarantined{Grant: hongbao.Grant{User: "u1", Packet: 3, Campaign: "rain"}}}
	require.Equal(t, "u1 came as the winner of packet 3 of rain. The ledger had paid it to nobody.", p.about().String())
	p.Has = &hongbao.Grant{User: "u1"}
	require.Contains(t, p.about().String(), "to the same user, as another grant")
	require.Equal(t, http.StatusNotFound, f.ask(t, "treasurer:other", "/quarantine/7", nil).Code)
}

// Each reason for the quarantine has words and an advice.
func TestEveryReasonHasAnAdvice(t *testing.T) {
	t.Parallel()
	require.Len(t, quarantineAdvice, len(reasons))
	for reason := range reasons {
		require.NotEmpty(t, quarantineAdvice[reason].Text, reason)
	}
}
