package cloudevent

import (
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
)

// CheckGrant returns an error if a grant's fields are invalid for a record of the topic.
func CheckGrant(g *hongbao.Grant) error {
	if err := hongbao.CheckCampaignID(g.Campaign); err != nil {
		return fmt.Errorf("campaign %.80q: %w", g.Campaign, err)
	}
	for _, id := range [...]struct {
		name, value string
		optional    bool
	}{{"user", g.User, false}, {"request id", g.RequestID, true}, {"traceparent", g.Trace, true}} {
		if id.value == "" && id.optional {
			continue
		}
		if err := hongbao.CheckID(id.value); err != nil {
			return fmt.Errorf("%s %.140q: %w", id.name, id.value, err)
		}
	}
	if most := int64(hongbao.MaxAmount); g.Packet < 1 || g.Packet > most || g.Seq < 1 || g.Seq > most || g.Epoch < 1 ||
		g.Epoch > most {
		return errors.New("packet, seq and epoch must be 1 to 2^53-1")
	}
	if g.Shard < 0 || g.Amount < 0 || g.Amount > hongbao.MaxAmount {
		return fmt.Errorf("shard %d, amount %d: want 0 or more, and an amount of 2^53-1 at most", g.Shard, g.Amount)
	}
	if g.Code != "" {
		if err := hongbao.CheckCode(g.Code); err != nil {
			return fmt.Errorf("code: %w", err)
		}
	}
	return nil
}

// CheckTime returns an error if TimeLayout can't represent a grant's time.
func CheckTime(at time.Time) error {
	if y := at.UTC().Year(); y < 1970 || y > 9999 {
		return fmt.Errorf("time %v: want the years 1970 to 9999", at)
	}
	return nil
}
