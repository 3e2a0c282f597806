package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// ServerState is the state of one server of Redis and of its shards.
type ServerState struct {
	Server Server
	// Address is the address at which the server was reached; "primary" if sentinels name it.
	Address string
	// RequiredReplicas is the number of replicas that durability class replica waits for: the most that the server has
	// had since its shards were opened there.
	RequiredReplicas int
	Shards           []ShardState
}

// ShardState is the state of a shard. A shard that Redis has lost is not open, and its Seq is 0.
type ShardState struct {
	Shard int
	Open  bool
	Seq   int64
}

// ServerStates returns the state of every server that has shards. It takes one round trip for each server.
func (s *Store) ServerStates(ctx context.Context) ([]ServerState, error) {
	w := &Watch{Store: s}
	var all []ServerState
	var failed []error
	for node, list := range w.nodes(ctx) {
		now, err := w.readServer(ctx, node, list)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		one := ServerState{Server: now.server, Address: address(node)}
		for _, i := range list {
			one.RequiredReplicas = max(one.RequiredReplicas, now.replicas[i])
			one.Shards = append(one.Shards, ShardState{Shard: i, Open: !slices.Contains(now.notOpen, i), Seq: now.heads[i].Seq})
		}
		all = append(all, one)
	}
	if all == nil && failed == nil {
		return nil, hongbao.Outagef(hongbao.ClassTransient, "no server of Redis can be found that has a shard")
	}
	return all, errors.Join(failed...)
}

// underSentinels is the address of a client that asks sentinels for the primary: the library has this text there, and
// no method for the primary's address.
const underSentinels = "FailoverClient"

// address returns the address of a server, or "primary" if sentinels name it.
func address(node redis.UniversalClient) string {
	if c, ok := node.(*redis.Client); ok && c.Options().Addr != underSentinels {
		return c.Options().Addr
	}
	return "primary"
}

// Left returns how many packets each campaign has left, on all its places. It omits a campaign that is missing on any
// of its places.
func (s *Store) Left(ctx context.Context, campaigns []string) (map[string]int64, error) {
	homes, err := askLeft(ctx, s.rdb, s.homes(campaigns))
	if err != nil {
		return nil, err
	}
	left := map[string]int64{}
	var elsewhere []placeAsk
	for i, id := range campaigns {
		h := homes[i]
		others, err := s.elsewhere(id, int(h.Places))
		if h.Packets == 0 || err != nil { // the audit reports a wrong field places
			continue
		}
		left[id] = h.Packets - h.granted()
		elsewhere = append(elsewhere, others...)
	}
	others, err := askLeft(ctx, s.rdb, elsewhere)
	if err != nil {
		return nil, err
	}
	for i, a := range elsewhere {
		if others[i].Packets == 0 { // not there
			delete(left, a.campaign)
		} else if _, whole := left[a.campaign]; whole {
			left[a.campaign] -= others[i].granted()
		}
	}
	return left, nil
}

// placeAsk asks one place about a campaign.
type placeAsk struct {
	campaign string
	place    Keys
}

// homes asks the home shard of each campaign.
func (s *Store) homes(campaigns []string) []placeAsk {
	asks := make([]placeAsk, len(campaigns))
	for i, id := range campaigns {
		asks[i] = placeAsk{id, s.Home(id).Keys}
	}
	return asks
}

// elsewhere asks the other places of a campaign whose home shard has this field places; 0 means one place.
func (s *Store) elsewhere(campaign string, places int) (asks []placeAsk, err error) {
	list, err := s.Campaign(campaign).placesOf(max(places, 1))
	if err != nil {
		return nil, err
	}
	for _, k := range list[1:] {
		asks = append(asks, placeAsk{campaign, k.Keys})
	}
	return asks, nil
}

// leftAnswer is a campaign on one place. Packets is 0 if the place does not have the campaign.
type leftAnswer struct {
	*CampaignFields
	stocked int64
}

func (a *leftAnswer) granted() int64 {
	if a.Has(grantedField) { // the campaign is closed
		return a.Granted
	}
	return a.Loaded - a.stocked
}

// leftFields are what askLeft reads.
var leftFields = []string{"packets", placesField, "generation", "loaded", grantedField}

func askLeft(ctx context.Context, rdb redis.UniversalClient, asks []placeAsk) ([]leftAnswer, error) {
	if len(asks) == 0 {
		return nil, nil
	}
	pipe := rdb.Pipeline()
	fields, stocks := make([]func() (*CampaignFields, error), len(asks)), make([][]*redis.IntCmd, len(asks))
	for i, a := range asks {
		fields[i] = a.place.askFields(ctx, pipe, a.campaign, leftFields...)
		stocks[i] = append(stocks[i], pipe.LLen(ctx, a.place.Stock(a.campaign)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("ask what campaigns have left: %w", Classify(err))
	}
	answers := make([]leftAnswer, len(asks))
	for i := range fields {
		f, err := fields[i]()
		if err != nil || f.Readable(leftFields...) != nil { // treated as missing, and the audit reports it
			f = &CampaignFields{}
		}
		answers[i].CampaignFields = f
		for g := int64(2); g <= min(answers[i].Generation, MaxGenerations); g++ {
			stocks[i] = append(stocks[i], pipe.LLen(ctx, asks[i].place.StockOf(asks[i].campaign, g)))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil { // sends nothing if no campaign has a top-up
		return nil, fmt.Errorf("ask what campaigns have left: %w", Classify(err))
	}
	for i := range stocks {
		for _, n := range stocks[i] {
			answers[i].stocked += n.Val()
		}
	}
	return answers, nil
}
