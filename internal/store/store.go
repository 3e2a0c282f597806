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

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Store is a deployment in Redis, reached by one client. It is safe for concurrent use.
type Store struct {
	rdb    redis.UniversalClient
	space  hongbao.Space
	shards []*Shard
	// process names this Store among the processes that watch the deployment. answering is the number of producers
	// that answer users through it. remembered is the number of bytes of the grants that it remembers. forgotten is
	// the number of grants that it forgot before they were settled.
	process                          string
	answering, remembered, forgotten atomic.Int64
}

// stores has the Store of each client and space. The parts of a process that share a client (producers, workers, the
// watch) must share what they have seen of a shard. Otherwise a loss that one of them could prove stays unknown. Each
// public package takes a client, so only the client shows that they belong together.
var stores sync.Map // clientSpace to *Store

type clientSpace struct {
	rdb   redis.UniversalClient
	space hongbao.Space
}

// Of returns the Store of a client: always the same one for the same client and space. The client must be one that
// the process keeps. A node client of a cluster is not, because go-redis creates new ones whenever the topology
// changes.
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

// Forget removes the Store of a client that is about to be closed. A process that closes clients must call it, or it
// keeps the Store of each.
func (s *Store) Forget() { stores.Delete(clientSpace{s.rdb, s.space}) }

// Over returns the Store of the same deployment for another client.
func (s *Store) Over(rdb redis.UniversalClient) *Store {
	over, _ := Of(rdb, s.space) // the space is valid
	return over
}

// Redis returns the client, for reads without a method.
func (s *Store) Redis() redis.UniversalClient { return s.rdb }

// Space returns the deployment's key prefix and number of shards.
func (s *Store) Space() hongbao.Space { return s.space }

// Len returns the number of shards.
func (s *Store) Len() int { return len(s.shards) }

// Shard returns shard i, 0 <= i < Len.
func (s *Store) Shard(i int) *Shard { return s.shards[i] }

// Shards returns all shards.
func (s *Store) Shards() []*Shard { return s.shards }

// Home returns a campaign's first place, which knows how many places the campaign has. It is the shard with the
// number FNV-1a of the id, modulo the number of shards.
func (s *Store) Home(campaign string) *Shard {
	h := fnv.New32a()
	_, _ = h.Write([]byte(campaign)) // never fails
	return s.shards[h.Sum32()%uint32(len(s.shards))]
}

// Places returns the shards of a campaign that is dealt over n of them, 1 <= n <= Len. They are evenly spread,
// beginning at its home. Packet k of every generation is dealt to place (k-1) mod n.
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

// Deployment returns the key of the hash that names the deployment that owns the prefix, with its number of shards.
// The key depends on neither.
func (s *Store) Deployment() string { return s.space.Prefix + ":{deployment}" }

// Journal returns the key of a list: the entries of the journal that wait for the ledger, the newest first.
func (s *Store) Journal() string { return s.space.Prefix + ":{journal}" }

// filtersWanted returns the key of a hash: campaign to the revision for which a producer requests a filter of the
// winners.
func (s *Store) filtersWanted() string { return s.space.Prefix + ":{filters}" }

// Entries returns a shard's decoded entries from firstID to lastID, both included. It leaves out unreadable entries,
// entries that the shard's head refutes, and entries that are gone.
func (s *Store) Entries(ctx context.Context, shard int, firstID, lastID string) ([]stream.Entry, error) {
	raw, err := s.shards[shard].rangeAll(ctx, firstID, lastID)
	if err != nil {
		return nil, err
	}
	entries, _, _, err := s.shards[shard].Decode(ctx, raw)
	return entries, err
}

// Campaign returns a campaign of the deployment. It reads nothing.
func (s *Store) Campaign(id string) Campaign { return Campaign{s, id} }

// Campaign is a campaign on all of its shards.
type Campaign struct {
	store *Store
	id    string
}

// Index returns the shard's number in its deployment.
func (k *Shard) Index() int { return k.Keys.shard }

// Node returns the client of the server that has the shard now. Callers ask again each time, because a cluster moves
// slots and fails over.
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
