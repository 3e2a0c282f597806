package access

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

var update = flag.Bool("update", false, "write the table of docs/security.md again")

// allowed repeats the table by hand: the actions that each role may take. TestEveryCell compares it with Rules.
var allowed = map[Role]string{
	RoleViewer: "read_campaigns read_trails read_sinks read_letters read_quarantine read_journal",
	RoleOperator: "read_campaigns read_trails read_sinks read_letters read_quarantine read_journal read_user load_campaign " +
		"pause_campaign resume_campaign share_campaign end_link requeue_letters replay pause_sink resume_sink limit_sink run_audit",
	RoleTreasurer: "read_campaigns read_trails read_sinks read_letters read_quarantine read_journal read_user load_campaign " +
		"pause_campaign resume_campaign share_campaign end_link requeue_letters replay pause_sink resume_sink limit_sink run_audit " +
		"create_campaign top_up_campaign cancel_campaign close_campaign refund reveal_campaign drop_letters decide_quarantine " +
		"acknowledge_difference seal_campaigns",
	RoleGateway:    "read_grants grab",
	RoleClient:     "book_credits read_credits",
	RoleAccountant: "read_credits read_accounts",
}

// whole are the actions that no key with a campaign scope may take.
const whole = "read_sinks read_journal read_user pause_sink resume_sink limit_sink run_audit manage_keys accept_loss confirm_credits settle_claim " +
	"fund_client acknowledge_difference seal_campaigns book_credits read_credits read_accounts"

func has(list string, a Action) bool {
	for word := range strings.FieldsSeq(list) {
		if word == string(a) {
			return true
		}
	}
	return false
}

// Each subtest checks one role and one action, with a key without a scope and with a key that has one.
func TestEveryCell(t *testing.T) {
	t.Parallel()
	for _, rule := range Rules() {
		for _, role := range Roles() {
			t.Run(fmt.Sprintf("%s %s", role, rule.Action), func(t *testing.T) {
				t.Parallel()
				all, scoped := Caller{Role: role}, Caller{Role: role, Campaigns: []string{"rain", "spring-*"}}
				if !has(allowed[role], rule.Action) {
					for _, c := range []Caller{all, scoped} {
						require.ErrorIs(t, c.May(rule.Action), ErrForbidden)
						require.ErrorIs(t, c.Check(rule.Action, "rain"), ErrForbidden)
						require.ErrorIs(t, c.Check(rule.Action, ""), ErrForbidden)
					}
					return
				}
				require.NoError(t, all.Check(rule.Action, "rain"))
				require.NoError(t, all.Check(rule.Action, ""))
				require.ErrorIs(t, scoped.Check(rule.Action, ""), ErrWhole)
				if has(whole, rule.Action) {
					require.ErrorIs(t, scoped.May(rule.Action), ErrWhole)
					require.ErrorIs(t, scoped.Check(rule.Action, "rain"), ErrWhole)
					return
				}
				require.NoError(t, scoped.May(rule.Action))
				for _, in := range []string{"rain", "spring-1", "spring-"} {
					require.NoError(t, scoped.Check(rule.Action, in))
				}
				for _, out := range []string{"rain2", "rai", "spring", "summer-1", "RAIN"} {
					require.ErrorIs(t, scoped.Check(rule.Action, out), ErrNotInScope)
				}
			})
		}
	}
}

func TestNobodyMayWhatIsNotInTheTable(t *testing.T) {
	t.Parallel()
	for _, role := range append(Roles(), "", "root") {
		c := Caller{Role: role}
		err := c.May("format_disk")
		require.ErrorIs(t, err, ErrForbidden)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
	nobody := Caller{Role: "root"}
	for _, rule := range Rules() {
		require.ErrorIs(t, nobody.May(rule.Action), ErrForbidden)
	}
}

// docs/security.md shows the table of the code.
func TestDocs(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../../../docs/security.md", "<!-- roles -->\n", "<!-- /roles -->"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	_, tail, ok := strings.Cut(rest, end)
	require.True(t, ok)
	want := head + begin + docsTable() + end + tail
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(text), "run go test ./internal/base/access -run TestDocs -update")
}

func docsTable() string {
	var b strings.Builder
	b.WriteString("| action | what |")
	for _, role := range Roles() {
		fmt.Fprintf(&b, " %s |", role)
	}
	b.WriteString(" with a scope |\n|---|---|" + strings.Repeat("---|", len(Roles())+1) + "\n")
	for _, rule := range Rules() {
		fmt.Fprintf(&b, "| `%s` | %s |", rule.Action, rule.What)
		for _, role := range Roles() {
			c, cell := Caller{Role: role}, ""
			if c.May(rule.Action) == nil {
				cell = "yes"
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		scope := "its campaigns"
		switch {
		case len(rule.Roles) == 0:
			scope = "command line only"
		case rule.Whole:
			scope = "no"
		}
		fmt.Fprintf(&b, " %s |\n", scope)
	}
	return b.String()
}
