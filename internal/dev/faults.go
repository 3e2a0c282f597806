package dev

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/dev/faults"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

// newFaults makes the faults of this server. An audit ends each story.
func (d *Dev) newFaults(a *app.App, direct redis.UniversalClient) (*faults.Faults, error) {
	return faults.Of(d.local, direct, d.tell, func(ctx context.Context) (string, error) {
		r, err := a.Audit(ctx, audit.Options{})
		if err != nil {
			return "", err
		}
		return verdict(r), nil
	})
}

// verdict is what an audit found, in a sentence.
func verdict(r *audit.Report) string {
	if r.Verdict != audit.Agrees {
		var found []string
		for kind, n := range r.Found {
			found = append(found, fmt.Sprintf("%d x %s", n, kind))
		}
		return "The audit found differences: " + strings.Join(found, ", ") + "."
	}
	t := &r.Total
	text := fmt.Sprintf("The audit agrees: of %d grants none is lost, none is paid or in the topic twice, %d are on their way or newer",
		t.Granted, t.InFlight+t.Newer)
	for i := range r.Campaigns {
		if r.Campaigns[i].Currency != r.Campaigns[0].Currency {
			return text + "."
		}
	}
	if len(r.Campaigns) == 0 {
		return text + "."
	}
	of := r.Campaigns[0].Currency
	return fmt.Sprintf("%s; funded %s = granted %s + left %s.", text, money.Text(t.Funded, of), money.Text(t.GrantedAmount, of),
		money.Text(t.LeftAmount, of))
}
