package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Bounds are the lowest and highest amounts and instants, in milliseconds, of the grants of a campaign.
type Bounds struct {
	Grants      int64
	Low, High   hongbao.Amount
	First, Last int64
}

// Step counts the grants whose value is at least From and less than the next step's From.
type Step struct{ From, Grants int64 }

// Bounds returns the bounds of a campaign's grants. Bounds, Amounts and Times read every grant, so call them rarely.
func (l *Ledger) Bounds(ctx context.Context, campaign string) (Bounds, error) {
	b, _, err := tables.Ask("read the bounds of the grants of campaign "+campaign,
		`SELECT COUNT(*), COALESCE(MIN(amount), 0), COALESCE(MAX(amount), 0), COALESCE(MIN(granted_at), 0),
		COALESCE(MAX(granted_at), 0) FROM grants WHERE campaign = $1`, []any{campaign},
		func(s db.Scan) (b Bounds, err error) {
			err = s(&b.Grants, &b.Low, &b.High, &b.First, &b.Last)
			return b, err
		}).One(ctx, l.tables)
	return b, err
}

// Amounts counts the grants of a campaign by amount, in steps of width minor units that begin at low.
func (l *Ledger) Amounts(ctx context.Context, campaign string, low hongbao.Amount, width int64) ([]Step, error) {
	return steps("read the amounts of the grants of campaign "+campaign,
		`SELECT amount - (amount - $2) % $3 AS step, COUNT(*) FROM grants WHERE campaign = $1 GROUP BY 1 ORDER BY 1`,
		campaign, int64(low), width).All(ctx, l.tables)
}

// Times counts the grants of a campaign by the time of their decision, in steps of width milliseconds that begin at
// first.
func (l *Ledger) Times(ctx context.Context, campaign string, first, width int64) ([]Step, error) {
	return steps("read the times of the grants of campaign "+campaign,
		`SELECT granted_at - (granted_at - $2) % $3 AS step, COUNT(*) FROM grants WHERE campaign = $1 GROUP BY 1 ORDER BY 1`,
		campaign, first, width).All(ctx, l.tables)
}

func steps(what, sql, campaign string, from, width int64) tables.Query[Step] {
	return tables.Ask(what, sql, []any{campaign, from, width}, func(s db.Scan) (step Step, err error) {
		err = s(&step.From, &step.Grants)
		return step, err
	})
}

// CampaignSearch selects campaigns from a list: up to Limit, after the first Skip.
type CampaignSearch struct {
	// Text selects campaigns whose specification contains it, such as in the id, the name or the sponsor. Case does not
	// matter. Empty selects all.
	Text string
	// Scope selects campaigns that match one of its ids or prefixes (such as spring-*). Empty selects all.
	Scope []string
	// Unrefunded leaves out the refunded campaigns.
	Unrefunded  bool
	Skip, Limit int
}

var likeEscapes = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// NewestCampaigns lists campaigns, the newest first.
func (l *Ledger) NewestCampaigns(ctx context.Context, s CampaignSearch) ([]StoredCampaign, error) {
	where, args := s.condition()
	return tables.Ask("list the ledger's newest campaigns", `SELECT `+campaignColumns+` FROM campaign `+
		where+` ORDER BY created_at DESC, id LIMIT $1 OFFSET $2`, args, scanCampaign).All(ctx, l.tables)
}

// condition returns the WHERE clause of a search, and the arguments of the whole statement. An empty text adds no
// condition, because LIKE would read every specification.
func (s *CampaignSearch) condition() (where string, args []any) {
	without := "" // the state to leave out; no campaign has the empty state
	if s.Unrefunded {
		without = string(model.MoneyRefunded)
	}
	where, args = `WHERE state <> $3`, []any{int64(s.Limit), int64(s.Skip), without}
	if s.Text != "" {
		where += ` AND lower(spec) LIKE $4 ESCAPE '!'`
		args = append(args, "%"+likeEscapes.Replace(strings.ToLower(stored(s.Text)))+"%")
	}
	var matches []string
	for _, pattern := range s.Scope {
		prefix, many := strings.CutSuffix(pattern, "*")
		pattern = likeEscapes.Replace(prefix)
		if many {
			pattern += "%"
		}
		args = append(args, pattern)
		matches = append(matches, fmt.Sprintf("id LIKE $%d ESCAPE '!'", len(args)))
	}
	if len(matches) > 0 {
		where += " AND (" + strings.Join(matches, " OR ") + ")"
	}
	return where, args
}

// stored returns a text as it appears in a stored specification, which is JSON with <, > and & escaped.
func stored(text string) string {
	data, _ := json.Marshal(text) // a string can always be encoded
	return string(data[1 : len(data)-1])
}
