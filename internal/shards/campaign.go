package shards

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hongbao-project/hongbao"
)

var (
	createCampaignScript = newScript("create_campaign", "fields")
	loadScript           = newScript("load", "fields")
	stateScript          = newDrainScript("state", "fields")
)

// LoadState is how far the load of a campaign is.
type LoadState struct {
	State  string // loading, open, paused, ...
	Loaded int64
	Hash   string // of the plan that is there
}

// CampaignCall is what create_campaign.lua writes.
type CampaignCall struct {
	Campaign string
	Hash     string
	// Fields are the other fields and values of the campaign's hash, in turn.
	Fields []string
}

// CreateCampaign puts a campaign on its shard, in state loading; if it is there already it tells how far the load is.
func (k *Shard) CreateCampaign(ctx context.Context, c *CampaignCall) (LoadState, error) {
	id := c.Campaign
	keys := []string{k.Keys.Meta(), k.Keys.Campaign(id), k.Keys.Stock(id), k.Keys.Receipts(id), k.Keys.Counters(id, "c"),
		k.Keys.Codes(id)}
	args := []any{c.Hash}
	for _, f := range c.Fields {
		args = append(args, f)
	}
	reply, err := k.run(ctx, createCampaignScript, keys, args)
	if err != nil {
		return LoadState{}, err
	}
	return loadState(createCampaignScript, reply)
}

// Chunk is a run of packets for the stock.
type Chunk struct {
	Campaign string
	Hash     string
	// First is the number of the first packet; packets are numbered from 1.
	First   int64
	Amounts []hongbao.Amount
}

// LoadChunk puts the next packets into the stock. The chunk was taken if the answer's Loaded covers it.
func (k *Shard) LoadChunk(ctx context.Context, c *Chunk) (LoadState, error) {
	args := make([]any, 3, 3+len(c.Amounts))
	var sum int64
	for i, a := range c.Amounts {
		sum += int64(a)
		args = append(args, strconv.FormatInt(c.First+int64(i), 10)+" "+strconv.FormatInt(int64(a), 10))
	}
	args[0], args[1], args[2] = c.Hash, c.First-1, sum
	reply, err := k.run(ctx, loadScript, []string{k.Keys.Campaign(c.Campaign), k.Keys.Stock(c.Campaign)}, args)
	if err != nil {
		return LoadState{}, err
	}
	return loadState(loadScript, reply)
}

func loadState(s *script, reply []string) (LoadState, error) {
	r := replyReader{rest: reply}
	out := LoadState{State: r.string(), Loaded: r.int64(), Hash: r.string()}
	return out, r.done(s)
}

// SetState moves a campaign on its shard to a state; from is the state that it must come from. A campaign that is in
// the state already is no error.
func (k *Shard) SetState(ctx context.Context, campaign, to, from string) error {
	reply, err := k.run(ctx, stateScript, []string{k.Keys.Campaign(campaign), k.Keys.Stock(campaign)}, []any{to, from})
	if err != nil {
		return err
	}
	if len(reply) != 3 || reply[0] != "refused" {
		return nil
	}
	if reply[1] == stateFrozen {
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
		campaign, reply[1], from, to)
}

// CampaignFields reads the campaign's hash; empty if it is not there.
func (k *Shard) CampaignFields(ctx context.Context, campaign string) (map[string]string, error) {
	m, err := k.rdb.HGetAll(ctx, k.Keys.Campaign(campaign)).Result()
	if err != nil {
		return nil, fmt.Errorf("read campaign %s: %w", campaign, Classify(err))
	}
	return m, nil
}
