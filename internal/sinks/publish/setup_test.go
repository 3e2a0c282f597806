package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/topic"
)

const testTopic = "grants"

// hopeless is an AttemptTime for attempts that can't succeed. All other tests use a longer time, because the machine
// may be busy.
const hopeless = time.Second

// testConfig returns a Config with small limits.
func testConfig(brokers ...string) Config {
	return Config{
		Brokers: brokers, ClientID: "test", Topic: testTopic, Partitions: 2, Deployment: "d1", Worker: "w1",
		BatchGrants: 100, BatchBytes: 64 << 10, Compression: "none",
		DialTimeout: 5 * time.Second, RequestTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second,
		MetadataTTL: 200 * time.Millisecond,
		AttemptTime: 10 * time.Second, MaxClaimAge: 10 * time.Second, ProducerExpiration: 24 * time.Hour, FetchBytes: 1 << 20,
	}
}

// bench is the fixture of a unit test: an in-process broker, and claims and a stream in memory.
type bench struct {
	cfg    Config
	broker *kfake.Cluster
	store  *store
}

func setup(t testing.TB, options ...kfake.Opt) *bench {
	t.Helper()
	options = append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(2, testTopic)}, options...)
	c, err := kfake.NewCluster(options...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &bench{cfg: testConfig(c.ListenAddrs()...), broker: c, store: newStore()}
}

// worker returns a Publisher whose requests go through a wire, which can inject faults.
func (b *bench) worker(t testing.TB) (*Publisher, *wire) {
	t.Helper()
	p, err := New(b.cfg, b.store, b.store)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	w := &wire{inner: p.transport}
	p.client = newClient(&b.cfg, w)
	return p, w
}

// topicContent reads the whole topic with another client (franz-go). It returns the offsets of each event's records, by
// event id.
func topicContent(t testing.TB, cfg *Config) map[string][]int64 {
	t.Helper()
	probe, err := New(*cfg, newStore(), newStore())
	require.NoError(t, err)
	defer probe.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	content := map[string][]int64{}
	for part := range cfg.Partitions {
		var b bounds
		require.NoError(t, probe.ask(ctx, "bounds",
			func(ctx context.Context) (err error) { b, err = probe.bounds(ctx, part); return err }))
		readPartition(ctx, t, cfg, int32(part), b, func(r *kgo.Record) {
			e, err := decodeKgo(r)
			if errors.Is(err, topic.ErrForeign) {
				return
			}
			require.NoError(t, err)
			require.Equal(t, int32(e.Grant.Shard%cfg.Partitions), r.Partition)
			content[e.Grant.EventID()] = append(content[e.Grant.EventID()], r.Offset)
		})
	}
	return content
}

func readPartition(ctx context.Context, t testing.TB, cfg *Config, part int32, b bounds, fn func(*kgo.Record)) {
	t.Helper()
	if b.start == b.end {
		return
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		cfg.Topic: {part: kgo.NewOffset().At(b.start)},
	}), kgo.KeepControlRecords())
	require.NoError(t, err)
	defer c.Close()
	for next := b.start; next < b.end; {
		f := c.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "reading the topic took too long")
		f.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if r.Offset < b.end && !r.Attrs.IsControl() {
				fn(r)
			}
		})
	}
}

func decodeKgo(r *kgo.Record) (topic.Event, error) {
	headers := make([]kafka.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = kafka.Header{Key: h.Key, Value: h.Value}
	}
	return topic.DecodeMessage(headers, r.Key, r.Value)
}

// requireOneCopy checks that the topic contains each grant exactly once, and no other grant of the deployment.
func requireOneCopy(t testing.TB, cfg *Config, grants ...[]hongbao.Grant) {
	t.Helper()
	content := topicContent(t, cfg)
	n := 0
	for _, list := range grants {
		for i := range list {
			n++
			require.Len(t, content[list[i].EventID()], 1, "copies of event %s", list[i].EventID())
		}
	}
	require.Len(t, content, n, "events in the topic")
}

// store implements Claims and Entries in memory. Each method is one atomic step, as in store.Claims with Redis. A claim
// immediately takes over every conflicting open claim, even from a live owner. This is the worst case that leases
// allow.
type store struct {
	mu     sync.Mutex
	shards map[int]*storeShard
	// fault, if set, can make a method fail before or after its effect.
	fault func(op string) (before, after error)
	// granted, if set, is called after a claim was granted and before Claim returns. The lock is not held.
	granted func(stream.Claim)
	held    int // if above 0, Claim returns it as Held and takes over no open claim
}

type storeShard struct {
	entries []stream.Entry
	done    map[int64]bool
	claims  map[string]*stream.Claim
	fence   int64
	next    int64
}

func newStore() *store { return &store{shards: map[int]*storeShard{}} }

func (s *store) shard(i int) *storeShard {
	if s.shards[i] == nil {
		s.shards[i] = &storeShard{done: map[int64]bool{}, claims: map[string]*stream.Claim{}, next: 1}
	}
	return s.shards[i]
}

// grants writes an entry with n new grants to the stream. It returns the grants.
func (s *store) grants(shard, n int, when time.Time) []hongbao.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.shard(shard)
	id := fmt.Sprintf("%d-%d", when.UnixMilli(), len(x.entries))
	e := stream.Entry{ID: id, Shard: shard, Kind: stream.EntryGrant, Campaign: "spring", Seq: x.next, Epoch: 1,
		Time: when}
	for range n {
		e.Grants = append(e.Grants, hongbao.Grant{
			Shard: shard, Seq: x.next, Epoch: 1, EntryID: id, Campaign: "spring", Packet: x.next*100 + int64(shard) + 1,
			Amount: hongbao.Amount(100 + x.next%900), User: "u" + strconv.FormatInt(x.next, 10),
			Time: when.UTC().Truncate(time.Millisecond),
		})
		x.next++
	}
	x.entries = append(x.entries, e)
	return e.Grants
}

func (s *store) inject(op string) (before, after error) {
	if s.fault == nil {
		return nil, nil
	}
	return s.fault(op)
}

func (s *store) Claim(ctx context.Context, in stream.Opening, id string, events []stream.SeqRange,
	payload string) (stream.ClaimAnswer, error) {
	s.mu.Lock()
	before, after := s.inject("claim")
	if before == nil {
		before = ctx.Err()
	}
	if before != nil {
		s.mu.Unlock()
		return stream.ClaimAnswer{}, before
	}
	a := s.shard(in.Shard).claim(id, events, payload, s.held)
	granted := s.granted
	s.mu.Unlock()
	if a.Granted() && granted != nil {
		granted(stream.Claim{ID: id, Fence: a.Fence, Events: events, Payload: payload})
	}
	return a, after
}

func (x *storeShard) claim(id string, events []stream.SeqRange, payload string, held int) stream.ClaimAnswer {
	var a stream.ClaimAnswer
	open := map[string]bool{}
	for _, r := range events {
		for seq := r.First; seq <= r.Last; seq++ {
			if x.done[seq] {
				a.Done = append(a.Done, stream.SeqRange{First: seq, Last: seq})
			}
			for _, c := range x.claims {
				if covers(c.Events, seq) {
					open[c.ID] = true
				}
			}
		}
	}
	if len(open) > 0 && held > 0 {
		a.LiveClaims = held
		return a
	}
	for id := range open {
		x.fence++
		x.claims[id].Fence = x.fence
		a.Open = append(a.Open, *x.claims[id])
	}
	if a.Granted() {
		x.fence++
		a.Fence = x.fence
		x.claims[id] = &stream.Claim{ID: id, Fence: x.fence, Events: events, Payload: payload}
	}
	return a
}

func (s *store) end(ctx context.Context, op string, shard int, c stream.Claim, arrived []stream.CampaignRange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := s.inject(op)
	if before == nil {
		before = ctx.Err()
	}
	if before != nil {
		return before
	}
	x := s.shard(shard)
	if x.claims[c.ID] == nil || x.claims[c.ID].Fence != c.Fence {
		return fmt.Errorf("claim %s: %w", c.ID, stream.ErrFenced)
	}
	delete(x.claims, c.ID)
	for _, r := range arrived {
		if r.Campaign == "" {
			return fmt.Errorf("completed events %d to %d have no campaign", r.First, r.Last)
		}
		for seq := r.First; seq <= r.Last; seq++ {
			x.done[seq] = true
		}
	}
	return after
}

func (s *store) Complete(ctx context.Context, in stream.Opening, c stream.Claim, arrived []stream.CampaignRange) error {
	return s.end(ctx, "complete", in.Shard, c, arrived)
}

func (s *store) Release(ctx context.Context, in stream.Opening, c stream.Claim) error {
	return s.end(ctx, "release", in.Shard, c, nil)
}

func (s *store) Entries(ctx context.Context, in stream.Opening, firstID, lastID string) ([]stream.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, _ := s.inject("entries"); before != nil {
		return nil, before
	}
	var out []stream.Entry
	found := false
	for _, e := range s.shard(in.Shard).entries {
		found = found || e.ID == firstID
		if found {
			out = append(out, e)
		}
		if e.ID == lastID {
			break
		}
	}
	return out, ctx.Err()
}

// open counts the open claims of a shard.
func (s *store) open(shard int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.shard(shard).claims)
}

// fate says what happens to a produce request on the wire.
type fate int

const (
	pass     fate = iota
	lost          // not sent
	swallow       // sent, but the response is lost
	deferred      // sent late: when the test calls flush
)

var errWire = errors.New("wire fault")

// wire is a RoundTripper that can inject faults. The first request of a session, which makes the session visible,
// always passes.
type wire struct {
	inner kafka.RoundTripper
	// fate, if set, returns the fate of the next produce request.
	fate func() fate
	// answer, if set, can return an error for any request. The request is then not sent.
	answer func(kafka.Request) error

	mu    sync.Mutex
	late  []func() error
	fired int
	sends int
}

func (w *wire) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	produce, ok := req.(*rawproduce.Request)
	if ok && isAnnouncement(produce) {
		return w.inner.RoundTrip(ctx, addr, req)
	}
	if w.answer != nil {
		if err := w.answer(req); err != nil {
			return nil, err
		}
	}
	if !ok || w.fate == nil {
		return w.inner.RoundTrip(ctx, addr, req)
	}
	w.mu.Lock()
	w.sends++
	f := w.fate()
	if f != pass {
		w.fired++
	}
	w.mu.Unlock()
	switch f {
	case lost:
		return nil, errWire
	case swallow:
		if _, err := w.inner.RoundTrip(context.WithoutCancel(ctx), addr, req); err != nil {
			return nil, err
		}
		return nil, errWire
	case deferred:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.late = append(w.late, func() error {
			_, err := w.inner.RoundTrip(context.Background(), addr, produce)
			return err
		})
		return nil, errWire
	case pass:
	}
	return w.inner.RoundTrip(ctx, addr, req)
}

// flush sends the deferred copies and returns their number.
func (w *wire) flush(t testing.TB) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.late)
	for _, send := range w.late {
		require.NoError(t, send())
	}
	w.late = nil
	return n
}

// fates returns a function that returns the fates in order, and then pass.
func fates(list ...fate) func() fate {
	return func() fate {
		if len(list) == 0 {
			return pass
		}
		f := list[0]
		list = list[1:]
		return f
	}
}
