package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Store accesses the data of a deployment in Redis through one client. It is safe for concurrent use.
type Store struct {
	rdb    redis.UniversalClient
	space  hongbao.Space
	shards []*Shard
	// process is a random id by which this Store registers as a witness. answering is the number of producers that
	// use the Store. remembered is the size in bytes of the reported grants that it remembers. forgotten is the
	// number of grants that it forgot before they were settled.
	process                          string
	answering, remembered, forgotten atomic.Int64
}

// stores has the Store of each client and space. Producers, workers and the watch of a process must share what they
// have seen of a shard. Otherwise a loss that only one of them could notice stays unknown. The public packages take a
// client as an argument, so components share a Store if they share a client.
var stores sync.Map // clientSpace to *Store

type clientSpace struct {
	rdb   redis.UniversalClient
	space hongbao.Space
}

// Of returns the Store of a client. It returns the same Store for the same client and space. The process must keep
// the client. So do not pass a node client of a cluster: go-redis creates new ones whenever the topology changes.
func Of(rdb redis.UniversalClient, space hongbao.Space) (*Store, error) {
	at := clientSpace{rdb, space}
	if s, ok := stores.Load(at); ok {
		return s.(*Store), nil //nolint:forcetypeassert // nothing else is put there
	}
	keys, err := keysOf(space)
	if rdb == nil {
		err = errors.Join(errors.New("redis is required"), err)
	}
	if err != nil {
		return nil, err
	}
	s := &Store{rdb: rdb, space: space, shards: make([]*Shard, space.Shards), process: rand.Text()}
	for i := range s.shards {
		s.shards[i] = &Shard{Keys: keys[i], store: s, rdb: rdb, state: &state{}}
	}
	is, _ := stores.LoadOrStore(at, s)
	return is.(*Store), nil //nolint:forcetypeassert // the same
}

// Forget removes the Store of a client that is about to be closed. Without it, the Store of each closed client stays
// in memory.
func (s *Store) Forget() { stores.Delete(clientSpace{s.rdb, s.space}) }

// Over returns the Store for the same deployment and the given client.
func (s *Store) Over(rdb redis.UniversalClient) *Store {
	over, _ := Of(rdb, s.space) // can't fail: the space is valid
	return over
}

// Redis returns the client, for a part of the program that makes its own Store of it. No other package sends commands.
func (s *Store) Redis() redis.UniversalClient { return s.rdb }

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
func (s *Store) Home(campaign string) *Shard {
	h := fnv.New32a()
	_, _ = h.Write([]byte(campaign)) // never fails
	return s.shards[h.Sum32()%uint32(len(s.shards))]
}

// Places returns the shards of a campaign that is dealt over n of them, 1 <= n <= Len. The places are evenly spread
// over the shards, and the first one is the home. Packet k of every generation is dealt to place (k-1) mod n.
func (s *Store) Places(campaign string, n int) []*Shard {
	home, places := s.Home(campaign).Index(), make([]*Shard, n)
	for j := range places {
		places[j] = s.shards[(home+j*len(s.shards)/n)%len(s.shards)]
	}
	return places
}

// Has reports whether a shard is one of the n places of a campaign.
func (s *Store) Has(campaign string, n, shard int) bool {
	return slices.Contains(s.Places(campaign, n), s.shards[shard])
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
