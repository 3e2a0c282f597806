package deliveries

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
)

// OpenClaim is an unfinished claim of a batch for the topic. The topic may or may not have the batch.
type OpenClaim struct {
	// ID is SINK/SHARD/CLAIM.
	ID     string   `json:"id"`
	Events []string `json:"events"` // ranges of seqs, such as 1-20
	Grants int64    `json:"grants"`
	// Owner is the worker that had the claim last. It counts as alive until the time Until.
	Owner string    `json:"owner"`
	Until time.Time `json:"until"`
	// Topic, Partition and Offset say where to look for the batch. It is at the offset, or later in the partition, or it
	// is missing. These fields, Sent and SettleFrom are null if this build can't read the claim's payload.
	Topic     optional.Text `json:"topic"`
	Partition *int          `json:"partition"`
	Offset    *int64        `json:"offset"`
	Sent      *time.Time    `json:"sent"`
	// SettleFrom is the earliest time at which a person may settle the claim. Until then, workers can still settle it by
	// themselves, and a suspended worker may still send the batch.
	SettleFrom *time.Time `json:"settle_from"`

	claim stream.Claim
	sink  string
	shard int
}

func (c *OpenClaim) sentAt() time.Time {
	if c.Sent == nil {
		return time.Time{}
	}
	return *c.Sent
}

// ListClaims returns the open claims of sink kafka and of replays to other topics: unreadable ones first, then the
// oldest. It scans all keys for replays.
func (a Deliveries) ListClaims(ctx context.Context) ([]OpenClaim, error) {
	if err := a.app.OpenRedis(ctx); err != nil {
		return nil, err
	}
	replays, err := a.app.Store().FindReplays(ctx)
	if err != nil {
		return nil, err
	}
	sinks := []string{configs.SinkKafka}
	for name := range replays {
		sinks = append(sinks, replay.DoneSink(name))
	}
	return a.ListClaimsOf(ctx, sinks...)
}

// ListClaimsOf returns the open claims of these sinks. A replay to another topic has a sink of its own: replay-NAME.
func (a Deliveries) ListClaimsOf(ctx context.Context, sinks ...string) ([]OpenClaim, error) {
	if err := a.app.CheckSinks("claims are those of", configs.SinkKafka); err != nil {
		return nil, err
	}
	if err := a.app.OpenRedis(ctx); err != nil {
		return nil, err
	}
	list := []OpenClaim{}
	for i := range a.app.Store().Len() {
		for _, sink := range sinks {
			open, err := a.app.Store().Shard(i).Group(sink).OpenClaims(ctx)
			if err != nil {
				return nil, err
			}
			for _, c := range open {
				list = append(list, a.openClaim(sink, i, &c))
			}
		}
	}
	slices.SortFunc(list, func(a, b OpenClaim) int {
		return cmp.Or(a.sentAt().Compare(b.sentAt()), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

func (a Deliveries) openClaim(sink string, shard int, c *store.OpenClaim) OpenClaim {
	out := OpenClaim{ID: sink + "/" + strconv.Itoa(shard) + "/" + c.ID, Owner: c.Owner, Until: c.Until, claim: c.Claim,
		sink: sink, shard: shard}
	if batch, err := publish.ReadPayload(c.Payload); err == nil { // else the claim is listed without these fields
		from := batch.Sent.Add(a.app.Config.Publisher.ProducerExpiration)
		out.Topic, out.Partition, out.Offset = optional.Text(batch.Topic), &batch.Partition, &batch.Offset
		out.Sent, out.SettleFrom = &batch.Sent, &from
	}
	for _, r := range c.Events {
		out.Events = append(out.Events, fmt.Sprintf("%d-%d", r.First, r.Last))
		out.Grants += r.Len()
	}
	return out
}

// ClaimDecision is a person's decision about a claim.
type ClaimDecision struct {
	ID string
	// Published means that the topic has all grants of the claim. Otherwise the topic has none of them, and they are sent
	// again.
	Published bool
	stream.Decision
	// Patience is how long to retry while the topic can't be reached.
	Patience time.Duration
}

// SettledClaim is the result of SettleClaim.
type SettledClaim struct {
	Claim     string              `json:"claim"`
	Published bool                `json:"published"`
	Grants    int64               `json:"grants"`
	Letters   *model.LetterReport `json:"letters"` // null if no grant of the claim was a dead letter
}

// SettleClaim ends a claim as a person has decided, and requeues the dead letters of its grants. Published grants count
// as delivered; other grants are sent. Once the claim has ended, workers deliver its grants that have no dead letter.
func (a Deliveries) SettleClaim(ctx context.Context, o ClaimDecision) (out *SettledClaim, err error) {
	if err := o.Decision.Check(); err != nil {
		return nil, app.Usage("%w", err)
	}
	c, err := a.findClaim(ctx, o.ID)
	if err != nil {
		return nil, err
	}
	// A person's decision writes no fence record to the topic, so the broker would append a late copy of the batch.
	if c.SettleFrom != nil && time.Now().Before(*c.SettleFrom) {
		return nil, hongbao.Errorf(hongbao.ClassTransient,
			"settle claim %s: it is younger than publisher.producer_expiration (%v), so workers may still settle it, "+
				"and a suspended worker may still send it: let the workers run; if the claim is still open at %s, try again",
			c.ID, a.app.Config.Publisher.ProducerExpiration, c.SettleFrom.Format(time.RFC3339))
	}
	e := app.About(ctx, access.SettleClaim, "")
	e.Sink = c.sink
	e.Details = map[string]any{"claim": c.ID, "published": o.Published, "events": c.Events, "by": o.By,
		"why": o.Why}
	err = a.app.Recorded(ctx, e, func(ctx context.Context, _ *access.Entry) error {
		if err := a.endClaim(ctx, c, o.Published); err != nil {
			return err
		}
		out = &SettledClaim{Claim: c.ID, Published: o.Published, Grants: c.Grants}
		if c.sink == configs.SinkKafka { // else the next run of the replay sends what is not published
			out.Letters, err = a.requeueEvents(ctx, c, &o)
		}
		if err != nil {
			err = fmt.Errorf("the claim is settled, but its dead letters are not requeued: %w; run `hongbao dead requeue`", err)
		}
		return err
	})
	return out, err
}

func (a Deliveries) findClaim(ctx context.Context, id string) (*OpenClaim, error) {
	sink, _, _ := strings.Cut(id, "/")
	if err := hongbao.CheckCampaignID(sink); err != nil {
		sink = configs.SinkKafka
	}
	list, err := a.ListClaimsOf(ctx, sink)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(c OpenClaim) bool { return c.ID == id })
	if i < 0 {
		return nil, fmt.Errorf("claim %.200q is not open: it was ended, or never existed; `hongbao claim list` shows the open claims",
			id)
	}
	return &list[i], nil
}

// endClaim takes the claim over from its owner, and completes or releases it.
func (a Deliveries) endClaim(ctx context.Context, c *OpenClaim, published bool) error {
	cfg := a.app.Config.ClaimsConfig()
	if c.sink == configs.SinkKafka {
		cfg.Done = deadletter.RequeueSink(cfg.Sink)
	} else {
		cfg = replayClaims(cfg, c.sink)
	}
	cfg.Owner, cfg.TakeLive = store.WorkerName(a.app.Config.Seams.Process), false
	all, err := a.app.Store().Claims(cfg)
	if err != nil {
		return err
	}
	own := stream.Claim{ID: "settle." + rand.Text(), Events: c.claim.Events}
	in := stream.Opening{Shard: c.shard}
	answer, err := all.Claim(ctx, in, own.ID, own.Events, c.claim.Payload)
	if err != nil {
		return err
	}
	if answer.Granted() { // the old claim has ended meanwhile
		own.Fence = answer.Fence
		return errors.Join(fmt.Errorf("claim %s was ended just now", c.ID), all.Release(ctx, in, own))
	}
	i := slices.IndexFunc(answer.Open, func(o stream.Claim) bool { return o.ID == c.claim.ID })
	switch {
	case i < 0 && answer.LiveClaims > 0:
		return hongbao.Errorf(hongbao.ClassTransient,
			"worker %s has claim %s until %s and may still be sending; pause the sink, and try again after that time", c.Owner, c.ID,
			c.Until.Format(time.RFC3339))
	case i < 0:
		return fmt.Errorf("claim %s was ended just now", c.ID)
	case published:
		arrived, err := a.arrived(ctx, in, &answer.Open[i])
		if err != nil {
			return err
		}
		return all.Complete(ctx, in, answer.Open[i], arrived)
	}
	return all.Release(ctx, in, answer.Open[i])
}

// arrived returns the claim's events with their campaigns, as far as the payload can be read and the stream still has
// the entries.
func (a Deliveries) arrived(ctx context.Context, in stream.Opening, c *stream.Claim) (events []stream.CampaignRange,
	err error) {
	var campaigns map[int64]string
	if batch, unreadable := publish.ReadPayload(c.Payload); unreadable == nil {
		if campaigns, err = batch.Campaigns(ctx, a.app.Store(), in); err != nil {
			return nil, err
		}
	}
	for _, r := range c.Events {
		for seq := r.First; seq <= r.Last; seq++ {
			events = stream.AppendEvent(events, campaigns[seq], seq)
		}
	}
	return events, nil
}

// requeueEvents requeues the dead letters of a claim's grants.
func (a Deliveries) requeueEvents(ctx context.Context, c *OpenClaim, o *ClaimDecision) (*model.LetterReport, error) {
	filter := deadletter.Filter{Sinks: []string{configs.SinkKafka}}
	letters, err := a.Letters(ctx, &filter)
	if err != nil {
		return nil, err
	}
	requeue := Requeue{Pick: deadletter.Pick{Filter: filter}, Decision: o.Decision, Patience: o.Patience}
	err = letters.Each(ctx, configs.SinkKafka, c.shard, "", func(page []model.Letter) error {
		for i := range page {
			if slices.ContainsFunc(c.claim.Events, func(r stream.SeqRange) bool { return r.Has(page[i].Seq) }) {
				requeue.Pick.IDs = append(requeue.Pick.IDs, page[i].ID)
			}
		}
		return nil
	})
	if err != nil || len(requeue.Pick.IDs) == 0 {
		return nil, err
	}
	return a.requeueAll(ctx, letters, &requeue)
}
