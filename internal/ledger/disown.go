package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Disown notes that the ledger will never have a campaign, by a person's word: the settler sends its grants to
// quarantine from then on, where they would wait else. A campaign that the ledger has is refused (Permanent). A
// repeat changes nothing.
func (l *Ledger) Disown(ctx context.Context, campaign, by, why string) error {
	err := errors.Join(hongbao.CheckCampaignID(campaign), hongbao.CheckID(by))
	if err == nil && (why == "" || len(why) > maxWhy) {
		err = fmt.Errorf("why has %d bytes: want a reason of 1 to %d", len(why), maxWhy)
	}
	if err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "disown campaign %.80q: %w", campaign, err)
	}
	err = l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		_, found, err := readCampaign(ctx, t, campaign)
		if err == nil && found {
			err = hongbao.Errorf(hongbao.ClassPermanent, "the ledger has it: its grants are settled, and what contradicts it "+
				"is in quarantine already")
		}
		return []stmt{{sql: l.dialect.insertDisowned,
			args: []any{campaign, by, why, time.Now().UnixMilli()}}}, err
	})
	if err != nil {
		return fmt.Errorf("disown campaign %s: %w", campaign, err)
	}
	return nil
}

// disowned tells whether a person has disowned a campaign.
func (l *Ledger) disowned(ctx context.Context, campaign string) (found bool, err error) {
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		found = false
		return t.query(ctx, `SELECT created_at FROM disowned WHERE campaign = $1`, []any{campaign}, func(s scan) error {
			var at int64
			found = true
			return s(&at)
		})
	})
	if err != nil {
		return false, fmt.Errorf("ask whether campaign %s is disowned: %w", campaign, err)
	}
	return found, nil
}
