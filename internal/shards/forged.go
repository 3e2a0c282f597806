package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/lua"
)

// Forgeries finds the entries of a shard's stream that no grab and no close of ours wrote: those with seqs or an epoch that
// the shard has not come to, those behind their campaign's close, those of a campaign that lives on another
// shard, closes that their campaign does not tell of, and those whose events are another entry's. It is not for use at once.
type Forgeries struct {
	rdb  redis.UniversalClient
	home func(campaign string) lua.Keys
	keys lua.Keys
	// spans are kept while there are entries that nobody tells of.
	spans spans
}

// standing is what the shard has of a campaign.
type standing struct {
	here      bool  // its hash
	closed    int64 // by this event; 0 if it is not known to be closed
	from      int64 // the window's start in unix ms, -1 if it is not known
	elsewhere bool  // it lives on another shard
}

// NewForgeries makes one for a shard.
func NewForgeries(rdb redis.UniversalClient, space *lua.Space, shard int) *Forgeries {
	return &Forgeries{rdb: rdb, home: space.Home, keys: space.Shard(shard)}
}

// Find gives for each entry why it is a forged one, a Conflict, or nil. All entries must have been read before it is called: an
// event is written in one step with the shard's seq and its receipts, and its campaign is closed for ever before anything
// can stand behind the close. inARow says that no other readable entry stands between them in the stream.
//
// Real events lie one behind the other without a gap. So a row without a gap is real throughout if its first and its last
// entry are, and only their receipts are read: one round trip, however many entries there are. If the row is broken the
// receipts of all are read. What neither receipts nor a close tell of is held against the other entries in the stream that
// have one of its events: if they are told of, or stand before it, it is forged. If it has its events for
// itself the sink has to judge it: the event of an entry that nobody has finished is always in the stream.
func (f *Forgeries) Find(ctx context.Context, entries []*hongbao.Entry, inARow bool) ([]error, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	l := newLook(f, entries)
	if inARow && unbroken(entries) {
		last := len(entries) - 1
		err := l.read(ctx, slices.Compact([]int{0, last})...)
		if err != nil || l.told[0] && l.told[last] {
			f.spans.forget()
			return l.why, err
		}
	}
	if err := l.readAll(ctx); err != nil {
		return nil, err
	}
	return l.why, f.compare(ctx, l)
}

// Real decodes what was read from the stream in one piece, and gives the entries that are real, in their order; unreadable
// ones and forged ones are counted. An entry of a newer build is an error.
func (f *Forgeries) Real(ctx context.Context, raw []RawEntry) (entries []*hongbao.Entry, unreadable, forged int64, err error) {
	for i := range raw {
		e, err := hongbao.ParseEntry(f.keys.Index(), raw[i].ID, raw[i].Values)
		switch {
		case errors.Is(err, hongbao.ErrNewerEntry):
			return nil, 0, 0, err
		case err != nil:
			unreadable++
		default:
			entries = append(entries, &e)
		}
	}
	why, err := f.Find(ctx, entries, true)
	if err != nil {
		return nil, 0, 0, err
	}
	real := entries[:0]
	for i, e := range entries {
		if why[i] == nil {
			real = append(real, e)
		}
	}
	return real, unreadable, int64(len(entries) - len(real)), nil
}

// unbroken tells whether the entries lie one behind the other.
func unbroken(entries []*hongbao.Entry) bool {
	for i := 1; i < len(entries); i++ {
		if entries[i].Seq != entries[i-1].Last()+1 {
			return false
		}
	}
	return true
}

// compare holds what nobody tells of against the other entries of the stream.
func (f *Forgeries) compare(ctx context.Context, l *look) error {
	asked := false
	for i, e := range l.entries {
		if l.told[i] || l.why[i] != nil {
			continue
		}
		if !asked {
			if err := f.spans.read(ctx, f.rdb, f.keys); err != nil {
				return err
			}
			asked = true
		}
		rival, err := f.rival(ctx, e)
		if err != nil {
			return err
		}
		if rival != nil {
			l.why[i] = hongbao.Errorf(hongbao.Conflict, "entry %s has events %d to %d of shard %d, but entry %s (campaign %s, events %d to %d) has them: "+who,
				e.ID, e.Seq, e.Last(), f.keys.Index(), rival.ID, rival.Campaign, rival.Seq, rival.Last())
		}
	}
	if !asked {
		f.spans.forget()
	}
	return nil
}

// rival gives an entry that has one of e's events by a better right: it is told of, or stands before e.
func (f *Forgeries) rival(ctx context.Context, e *hongbao.Entry) (*hongbao.Entry, error) {
	for ids := range slices.Chunk(f.spans.beside(e), 100) {
		var others []*hongbao.Entry
		for _, id := range ids {
			list, err := Of(f.rdb, f.keys).Entries(ctx, id, id)
			if err != nil {
				return nil, err
			}
			for i := range list { // none if it was trimmed meanwhile
				others = append(others, &list[i])
			}
		}
		l := newLook(f, others)
		if err := l.readAll(ctx); err != nil {
			return nil, err
		}
		for i, other := range others {
			if l.why[i] == nil && (l.told[i] || before(other.ID, e.ID)) {
				return other, nil
			}
		}
	}
	return nil, nil
}

// look is what the shard tells of entries.
type look struct {
	f       *Forgeries
	entries []*hongbao.Entry
	head    Head
	known   map[string]standing // by campaign
	asked   []bool
	told    []bool  // all that it says is in the receipts, or it is its campaign's close
	why     []error // it is forged, by its numbers
}

func newLook(f *Forgeries, entries []*hongbao.Entry) *look {
	n := len(entries)
	return &look{f: f, entries: entries, asked: make([]bool, n), told: make([]bool, n), why: make([]error, n)}
}

func (l *look) readAll(ctx context.Context) error {
	all := make([]int, len(l.entries))
	for i := range all {
		all[i] = i
	}
	return l.read(ctx, all...)
}

// read reads the receipts of the entries at those places, and with the first of them how far the shard has come and how the
// campaigns of all entries stand: one round trip.
func (l *look) read(ctx context.Context, places ...int) error {
	f, pipe := l.f, l.f.rdb.Pipeline()
	var meta *redis.SliceCmd
	states := make(map[string]*redis.SliceCmd)
	if l.known == nil {
		meta = pipe.HMGet(ctx, f.keys.Meta(), headFields...)
		for _, e := range l.entries {
			if states[e.Campaign] == nil {
				states[e.Campaign] = pipe.HMGet(ctx, f.keys.Campaign(e.Campaign), "state", "close_seq", "from")
			}
		}
	}
	receipts := make(map[int]*redis.SliceCmd, len(places))
	for _, i := range places {
		if e := l.entries[i]; !l.asked[i] && e.Kind == hongbao.EntryGrant {
			l.asked[i] = true
			receipts[i] = pipe.HMGet(ctx, f.keys.Receipts(e.Campaign), users(e)...)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	if meta != nil {
		if err := l.judge(ctx, meta, states); err != nil {
			return err
		}
	}
	for i, cmd := range receipts {
		texts, err := cmd.Result()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // a key that was written by hand tells nothing
			return fmt.Errorf("read the receipts of campaign %s: %w", l.entries[i].Campaign, Classify(err))
		}
		l.told[i] = err == nil && inReceipts(l.entries[i], l.known[l.entries[i].Campaign].from, texts)
	}
	return nil
}

func users(e *hongbao.Entry) []string {
	out := make([]string, len(e.Grants))
	for i := range out {
		out[i] = e.Grants[i].User
	}
	return out
}

// inReceipts tells whether every grant of the entry is in its user's receipts. Its time is compared if the window's start is known.
func inReceipts(e *hongbao.Entry, from int64, texts []any) bool {
	for i := range e.Grants {
		g := &e.Grants[i]
		text, _ := texts[i].(string)
		list, err := ParseReceipts(g.Shard, max(from, 0), text)
		if err != nil || !slices.ContainsFunc(list, func(r hongbao.Receipt) bool {
			return r.Seq == g.Seq && r.Packet == g.Packet && r.Amount == g.Amount && r.RequestID == g.RequestID &&
				(from < 0 || r.Time.Equal(g.Time))
		}) {
			return false
		}
	}
	return true
}

// judge tells what is forged by its numbers, and which closes are real.
func (l *look) judge(ctx context.Context, meta *redis.SliceCmd, states map[string]*redis.SliceCmd) (err error) {
	if l.head, err = readHead(l.f.keys, meta); err != nil {
		return err
	}
	l.known = make(map[string]standing, len(states))
	for id, cmd := range states {
		at, err := standingOf(cmd)
		if err == nil && !at.here && l.f.home(id) != l.f.keys {
			at.elsewhere, err = l.f.atHome(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("read whether campaign %s is open: %w", id, Classify(err))
		}
		l.known[id] = at
	}
	for i, e := range l.entries {
		l.why[i] = l.byNumbers(e)
		l.told[i] = e.Kind == hongbao.EntryClose && l.known[e.Campaign].closed == e.Seq
	}
	return nil
}

// standingOf reads the standing of a campaign on the shard. A key that was written by hand tells nothing.
func standingOf(cmd *redis.SliceCmd) (standing, error) {
	v, err := cmd.Result()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return standing{here: true, from: -1}, nil
	}
	if err != nil {
		return standing{}, err
	}
	number := func(v any, otherwise int64) int64 {
		text, _ := v.(string)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return otherwise
		}
		return n
	}
	return standing{here: v[0] != nil, closed: number(v[1], 0), from: number(v[2], -1)}, nil
}

// atHome tells whether a campaign is on the shard where it belongs.
func (f *Forgeries) atHome(ctx context.Context, campaign string) (bool, error) {
	n, err := f.rdb.Exists(ctx, f.home(campaign).Campaign(campaign)).Result()
	return n > 0, err
}

const who = "no grab wrote it; find out who can write to Redis"

func (l *look) byNumbers(e *hongbao.Entry) error {
	k, at := l.f.keys, l.known[e.Campaign]
	switch isClose := e.Kind == hongbao.EntryClose; {
	case l.head.Behind(e):
		return hongbao.Errorf(hongbao.Conflict, "entry %s has events %d to %d of epoch %d, but shard %d has come to event %d of epoch %d only: "+who,
			e.ID, e.Seq, e.Last(), e.Epoch, k.Index(), l.head.Seq, l.head.Epoch)
	case e.Seq < l.head.Kept:
		return hongbao.Errorf(hongbao.Conflict, "entry %s has events %d to %d, but all below %d of shard %d were finished long ago and have left the stream: "+who,
			e.ID, e.Seq, e.Last(), l.head.Kept, k.Index())
	case at.elsewhere:
		return hongbao.Errorf(hongbao.Conflict, "entry %s is on shard %d, but campaign %s lives on shard %d: "+who,
			e.ID, k.Index(), e.Campaign, l.f.home(e.Campaign).Index())
	case at.closed > 0 && (isClose && e.Seq != at.closed || !isClose && e.Last() >= at.closed):
		return hongbao.Errorf(hongbao.Conflict, "entry %s, a %s, has events %d to %d, but campaign %s was closed on shard %d by event %d: "+who,
			e.ID, e.Kind, e.Seq, e.Last(), e.Campaign, k.Index(), at.closed)
	case isClose && at.here && at.closed == 0:
		return hongbao.Errorf(hongbao.Conflict, "entry %s is a close, but campaign %s is not closed on shard %d: "+who, e.ID, e.Campaign, k.Index())
	}
	return nil
}
