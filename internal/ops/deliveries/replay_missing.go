package deliveries

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/topic"
)

// locked runs do. With Missing it takes a lock first: of two concurrent searches, both would deliver the same missing
// grants.
func (a Deliveries) locked(ctx context.Context, o *Replay, do func(context.Context) error) error {
	if !o.Missing || o.DryRun {
		return do(ctx)
	}
	locks, err := a.app.Locks()
	if err != nil {
		return err
	}
	a.app.Log().Info("waiting for the lock of replays with --missing")
	return locks.Do(ctx, "replay-missing", do)
}

// lacking returns a filter for the grants that the ledger lacks, as after it was restored from a backup. It leaves out
// grants of archived campaigns, and grants in quarantine, about which a person decides. But it includes an undecided
// grant whose packet the ledger did not have when the grant arrived, and has now.
func (a Deliveries) lacking(ctx context.Context) (func(*hongbao.Grant) bool, error) {
	lost, err := replay.FindLacking(ctx, a.app.Store(), configs.SinkBalance, a.app.Ledger())
	if err != nil {
		return nil, fmt.Errorf("find the grants that the ledger lacks: %w", err)
	}
	archived := map[string]bool{}
	err = a.app.Books().EachTotals(ctx, func(t *books.Totals) error {
		if t.Archived {
			archived[t.Campaign] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	aside, err := a.quarantined(ctx)
	if err != nil {
		return nil, err
	}
	return func(g *hongbao.Grant) bool {
		return lost.Picks(g) && !archived[g.Campaign] && !aside[win{g.Campaign, g.Packet, g.User}]
	}, nil
}

// win identifies a grant, even if Redis granted its packet twice.
type win struct {
	campaign string
	packet   int64
	user     string
}

// quarantined returns the grants in quarantine that the ledger still can't settle, or that a person has decided.
func (a Deliveries) quarantined(ctx context.Context) (map[win]bool, error) {
	packets := map[string]int64{} // of each campaign, now
	for c, err := range a.app.Ledger().EachCampaign(ctx, "") {
		if err != nil {
			return nil, err
		}
		packets[c.Spec.ID] = c.Packets
	}
	out := map[win]bool{}
	err := a.app.Ledger().EachQuarantined(ctx, func(q *model.Quarantined) {
		unknown := q.Reason == ledger.NoCampaign || q.Reason == ledger.PacketNotPlanned
		if g := &q.Grant; !unknown || !q.Resolved.IsZero() || g.Packet > packets[g.Campaign] {
			out[win{g.Campaign, g.Packet, g.User}] = true
		}
	})
	return out, err
}

// compareTopic reads the topic, and records in lost which grants the topic has.
func compareTopic(ctx context.Context, lost *replay.Lost, l *publish.Log, shards int) error {
	scan, err := l.Scan(ctx, nil, func(_ publish.Position, e topic.Event) error {
		lost.Has(&e.Grant)
		return nil
	})
	if err != nil {
		return fmt.Errorf("find the grants that are missing in the topic: %w", err)
	}
	for shard := range shards {
		lost.Since(shard, scan.Since[l.Partition(shard)])
	}
	return nil
}
