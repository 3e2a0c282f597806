package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var (
	closeScript         = newDrainScript("close", "fields", "left", "withheld")
	refundedScript      = newDrainScript("refunded")
	purgeCampaignScript = newDrainScript("purge_campaign")
)

// ErrNotInRedis says that a campaign is not on its shard. It was never loaded, or it was refunded and its grace is
// over.
var ErrNotInRedis = errors.New("the campaign is not in Redis")

// ErrRefilling says that a campaign can't be closed yet, because a top-up is not dealt on every shard. Errors that
// wrap it are Transient.
var ErrRefilling = errors.New("packets of its top-up are not dealt on every shard yet")

// ErrNotClosed says that a campaign is not closed yet.
var ErrNotClosed = errors.New("the campaign is not closed")

// Close closes a campaign on its shard and returns its close entry. For a closed campaign it returns the same entry
// again.
func (p Place) Close(ctx context.Context, early bool, packets int64) (stream.Entry, error) {
	how := ""
	if early {
		how = "early"
	}
	for generations := int64(1); ; {
		keys := append([]string{p.Keys.Meta(), p.Keys.Events(), p.Keys.Campaign(p.Campaign), p.Keys.Receipts(p.Campaign),
			p.Keys.Withheld(p.Campaign)}, p.Keys.Stocks(p.Campaign, generations)...)
		reply, err := p.run(ctx, closeScript, keys, []any{how, packets})
		if err != nil {
			return stream.Entry{}, err
		}
		r := replyReader{rest: reply}
		switch r.string() {
		case "refused":
			return stream.Entry{}, refusedClose(p.Campaign, &r)
		case "generations":
			if generations = r.int64(); r.done(closeScript) != nil {
				return stream.Entry{}, r.done(closeScript)
			}
			continue // the loop ends, because the number only rises with each top-up
		}
		_ = r.string() // the state, closed or refunded
		e := readClose(&r, p.Keys, p.Campaign)
		return e, r.done(closeScript)
	}
}

// readClose reads the fields of a close entry: seq, time, epoch, granted, granted amount, left, left amount.
func readClose(r *replyReader, k Keys, campaign string) stream.Entry {
	e := stream.Entry{Shard: k.Index(), Kind: stream.EntryClose, Campaign: campaign, Seq: r.int64()}
	e.Time, e.Epoch = time.UnixMilli(r.int64()).UTC(), r.int64()
	e.Close = stream.Closing{Granted: r.int64(), GrantedAmount: hongbao.Amount(r.int64()), Left: r.int64(),
		LeftAmount: hongbao.Amount(r.int64())}
	return e
}

func refusedClose(campaign string, r *replyReader) error {
	why, state, to := r.string(), r.string(), r.int64()
	if err := r.done(closeScript); err != nil {
		return err
	}
	switch why {
	case "missing":
		return hongbao.Errorf(hongbao.ClassPermanent, "close campaign %s: %w", campaign, ErrNotInRedis)
	case "loading":
		return hongbao.Errorf(hongbao.ClassPermanent, "close campaign %s: it was never opened; complete its load first, "+
			"then close it, and all of its money is refunded", campaign)
	case "window":
		return hongbao.Errorf(hongbao.ClassPermanent, "close campaign %s: it is %s, and its window is open until %s; "+
			"wait for its end, or end it early (--early)", campaign, state, time.UnixMilli(to).UTC().Format(time.RFC3339))
	case "refilling":
		return hongbao.Errorf(hongbao.ClassTransient, "close campaign %s: %w; try again, the close deals them first",
			campaign, ErrRefilling)
	case "frozen":
		return LostError(campaign)
	}
	return hongbao.Errorf(hongbao.ClassBroken,
		"close campaign %s: the script refused for %.40q, which this build does not know", campaign, why)
}

// CloseOf returns the close entry of a campaign that is closed on its shard. Its epoch is that of the shard, because
// Redis still has the close. Otherwise the error is ErrNotInRedis, ErrLost, or ErrNotClosed with the campaign's state. All
// three are Permanent.
func (p Place) CloseOf(ctx context.Context) (stream.Entry, error) {
	pipe := p.rdb.Pipeline()
	epoch := pipe.HGet(ctx, p.Keys.Meta(), "epoch") // read first: the close is of this epoch or of a later one
	fields := p.Keys.askFields(ctx, pipe, p.Campaign, "state", "close_seq", "closed_at", grantedField, grantedAmountField,
		"loaded", "loaded_amount")
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := epoch.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return stream.Entry{}, fmt.Errorf("read the epoch of %s: %w", p.Keys.Meta(), Classify(err))
	}
	f, err := fields()
	switch {
	case err != nil:
		return stream.Entry{}, err
	case f.State == "":
		return stream.Entry{}, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w", p.Campaign, ErrNotInRedis)
	case f.State == StateFrozen:
		return stream.Entry{}, LostError(p.Campaign)
	case !f.Has("close_seq"):
		return stream.Entry{}, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s is %s: %w", p.Campaign, f.State, ErrNotClosed)
	}
	if err := f.Need("close_seq", "closed_at", grantedField, grantedAmountField, "loaded", "loaded_amount"); err != nil {
		return stream.Entry{}, fmt.Errorf("read the close of the campaign in %s: %w", p.Keys.Campaign(p.Campaign), err)
	}
	e := stream.Entry{Shard: p.Index(), Kind: stream.EntryClose, Campaign: p.Campaign, Seq: f.CloseSeq, Time: f.ClosedAt.UTC()}
	if e.Epoch, err = epoch.Int64(); err != nil {
		return stream.Entry{}, hongbao.Errorf(hongbao.ClassBroken, "read the close of campaign %s: the epoch in %s: %w", p.Campaign,
			p.Keys.Meta(), err)
	}
	e.Close = stream.Closing{Granted: f.Granted, GrantedAmount: f.GrantedAmount, Left: f.Loaded - f.Granted,
		LeftAmount: f.LoadedAmount - f.GrantedAmount}
	return e, nil
}

// Refunded records on the shard that a closed campaign was refunded. It returns the time of the first call. The error
// is ErrNotClosed or ErrNotInRedis where they apply.
func (p Place) Refunded(ctx context.Context) (time.Time, error) {
	reply, err := p.run(ctx, refundedScript, []string{p.Keys.Campaign(p.Campaign), p.Keys.Refunded()}, []any{p.Campaign})
	if err != nil {
		return time.Time{}, err
	}
	r := replyReader{rest: reply}
	if r.string() == "ok" {
		at := time.UnixMilli(r.int64()).UTC()
		return at, r.done(refundedScript)
	}
	switch state := r.string(); {
	case r.err != nil:
		return time.Time{}, r.done(refundedScript)
	case state == "":
		return time.Time{}, hongbao.Errorf(hongbao.ClassPermanent, "note the refund of campaign %s: %w", p.Campaign,
			ErrNotInRedis)
	default:
		return time.Time{}, hongbao.Errorf(hongbao.ClassPermanent, "note the refund of campaign %s, which is %s: %w",
			p.Campaign, state, ErrNotClosed)
	}
}

// DueToRetire returns up to count campaigns of the shard that were refunded at least grace ago, by the clock of the
// shard's server.
func (k *Shard) DueToRetire(ctx context.Context, grace time.Duration, count int) ([]string, error) {
	node, err := k.Node(ctx)
	if err != nil {
		return nil, err
	}
	now, err := node.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("ask Redis for its time: %w", Classify(err))
	}
	ids, err := k.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: k.Keys.Refunded(), Start: "-inf", Stop: strconv.FormatInt(now.Add(-grace).UnixMilli(), 10), ByScore: true,
		Count: int64(count),
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("look for refunded campaigns on shard %d: %w", k.Keys.Index(), Classify(err))
	}
	return ids, nil
}

// PurgeCampaign removes a refunded campaign from Redis if its grace is over. Otherwise it returns the rest of the
// grace; 0 means that the campaign is removed. It refuses a campaign that was not refunded.
func (p Place) PurgeCampaign(ctx context.Context, grace time.Duration) (time.Duration, error) {
	generations, err := p.generations(ctx)
	if err != nil {
		return 0, err
	}
	stocks := p.Keys.Stocks(p.Campaign, generations)
	keys := append([]string{p.Keys.Campaign(p.Campaign), stocks[0], p.Keys.Receipts(p.Campaign),
		p.Keys.Counters(p.Campaign, "c"), p.Keys.Codes(p.Campaign), p.Keys.Refunded(), p.Keys.Filter(p.Campaign),
		p.Keys.Withheld(p.Campaign), p.Keys.Answers(p.Campaign)}, stocks[1:]...)
	reply, err := p.run(ctx, purgeCampaignScript, keys, []any{p.Campaign, grace.Milliseconds()})
	if err != nil {
		return 0, err
	}
	r := replyReader{rest: reply}
	switch what := r.string(); what {
	case "gone":
		return 0, nil
	case "waits":
		left := time.Duration(r.int64()) * time.Millisecond
		return left, r.done(purgeCampaignScript)
	default:
		return 0, hongbao.Errorf(hongbao.ClassPermanent, "retire campaign %s: it is %s, only a refunded one leaves Redis",
			p.Campaign, r.string())
	}
}
