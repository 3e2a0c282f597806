package find

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/topic"
)

// Trail shows where the grants of one user or of one packet are in a campaign. It contains no coupon codes, because
// only the users may see these.
type Trail struct {
	Campaign string      `json:"campaign" doc:"The campaign's id."`
	Currency string      `json:"currency,omitempty" doc:"Currency of the amounts; absent if there is none, or if it is unknown."`
	Steps    []TrailStep `json:"grants" doc:"The trail of each grant, in the order of the packets. A null step was not found, or its store is in 'unread'."`
	// Unread are the stores that could not be read. A step that is missing in such a store means nothing.
	Unread []Unread `json:"unread" doc:"Stores that could not be read. For such a store, a null step does not mean that the grant is missing."`
	TrailCampaign
}

// Unread is a store that could not be read.
type Unread struct {
	Where string `json:"where" doc:"The store: 'redis', 'ledger' or 'topic'."`
	Why   string `json:"why" doc:"Why the store could not be read: the error, as text."`
}

// TrailStep is the path of one packet, from the receipt to the topic. A field is nil if nothing was found there.
type TrailStep struct {
	Packet int64 `json:"packet" doc:"Number of the packet in the campaign."`
	// Receipt is the answer that the user got. Ledger is what the ledger has booked for this packet.
	Receipt *TrailGrant  `json:"receipt" doc:"The user's receipt in Redis. Null if Redis has no receipt."`
	Entry   *TrailEntry  `json:"entry" doc:"The grant's entry in the shard's stream. Null once the entry was trimmed."`
	Ledger  *TrailGrant  `json:"ledger" doc:"What the ledger booked for the packet. Null if it booked nothing."`
	Topic   *TrailRecord `json:"topic" doc:"The grant's record in the topic. Null if the record was not found."`
	// Sinks says for each sink whether it has finished the grant.
	Sinks []TrailSink `json:"sinks" doc:"For each sink, whether it has finished the grant. Empty if the shard could not be read."`
	TrailMoney
}

// TrailGrant is a grant as a receipt or the ledger has it.
type TrailGrant struct {
	Event     string         `json:"event" doc:"Id of the grant's event, as SHARD-SEQ."`
	User      string         `json:"user" doc:"User who got the packet."`
	Amount    hongbao.Amount `json:"amount" doc:"Amount of the packet, in minor units."`
	RequestID string         `json:"request_id,omitempty" doc:"Request id of the grab. Absent if the grab had none."`
	Time      time.Time      `json:"time" doc:"Time of the grant."`
}

// TrailEntry is the stream entry that has the grant.
type TrailEntry struct {
	ID     string `json:"id" doc:"Id of the entry in the stream of the shard."`
	Epoch  int64  `json:"epoch" doc:"The shard's epoch when the grant was decided. The epoch rises each time the shard is opened."`
	Grants int    `json:"grants" doc:"Number of grants in this entry."`
}

// TrailRecord is the record in the topic that has the grant.
type TrailRecord struct {
	Partition int       `json:"partition" doc:"Number of the partition in the topic."`
	Offset    int64     `json:"offset" doc:"Offset of the record in the partition. If there are several copies: offset of the first copy that was found."`
	Time      time.Time `json:"time" doc:"Time of the record: when a worker sent it. A topic that sets the times itself has the time at which the broker got it."`
}

// TrailSink says whether a sink has finished a grant: whether it settled or published the grant, or made it a dead
// letter.
type TrailSink struct {
	Sink     string `json:"sink" doc:"Name of the sink."`
	Finished bool   `json:"finished" doc:"True once the sink has settled or published the grant, or made it a dead letter."`
	Letter   string `json:"letter,omitempty" doc:"Id of the grant's dead letter that waits for a decision. Absent if there is none."`
	Reason   string `json:"reason,omitempty" doc:"Why the grant became a dead letter. Absent if there is no dead letter."`
	Dropped  string `json:"dropped,omitempty" doc:"Who dropped the grant's dead letter, and why. Absent if no one dropped it."`
	NotOwed  bool   `json:"not_owed,omitempty" doc:"True if the sink does not owe the grant and does not have it, because the sink was added later or was removed at that time. Then 'finished' is false."`
	TrailWait
}

// TrailOf is a request for a trail. It is by packet if Packet is not 0, else by user.
type TrailOf struct {
	Campaign, User string
	Packet         int64
}

var errManyScans = errors.New("too many searches through receipts and dead letters are running")

// ErrBusy means that Trail has done nothing, because too many searches are running.
var ErrBusy = fmt.Errorf("%w: try again, or search by user", errManyScans)

// topicTime bounds the search of the topic, and lettersTime the search of the dead letters.
const topicTime, lettersTime = 5 * time.Second, 5 * time.Second

// Trail searches the grants in all stores. It needs Redis; it uses the ledger if there is one. The journal records the
// read.
func (a Find) Trail(ctx context.Context, q TrailOf) (*Trail, error) {
	out, err := a.trail(ctx, q)
	if err == nil {
		a.app.HasRead(ctx, access.Read{Action: access.ReadTrails, Campaign: q.Campaign, Packet: q.Packet,
			User: access.Storable(q.User, hongbao.MaxIDLength)})
	}
	return out, err
}

func (a Find) trail(ctx context.Context, q TrailOf) (*Trail, error) {
	t := &trailSearch{app: a.app, q: q, grants: map[int64]*trailed{}, silent: map[int]bool{}}
	t.out = Trail{Campaign: q.Campaign, Steps: []TrailStep{}, Unread: []Unread{}}
	inLedger := t.ledger(ctx)
	inRedis, err := t.receipts(ctx)
	if err != nil {
		return nil, err
	}
	if !inLedger && !inRedis && len(t.out.Unread) == 0 {
		return nil, a.app.NoCampaign(ctx, q.Campaign)
	}
	t.followAll(ctx)
	if err := t.topic(ctx); err != nil {
		t.unread("topic", err)
	}
	if err := t.letters(ctx); err != nil {
		t.unread("redis", err)
	}
	if err := t.notOwed(ctx); err != nil {
		t.unread("ledger", err)
	}
	t.explain(ctx)
	for _, g := range t.grants {
		t.out.Steps = append(t.out.Steps, g.TrailStep)
	}
	slices.SortFunc(t.out.Steps, func(a, b TrailStep) int { return int(a.Packet - b.Packet) })
	return &t.out, nil
}

// trailSearch is one run of Trail.
type trailSearch struct {
	app    *app.App
	q      TrailOf
	out    Trail
	grants map[int64]*trailed     // by packet
	places []store.Place          // the campaign's shards, by the ledger or else by Redis
	silent map[int]bool           // shards that could not be read
	stored *ledger.StoredCampaign // nil if the ledger did not answer, or does not have the campaign
}

// trailed is a step, with the grant to search for.
type trailed struct {
	TrailStep
	grant hongbao.Grant
}

func (t *trailSearch) unread(where string, err error) {
	t.out.Unread = append(t.out.Unread, Unread{where, err.Error()})
}

func (t *trailSearch) packet(g *hongbao.Grant) *trailed {
	if t.grants[g.Packet] == nil {
		t.grants[g.Packet] = &trailed{TrailStep: TrailStep{Packet: g.Packet, Sinks: []TrailSink{}}, grant: *g}
	}
	return t.grants[g.Packet]
}

func trailGrant(g *hongbao.Grant) *TrailGrant {
	return &TrailGrant{g.EventID(), g.User, g.Amount, g.RequestID, g.Time.UTC()}
}

// ledger reads the bookings of the ledger, and reports whether the ledger has the campaign.
func (t *trailSearch) ledger(ctx context.Context) bool {
	if t.app.Config.Ledger.DSN == "" {
		return false
	}
	rows, found, err := t.ledgerRows(ctx)
	if err != nil {
		t.unread("ledger", err)
	}
	for i := range rows {
		t.packet(&rows[i]).Ledger = trailGrant(&rows[i])
	}
	return found
}

func (t *trailSearch) ledgerRows(ctx context.Context) ([]hongbao.Grant, bool, error) {
	a := t.app
	c, found, err := a.Ledger().Campaign(ctx, t.q.Campaign)
	if err != nil || !found {
		return nil, false, err
	}
	t.stored = &c
	t.out.Currency, t.places = c.Spec.Currency, a.Store().Places(t.q.Campaign, c.Spec.Places())
	if t.q.Packet == 0 {
		rows, err := a.Ledger().UserGrants(ctx, t.q.Campaign, t.q.User)
		return rows, true, err
	}
	row, found, err := a.Ledger().PacketGrant(ctx, t.q.Campaign, t.q.Packet)
	if err != nil || !found {
		return nil, true, err
	}
	return []hongbao.Grant{row}, true, nil
}

// errSeen ends a search that has found everything.
var errSeen = errors.New("seen")

// receipts reads the user's receipts on each of the campaign's shards, and reports whether Redis has the campaign. If
// the user of the packet is unknown, it searches all receipts. It returns ErrBusy if too many such searches are
// running.
func (t *trailSearch) receipts(ctx context.Context) (found bool, err error) {
	if t.places == nil {
		places, err := t.app.Store().Campaign(t.q.Campaign).Places(ctx)
		if err != nil {
			t.unread("redis", err)
			return false, nil
		}
		t.places = places
	}
	user := t.q.User
	if g := t.grants[t.q.Packet]; t.q.Packet != 0 && g != nil {
		user = g.grant.User
	}
	if user == "" {
		if !t.app.Scans().TryAcquire(1) {
			return false, hongbao.Errorf(hongbao.ClassTransient, "%w", ErrBusy)
		}
		defer t.app.Scans().Release(1)
	}
	for _, k := range t.places {
		there, err := t.receiptsOn(ctx, k, user)
		if err != nil {
			t.unread("redis", err)
			t.silent[k.Index()] = true
		}
		found = found || there
	}
	return found, nil
}

// receiptsOn reads the receipts on one shard. If user is empty, it searches for the user who has the packet.
func (t *trailSearch) receiptsOn(ctx context.Context, place store.Place, user string) (found bool, err error) {
	if user == "" {
		if user, _, _, err = place.ReceiptOf(ctx, t.q.Packet); err != nil {
			return false, err
		}
	}
	h, err := place.UserReceipts(ctx, user)
	if errors.Is(err, store.ErrNotInRedis) && !errors.Is(err, store.ErrLost) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	t.out.Currency = h.Currency
	for i := range h.Receipts {
		r := &h.Receipts[i]
		if t.q.Packet != 0 && r.Packet != t.q.Packet {
			continue
		}
		g := hongbao.Grant{Campaign: t.q.Campaign, User: user, Packet: r.Packet, Amount: r.Amount, Shard: r.Shard,
			Seq: r.Seq, Time: r.Time, RequestID: r.RequestID}
		p := t.packet(&g)
		p.Receipt, p.grant = trailGrant(&g), g
	}
	return true, nil
}

// followAll calls follow for the grants of all shards that answer.
func (t *trailSearch) followAll(ctx context.Context) {
	for _, g := range t.grants {
		if t.silent[g.grant.Shard] {
			continue
		}
		if err := t.follow(ctx, g); err != nil {
			t.unread("redis", err)
			t.silent[g.grant.Shard] = true
		}
	}
}

// follow looks up the grant's done bits of each sink, and its stream entry.
func (t *trailSearch) follow(ctx context.Context, p *trailed) error {
	g := &p.grant
	shard := t.app.Store().Shard(g.Shard)
	for _, sink := range t.app.Config.Deployment.Sinks {
		done, err := shard.Group(sink).FinishedEvents(ctx, stream.SeqRange{First: g.Seq, Last: g.Seq})
		if err != nil && !errors.Is(err, store.ErrFrozen) {
			return err
		}
		if err == nil {
			p.Sinks = append(p.Sinks, TrailSink{Sink: sink, Finished: done.Has(g.Seq)})
		}
	}
	e, found, err := shard.EntryOf(ctx, g.Seq, g.Time)
	if found {
		p.Entry = &TrailEntry{e.ID, e.Epoch, len(e.Grants)}
	}
	return err
}

// topic searches the topic for the grants, from the time of the earliest grant on.
func (t *trailSearch) topic(ctx context.Context) error {
	if len(t.grants) == 0 || !t.app.Has(configs.SinkKafka) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, topicTime)
	defer cancel()
	l, err := t.app.OpenTopic(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	wanted, since := sightings{of: map[string]*trailed{}}, time.Time{}
	for _, p := range t.grants {
		wanted.of[p.grant.EventID()] = p
		if since.IsZero() || p.grant.Time.Before(since) {
			since = p.grant.Time
		}
	}
	from, err := t.offsets(ctx, l, since)
	if err != nil {
		return err
	}
	_, err = l.Scan(ctx, from, func(at publish.Position, e topic.Event) error {
		if e.Grant.Campaign != t.q.Campaign {
			return nil
		}
		return wanted.see(e.Grant.EventID(), TrailRecord{at.Partition, at.Offset, at.Time.UTC()})
	})
	switch {
	case errors.Is(err, errSeen):
		return nil
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the search from %s on took longer than %s: `hongbao tail` reads the whole topic", since.Format(time.RFC3339),
			topicTime)
	}
	return err
}

// sightings records the first position of each wanted event in the topic. Its method see may be called concurrently.
type sightings struct {
	mu   sync.Mutex
	of   map[string]*trailed // by event
	seen int
}

// see records the position of a wanted event. It ignores further copies of the event. It returns errSeen once all
// events are recorded.
func (s *sightings) see(event string, at TrailRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of[event]
	if p == nil || p.Topic != nil {
		return nil
	}
	p.Topic = &at
	if s.seen++; s.seen == len(s.of) {
		return errSeen
	}
	return nil
}

// offsets returns where to begin the search in each partition. It skips partitions that can't have the grants. Record
// times come from the clock of the broker or of the worker, so the search begins a minute before since.
func (t *trailSearch) offsets(ctx context.Context, l *publish.Log, since time.Time) ([]int64, error) {
	from, end, err := l.Offsets(ctx, since.Add(-time.Minute))
	if err != nil {
		return nil, err
	}
	for partition := range from {
		has := false
		for _, p := range t.grants {
			has = has || l.Partition(p.grant.Shard) == partition
		}
		if !has {
			from[partition] = end[partition]
		}
	}
	return from, nil
}
