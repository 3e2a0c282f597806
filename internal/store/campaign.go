package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var (
	createCampaignScript = newScript("create_campaign", "fields")
	loadScript           = newScript("load", "fields")
	stateScript          = newDrainScript("state", "fields", "control")
)

// LoadState is the progress of a campaign's load on one place.
type LoadState struct {
	State  string // loading, open, paused, ...
	Loaded int64  // loaded packets of all generations
	Hash   string // of the plan that is there
	Dealt  int64  // the newest complete generation; 0 while the first one is loaded
}

// CampaignCall has the arguments of create_campaign.lua.
type CampaignCall struct {
	Campaign string
	Hash     string
	// Places is the number of shards that have the campaign, 0 or 1 for one. If there are several, Place is the
	// number of this one, from 0. Share and ShareAmount are then the number and the sum of this place's packets of
	// the first generation.
	Places, Place int
	Share         int64
	ShareAmount   hongbao.Amount
	// Fields are the other fields and values of the campaign's hash, in turn.
	Fields []string
}

// CreateCampaign puts a campaign on its shard, in state loading. If the campaign is there already, CreateCampaign
// returns the progress of its load.
func (k *Shard) CreateCampaign(ctx context.Context, c *CampaignCall) (LoadState, error) {
	id := c.Campaign
	keys := []string{k.Keys.Meta(), k.Keys.Campaign(id), k.Keys.Stock(id), k.Keys.Receipts(id), k.Keys.Counters(id, "c"),
		k.Keys.Codes(id), k.Keys.Sums(id, 1), k.Keys.Filter(id)}
	args := []any{c.Hash}
	for _, f := range c.Fields {
		args = append(args, f)
	}
	if c.Places > 1 {
		args = append(args, "places", c.Places, "place", c.Place, "share", c.Share, "share_amount",
			int64(c.ShareAmount))
	}
	reply, err := k.run(ctx, createCampaignScript, keys, args)
	if err != nil {
		return LoadState{}, err
	}
	return loadState(createCampaignScript, reply)
}

// MaxChunk is how many packets one call loads at most: a Lua call takes fewer than 8,000 arguments.
const MaxChunk = 5000

// Chunk is a run of packets for the stock.
type Chunk struct {
	Campaign string
	Hash     string // of the campaign's first plan
	// Generation is the generation of the packets; 0 means the first.
	Generation int64
	// Before is how many packets of all generations the place had before this chunk.
	Before int64
	// First is the number of the first packet; packets are numbered from 1. Step is the distance between the numbers
	// of two packets, 0 for 1: a campaign deals its packets to its places in turn.
	First, Step int64
	Amounts     []hongbao.Amount
}

// LoadChunk puts the next packets into the stock of one place. Redis has the chunk if the answer's Loaded covers it.
// A later generation that has no packets for the place is loaded as an empty chunk. Dealt then shows whether Redis
// has it.
func (k *Shard) LoadChunk(ctx context.Context, c *Chunk) (LoadState, error) {
	if len(c.Amounts) > MaxChunk {
		return LoadState{}, hongbao.Errorf(hongbao.ClassPermanent, "load %d packets of campaign %s in one call: at most %d",
			len(c.Amounts), c.Campaign, MaxChunk)
	}
	args := make([]any, 4, 4+len(c.Amounts))
	var sum int64
	for i, a := range c.Amounts {
		sum += int64(a)
		number := c.First + int64(i)*max(c.Step, 1)
		args = append(args, strconv.FormatInt(number, 10)+" "+strconv.FormatInt(int64(a), 10))
	}
	args[0], args[1], args[2], args[3] = c.Hash, max(c.Generation, 1), c.Before, sum
	keys := []string{k.Keys.Campaign(c.Campaign), k.Keys.StockOf(c.Campaign, c.Generation),
		k.Keys.Sums(c.Campaign, c.Generation)}
	reply, err := k.run(ctx, loadScript, keys, args)
	if err != nil {
		return LoadState{}, err
	}
	return loadState(loadScript, reply)
}

func loadState(s *script, reply []string) (LoadState, error) {
	r := replyReader{rest: reply}
	out := LoadState{State: r.string(), Loaded: r.int64(), Hash: r.string()}
	if s == loadScript {
		out.Dealt = r.int64()
	}
	return out, r.done(s)
}

// SetState moves a campaign on its shard from state from to state to. It is no error if the campaign is already in
// state to.
func (k *Shard) SetState(ctx context.Context, campaign, to, from string) error {
	return k.SetStateBy(ctx, campaign, StateChange{To: to, From: from})
}

// StateChange moves a campaign from one state to another. The Decision of a pause or a resume is stored.
type StateChange struct {
	To, From string
	stream.Decision
}

// SetStateBy is SetState that also stores who pauses or resumes the campaign, and why.
func (k *Shard) SetStateBy(ctx context.Context, campaign string, c StateChange) error {
	about := stream.Control{Kind: stream.ControlCampaign, Campaign: campaign}
	reply, err := k.run(ctx, stateScript, []string{k.Keys.Campaign(campaign), k.Keys.Stock(campaign), k.Keys.Controls()},
		[]any{c.To, c.From, c.By, c.Why, about.Name()})
	if err != nil {
		return err
	}
	if len(reply) != 3 || reply[0] != "refused" {
		return nil
	}
	if reply[1] == StateFrozen {
		return LostError(campaign)
	}
	switch reply[2] {
	case "missing":
		return hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w: load it first", campaign, ErrNotInRedis)
	case "packets":
		return hongbao.Errorf(hongbao.ClassPermanent, "campaign %s has not all its packets yet: load it to the end first",
			campaign)
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "campaign %s is %s: only a campaign that is %s can become %s",
		campaign, reply[1], c.From, c.To)
}

// CampaignState returns the campaign's state, empty if it is not there, and its newest complete generation. It does
// not read the stock.
func (k *Shard) CampaignState(ctx context.Context, campaign string) (state string, dealt int64, err error) {
	v, err := k.rdb.HMGet(ctx, k.Keys.Campaign(campaign), "state", "dealt").Result()
	if err != nil {
		return "", 0, fmt.Errorf("read the state of campaign %s: %w", campaign, Classify(err))
	}
	state, _ = v[0].(string)
	text, _ := v[1].(string)
	if dealt, err = strconv.ParseInt(text, 10, 64); err != nil {
		return state, 1, nil //nolint:nilerr // it is absent until a top-up is dealt
	}
	return state, dealt, nil
}
