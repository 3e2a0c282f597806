package delivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
)

// CheckPick checks the parts that the filters of replays and of dead letters have in common. A zero value is valid.
func CheckPick(campaign, user string, from, to time.Time) error {
	var errs []error
	if err := hongbao.CheckCampaignID(campaign); campaign != "" && err != nil {
		errs = append(errs, fmt.Errorf("campaign %.80q: %w", campaign, err))
	}
	if err := hongbao.CheckID(user); user != "" && err != nil {
		errs = append(errs, fmt.Errorf("user %.140q: %w", user, err))
	}
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		errs = append(errs, fmt.Errorf("from %s to %s: want from before to", from.Format(time.RFC3339), to.Format(time.RFC3339)))
	}
	return errors.Join(errs...)
}
