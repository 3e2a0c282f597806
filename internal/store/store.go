package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Config says where a deployment's data are in Redis.
type Config struct {
	Redis redis.UniversalClient
	// Reads is a second client to the same Redis, for reads that wait for new events; nil means Redis. Its read timeout
	// must be longer than these reads wait, and its pool needs a connection for each of them.
	Reads redis.UniversalClient
	Space hongbao.Space
	// Deployment is the id of the deployment. It is empty in a process that finds out which deployment the Redis has.
	Deployment string
}

// Store accesses the data of a deployment in Redis. It is safe for concurrent use. The producers, workers and the watch
// of a process share one Store, because they must share what they have seen of a shard. Otherwise a loss that only one
// of them could notice stays unknown.
type Store struct {
	rdb, reads redis.UniversalClient
	space      hongbao.Space
	id         string      // of the deployment
	found      atomic.Bool // Redis has once said that it belongs to the deployment
	shards     []*Shard
	// process is a random id by which this Store registers as a witness. answering is the number of producers that
	// use the Store. remembered is the size in bytes of the reported grants that it remembers. forgotten is the
	// number of grants that it forgot before they were settled.
	process                          string
	answering, remembered, forgotten atomic.Int64
}

// New returns a Store. It does not call Redis.
func New(cfg Config) (*Store, error) {
	keys, err := keysOf(cfg.Space)
	if cfg.Redis == nil {
		err = errors.Join(errors.New("redis is required"), err)
	}
	if err != nil {
		return nil, err
	}
	if cfg.Reads == nil {
		cfg.Reads = cfg.Redis
	}
	s := &Store{rdb: cfg.Redis, reads: cfg.Reads, space: cfg.Space, id: cfg.Deployment,
		shards: make([]*Shard, cfg.Space.Shards), process: rand.Text()}
	_, cluster := cfg.Redis.(*redis.ClusterClient)
	server := &pace{}
	for i := range s.shards {
		if cluster { // the shards are on several servers
			server = &pace{}
		}
		s.shards[i] = &Shard{Keys: keys[i], store: s, rdb: cfg.Redis, state: &state{pace: server}}
	}
	return s, nil
}

// slotsAge is the maximum age of a client's map of a cluster's slots. A dead node can't redirect the client. With
// go-redis' default, the client would dial that node for up to a minute after a failover.
const slotsAge = time.Second

// NewCluster returns the client of a cluster.
func NewCluster(o *redis.ClusterOptions) *redis.ClusterClient {
	o.ClusterStateReloadInterval = slotsAge
	return redis.NewClusterClient(o)
}

// Over returns a Store of its own for the same deployment and the given client.
func (s *Store) Over(rdb redis.UniversalClient) *Store {
	over, _ := New(Config{Redis: rdb, Space: s.space, Deployment: s.id}) // can't fail: the space is valid
	return over
}

// Redis returns the client, for a part of the program that makes its own Store of it. No other package sends commands.
func (s *Store) Redis() redis.UniversalClient { return s.rdb }

// CheckReads returns an error for each option of the client for blocking reads that does not fit reads that wait for
// this time. If a read timed out in the client, nobody would handle the entries that Redis had already delivered until
// their lease ended. If the pool were too small, a shard would wait for the connections of other shards.
func (s *Store) CheckReads(wait time.Duration) (errs []error) {
	var timeout time.Duration
	var pool int
	switch r := s.reads.(type) {
	case *redis.Client:
		timeout, pool = r.Options().ReadTimeout, r.Options().PoolSize
	case *redis.ClusterClient:
		timeout, pool = r.Options().ReadTimeout, r.Options().PoolSize
	default:
		return nil
	}
	if timeout > 0 && timeout <= wait {
		errs = append(errs, fmt.Errorf("the client for blocking reads has a read timeout of %s: want more than Block, %s",
			timeout, wait))
	}
	if pool < s.Len() {
		errs = append(errs, fmt.Errorf("the client for blocking reads has a pool of %d connections: want one for each of the "+
			"%d shards", pool, s.Len()))
	}
	return errs
}

// Space returns the deployment's key prefix and number of shards.
func (s *Store) Space() hongbao.Space { return s.space }

// Len returns the number of shards.
func (s *Store) Len() int { return len(s.shards) }

// Shard returns shard i, 0 <= i < Len.
func (s *Store) Shard(i int) *Shard { return s.shards[i] }

// Shards returns all shards.
func (s *Store) Shards() []*Shard { return s.shards }

// Home returns a campaign's first place, where the number of its places is stored. The shard's number is the FNV-1a
// hash of the id, modulo the number of shards.
func (s *Store) Home(campaign string) Place {
	h := fnv.New32a()
	_, _ = h.Write([]byte(campaign)) // never fails
	return s.shards[h.Sum32()%uint32(len(s.shards))].Place(campaign)
}

// Places returns the shards of a campaign that is dealt over n of them, 1 <= n <= Len. The places are evenly spread
// over the shards, and the first one is the home. Packet k of every generation is dealt to place (k-1) mod n.
func (s *Store) Places(campaign string, n int) []Place {
	home, places := s.Home(campaign).Index(), make([]Place, n)
	for j := range places {
		places[j] = s.shards[(home+j*len(s.shards)/n)%len(s.shards)].Place(campaign)
	}
	return places
}

// Has reports whether a shard is one of the n places of a campaign.
func (s *Store) Has(campaign string, n, shard int) bool {
	return slices.Contains(s.Places(campaign, n), s.shards[shard].Place(campaign))
}

// Deployment returns the key of the hash with the id of the deployment that owns the prefix, and its number of
// shards. The key's name depends only on the prefix.
func (s *Store) Deployment() string { return s.space.Prefix + ":{deployment}" }

// Journal returns the key of a list: the entries of the journal that wait for the ledger, the newest first.
func (s *Store) Journal() string { return s.space.Prefix + ":{journal}" }

// filtersWanted returns the key of a hash from campaign to revision. A producer requests a filter of the winners by
// adding a field.
func (s *Store) filtersWanted() string { return s.space.Prefix + ":{filters}" }

// Time returns the time of Redis. On a cluster it is the time of any node.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return now, fmt.Errorf("read the time of Redis: %w", Classify(err))
	}
	return now, nil
}

// Entries returns a shard's decoded entries from firstID to lastID, both included. It omits unreadable and forged
// entries, and entries that are no longer in the stream.
func (s *Store) Entries(ctx context.Context, in stream.Opening, firstID, lastID string) ([]stream.Entry, error) {
	k := s.shards[in.Shard].At(in.Epoch)
	raw, err := k.rangeAll(ctx, firstID, lastID)
	if err != nil {
		return nil, err
	}
	entries, _, _, err := k.Decode(ctx, raw)
	return entries, err
}

// Campaign returns a campaign of the deployment. It does not call Redis.
func (s *Store) Campaign(id string) Campaign { return Campaign{s, id} }

// Campaign is a campaign on all of its shards.
type Campaign struct {
	store *Store
	id    string
}

// Index returns the shard's number in its deployment.
func (k *Shard) Index() int { return k.Keys.shard }

// Node returns the client of the server that has the shard now. Callers must not cache it, because of slot migrations
// and failovers.
func (k *Shard) Node(ctx context.Context) (redis.UniversalClient, error) {
	cluster, ok := k.rdb.(*redis.ClusterClient)
	if !ok {
		return k.rdb, nil
	}
	node, err := cluster.MasterForKey(ctx, k.Keys.Meta())
	if err != nil {
		return nil, fmt.Errorf("find the node of shard %d: %w", k.Index(), Classify(err))
	}
	return node, nil
}
