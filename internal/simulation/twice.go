package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
	"github.com/hongbao-project/hongbao/internal/simulation/judge"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// notWithTwice are the deeds in whose histories nobody puts a packet back: a restore could not tell who has it, and a sink
// that comes or goes need not publish it for both users.
var notWithTwice = []string{Failover, TellerDies, OldFile, FirstFile, Flushed, QuietStart, ClockAhead, TopUp, SinkLate,
	SinkAgain}

// drawTwice adds a PacketTwice to some plans. Nobody ends its campaign: its stock contradicts its grants. Its users get one
// packet each, so the packet goes to another user: the reserve would not pay the same user twice.
func (p *Plan) drawTwice(at time.Duration) {
	if slices.ContainsFunc(notWithTwice, p.has) {
		return
	}
	p.Deeds = append(p.Deeds, Deed{What: PacketTwice, At: at})
	p.Campaigns[0].Hold = 1
	p.Ends = slices.DeleteFunc(p.Ends, func(id string) bool { return id == p.Campaigns[0].ID })
}

// putBack puts a packet that a user was told back into the stock, as a person could who writes to Redis by hand. So Redis
// deals it to another user, too.
func (w *world) putBack(ctx context.Context) error {
	id := w.plan.Campaigns[0].ID
	for end := time.Now().Add(2 * w.plan.Faulty); time.Now().Before(end); {
		w.mu.Lock()
		at := slices.IndexFunc(w.told, func(t judge.Win) bool { return t.Campaign == id })
		var t judge.Win
		if at >= 0 {
			t = w.told[at]
			w.twice = &judge.Twice{Campaign: id, Packet: t.Packet}
		}
		w.mu.Unlock()
		if at >= 0 {
			key := fmt.Sprintf("hb:{%d.0}:c:%s:stock", t.Shard, id)
			_, err := w.redis.Lpush(key, fmt.Sprintf("%d %d", t.Packet, t.Amount))
			w.note("packet %d of %s is back in %s: %v", t.Packet, id, key, err)
			return err
		}
		if err := virtual.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// payQuarantine does what the audit names: a person pays from the reserve what waits in quarantine.
func (w *world) payQuarantine(ctx context.Context) {
	if !w.plan.has(PacketTwice) {
		return
	}
	err := w.command(ctx, func(ctx context.Context, a *app.App) error {
		if err := a.Ready(ctx, app.Needs{Redis: true, Ledger: true}); err != nil {
			return err
		}
		page, err := payments.Of(a).ListQuarantine(ctx, payments.QuarantineList{Limit: 100})
		if err != nil {
			return err
		}
		for i := range page.Grants {
			if _, err := payments.Of(a).Decide(ctx, ledger.Resolution{ID: page.Grants[i].ID, Pay: true, Decision: ann}); err != nil {
				return err
			}
			w.cover.note("person", payTwice)
		}
		return nil
	})
	if err != nil {
		w.note("%s: %v", payTwice, err)
	}
}

const payTwice = "hongbao quarantine resolve --pay"

// aboutTwice reports whether a difference follows from the packet that somebody has put back.
func (w *world) aboutTwice(d *model.Difference) bool {
	return w.twice != nil && d.Campaign == w.twice.Campaign && (d.Packet == w.twice.Packet || d.Kind == audit.CounterDrift)
}
