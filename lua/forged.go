package lua

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// maxStandings bounds how many campaigns Forgeries keeps in mind.
const maxStandings = 10_000

// Forgeries finds the entries of a shard's stream that no grab and no close of ours wrote, as far as their numbers tell it: those with seqs or an
// epoch that the shard has not come to, those behind their campaign's close, and those of a campaign that lives on
// another shard. It is not for use at once.
type Forgeries struct {
	rdb   redis.UniversalClient
	home  func(campaign string) Keys
	keys  Keys
	head  Head                // the furthest that the shard is known to have come
	known map[string]standing // by campaign
}

// standing is what is known of a campaign on the shard: up to event seq nothing of it stands behind its close.
type standing struct {
	seq       int64
	closed    bool // by event seq
	elsewhere bool // it lives on another shard
}

// before tells whether the entry stands behind what is known.
func (at *standing) before(e *hongbao.Entry) bool {
	return e.Last() > at.seq || at.closed && e.Kind == hongbao.EntryGrant && e.Last() == at.seq
}

// NewForgeries makes one for a shard.
func NewForgeries(rdb redis.UniversalClient, space *Space, shard int) *Forgeries {
	return &Forgeries{rdb: rdb, home: space.Home, keys: space.Shard(shard), known: make(map[string]standing)}
}

// Find gives for each entry why it is a forged one, a Conflict, or nil. All entries must have been read before it is called: an
// event is written in one step with the shard's seq, and its campaign is closed for ever before anything can stand behind
// the close.
//
// Redis is asked once a call, and only if an entry lies above all that is known of the shard or of its campaign. A
// campaign that has left Redis, or that nobody knows, tells nothing: then the sink has to judge.
func (f *Forgeries) Find(ctx context.Context, entries []*hongbao.Entry) ([]error, error) {
	if len(f.known) > maxStandings {
		clear(f.known)
	}
	if err := f.learn(ctx, f.unknown(entries)); err != nil {
		return nil, err
	}
	why := make([]error, len(entries))
	for i, e := range entries {
		why[i] = f.judge(e)
	}
	return why, nil
}

// unknown gives the campaigns to ask for. No entry is found forged by what was read for an earlier one: Redis may have gone
// back in time since, and a campaign be open again.
func (f *Forgeries) unknown(entries []*hongbao.Entry) []string {
	var ids []string
	asked := make(map[string]bool)
	for _, e := range entries {
		at := f.known[e.Campaign]
		if !asked[e.Campaign] && (f.head.Behind(e) || at.elsewhere || at.before(e)) {
			asked[e.Campaign] = true
			ids = append(ids, e.Campaign)
		}
	}
	return ids
}

// learn reads how far the shard has come, and then the campaigns: one that is open after that has no close up to there.
func (f *Forgeries) learn(ctx context.Context, campaigns []string) error {
	if len(campaigns) == 0 {
		return nil
	}
	pipe := f.rdb.Pipeline()
	meta := pipe.HMGet(ctx, f.keys.Meta(), "seq", "epoch")
	states := make([]*redis.SliceCmd, len(campaigns))
	for i, id := range campaigns {
		states[i] = pipe.HMGet(ctx, f.keys.Campaign(id), "state", "close_seq")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	head, err := readHead(f.keys, meta)
	if err != nil {
		return err
	}
	for i, id := range campaigns {
		at, found, err := standingOf(states[i], head)
		if err == nil && !found && f.home(id) != f.keys {
			at.elsewhere, err = f.atHome(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("read whether campaign %s is open: %w", id, Classify(err))
		}
		f.known[id] = at
	}
	f.head = head
	return nil
}

// standingOf reads the standing of a campaign on the shard. A key that was written by hand tells nothing.
func standingOf(cmd *redis.SliceCmd, head Head) (at standing, found bool, err error) {
	at.seq = head.Seq
	v, err := cmd.Result()
	if err != nil {
		planted := redis.HasErrorPrefix(err, "WRONGTYPE")
		if planted {
			err = nil
		}
		return at, planted, err
	}
	text, _ := v[1].(string)
	if seq, err := strconv.ParseInt(text, 10, 64); err == nil {
		at.seq, at.closed = seq, true
	}
	return at, v[0] != nil, nil
}

// atHome tells whether a campaign is on the shard where it belongs.
func (f *Forgeries) atHome(ctx context.Context, campaign string) (bool, error) {
	n, err := f.rdb.Exists(ctx, f.home(campaign).Campaign(campaign)).Result()
	return n > 0, err
}

func (f *Forgeries) judge(e *hongbao.Entry) error {
	const who = "no grab wrote it; find out who can write to Redis"
	switch at := f.known[e.Campaign]; {
	case f.head.Behind(e):
		return hongbao.Errorf(hongbao.Conflict, "entry %s has events %d to %d of epoch %d, but shard %d has come to event %d of epoch %d only: "+who,
			e.ID, e.Seq, e.Last(), e.Epoch, f.keys.Index(), f.head.Seq, f.head.Epoch)
	case at.closed && at.before(e):
		return hongbao.Errorf(hongbao.Conflict, "entry %s has events %d to %d, but campaign %s was closed on shard %d by event %d: "+who,
			e.ID, e.Seq, e.Last(), e.Campaign, f.keys.Index(), at.seq)
	case at.elsewhere:
		return hongbao.Errorf(hongbao.Conflict, "entry %s is on shard %d, but campaign %s lives on shard %d: "+who,
			e.ID, f.keys.Index(), e.Campaign, f.home(e.Campaign).Index())
	}
	return nil
}
