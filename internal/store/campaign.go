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
	loadScript           = newScript("load", "fields", "withheld")
	stateScript          = newDrainScript("state", "fields", "control")
)

// LoadState is the progress of a campaign's load on one place.
type LoadState struct {
	State  string // State constant, e.g. StateLoading
	Loaded int64  // number of loaded packets, of all generations
	Hash   string // hash of the plan in Redis
	Dealt  int64  // the newest complete generation; 0 while the first one is loaded
}

// CampaignCall has the arguments of create_campaign.lua.
type CampaignCall struct {
	Campaign string
	Hash     string
	// Places is the number of shards that have the campaign; 0 means 1. The other three fields are only used if it is
	// above 1. Place is the number of this place, from 0. Share and ShareAmount are the number and the sum of this
	// place's packets in the first generation.
	Places, Place int
	Share         int64
	ShareAmount   hongbao.Amount
	// Fields are the remaining fields of the campaign's hash: name, value, name, value and so on.
	Fields []string
}

// CreateCampaign puts a campaign on its shard, in state loading. If the campaign is there already, CreateCampaign
// returns the progress of its load.
func (k *Shard) CreateCampaign(ctx context.Context, c *CampaignCall) (LoadState, error) {
	id := c.Campaign
	keys := []string{k.Keys.Meta(), k.Keys.Campaign(id), k.Keys.Stock(id), k.Keys.Receipts(id), k.Keys.Counters(id, "c"),
		k.Keys.Codes(id), k.Keys.LoadedTotals(id, 1), k.Keys.Filter(id)}
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

// MaxChunk is the most packets that one call may load: a Lua call takes fewer than 8,000 arguments.
const MaxChunk = 5000

// Chunk is a run of packets for the stock.
type Chunk struct {
	Campaign string
	Hash     string // hash of the campaign's first plan
	// Generation is the generation of the packets; 0 means the first.
	Generation int64
	// Before is the number of packets that were loaded at the place before this chunk, over all generations.
	Before int64
	// First is the number of the first packet; packets are numbered from 1. Step is the difference between the
	// numbers of successive packets; 0 means 1. With several places Step is their number, because packets are dealt
	// to the places in turn.
	First, Step int64
	Amounts     []hongbao.Amount
}

// LoadChunk puts the next packets into the stock of one place. The chunk is in Redis if Loaded in the answer includes
// its packets. A later generation without packets for this place is loaded as an empty chunk. The chunk is then in
// Redis if Dealt in the answer includes the generation.
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
		k.Keys.LoadedTotals(c.Campaign, c.Generation), k.Keys.Withheld(c.Campaign)}
	reply, err := paced(ctx, k.state.pace, func() ([]string, error) { return k.run(ctx, loadScript, keys, args) })
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

// SetState changes the state of a campaign on its shard. It is no error if the campaign already has that state.
func (p Place) SetState(ctx context.Context, to, from string) error {
	_, err := p.SetStateBy(ctx, StateChange{To: to, From: from})
	return err
}

// StateChange moves a campaign from one state to another. A pause or a resume also stores the Decision: who made it
// and why.
type StateChange struct {
	To, From string
	stream.Decision
}

// SetStateBy is SetState that also stores who pauses or resumes the campaign, and why. changed is false if a pause or a
// resume found the campaign in that state.
func (p Place) SetStateBy(ctx context.Context, c StateChange) (changed bool, err error) {
	about := stream.Control{Kind: stream.ControlCampaign, Campaign: p.Campaign}
	reply, err := p.run(ctx, stateScript, []string{p.Keys.Campaign(p.Campaign), p.Keys.Stock(p.Campaign), p.Keys.Controls()},
		[]any{c.To, c.From, c.By, c.Why, about.Name()})
	if err != nil {
		return false, err
	}
	if len(reply) != 3 || reply[0] != "refused" {
		return len(reply) == 3 && reply[2] == "1", nil
	}
	if reply[1] == StateFrozen {
		return false, LostError(p.Campaign)
	}
	switch reply[2] {
	case "missing":
		return false, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w: load it first", p.Campaign, ErrNotInRedis)
	case "packets":
		return false, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s does not have all its packets yet: complete its load",
			p.Campaign)
	}
	return false, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s is %s: only a campaign that is %s can become %s",
		p.Campaign, reply[1], c.From, c.To)
}

// HasCampaign reports whether the shard has the campaign, also if its hash lacks the state.
func (p Place) HasCampaign(ctx context.Context) (bool, error) {
	n, err := p.rdb.Exists(ctx, p.Keys.Campaign(p.Campaign)).Result()
	if err != nil {
		return false, fmt.Errorf("look for campaign %s: %w", p.Campaign, Classify(err))
	}
	return n > 0, nil
}

// CampaignState returns the campaign's state and its newest complete generation. The state is empty if the shard does
// not have the campaign. It does not read the stock.
func (p Place) CampaignState(ctx context.Context) (state string, dealt int64, err error) {
	f, err := p.fields(ctx, "state", "dealt")
	if err != nil {
		return "", 0, err
	}
	return f.State, max(1, f.Dealt), nil // the field dealt is absent until a top-up is dealt
}
