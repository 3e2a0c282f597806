package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Run audits once. It writes nothing. It returns an error only if something could not be read. The report, not the
// error, contains the differences. Concurrent audits are safe.
func Run(ctx context.Context, cfg Config, opts Options) (*model.AuditReport, error) {
	if err := errors.Join(cfg.check(), opts.check()); err != nil {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "audit: %w", err)
	}
	r := newRun(&cfg, opts)
	// The order matters on a live system. A later step reads a later state, so it must find every grant that an earlier
	// step has found. For this reason the groups' progress is read before the sinks.
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"wait for quiet", r.waitQuiet},
		{"read the shards' last seqs", r.readSeqs(func(s *shard, seq int64) { s.seq, s.report.Seq = seq, seq })},
		{"read the campaigns", r.readCampaigns},
		{"read the streams", r.readStreams},
		{"read the groups' progress", r.readProgress},
		{"read the dead letters", r.readLetters},
		{"read the ledger", r.readLedger},
		{"read the codes", r.readCodes},
		{"read the topic", r.readTopic},
		{"ask the remote", r.readRemote},
		{"read the claims", r.readClaims},
		{"read the shards' last seqs again", r.readSeqs(func(s *shard, seq int64) { s.end = seq })},
		{"compare", r.judge},
		{"look up details", r.describe},
	}
	for i, step := range steps {
		if cfg.Step != nil {
			cfg.Step(fmt.Sprintf("%s, step %d of %d", step.what, i+1, len(steps)))
		}
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("audit: %s: %w", step.what, err)
		}
	}
	return r.finish(), nil
}

// run is one audit.
type run struct {
	*Config
	opts   Options
	seed   maphash.Seed
	shards []*shard
	sinks  []*sink
	report model.AuditReport
	// known has the acknowledgements that have matched no difference yet, by Acknowledgement.ID.
	known map[string]model.Acknowledgement
	// decisions has people's decisions about grants in quarantine, with the person and the reason, by the grant's
	// digest. The ledger never settles these grants, so the remote must not have paid them.
	decisions map[uint64]string

	mu        sync.Mutex // guards the fields below, because several goroutines read the topic
	campaigns map[string]*campaign
	listed    []*model.Difference
	wanted    map[string]map[int64][]*model.Difference // by campaign and packet: differences whose receipt must be looked up
	topic     topicFacts
}

// sink is a destination of grants, with the consumer group that delivers to it.
type sink struct {
	group string
	from  source
	gone  model.DifferenceKind // the kind of difference for a finished grant that the sink does not have
	at    []progress
	owed  []stream.Owed // what the group owes, by shard
	// dead has the sink's dead letters by shard and seq. dropped has the letters that a person dropped, with the person
	// and the reason.
	dead, dropped []map[int64]string
}

// shard has what the audit knows about one shard.
type shard struct {
	*store.Shard

	seq    int64 // the shard's last seq when the audit began
	end    int64 // the shard's last seq when the audit had read everything
	seen   seqs
	closes map[string]stream.Entry // closes that the stream still has, by campaign
	gaps   []stream.SeqRange
	// skipped has the seqs that openings of the shard have skipped. No event has such a seq.
	skipped []stream.SeqRange
	// decided has, by seq, grants that a person decided not to deliver to the ledger. It has only grants of campaigns
	// that have left Redis.
	decided map[int64]decided
	// whole is the Unix second since which the topic has kept every record; 0 if nothing has expired.
	whole  int64
	report model.ShardReport
}

// decided is a grant about which a person has decided.
type decided struct {
	digest   uint64
	anyone   bool // the record no longer has the user, so the digest means nothing
	campaign string
	packet   int64
	time     time.Time
}

func newRun(cfg *Config, opts Options) *run {
	r := &run{
		Config: cfg, opts: opts, seed: maphash.MakeSeed(),
		campaigns: map[string]*campaign{}, decisions: map[uint64]string{}, wanted: map[string]map[int64][]*model.Difference{},
		report: model.AuditReport{Started: time.Now(), LeftOut: []string{}, Found: map[model.DifferenceKind]int64{},
			Differences: []model.Difference{},
			Dropped:     []model.Difference{}, Campaigns: []model.CampaignReport{}, Acknowledged: []model.Acknowledged{}},
		known: map[string]model.Acknowledgement{}, topic: topicFacts{last: map[int]*topicRecord{}},
	}
	for _, a := range cfg.Acknowledged {
		r.known[a.ID()] = a
	}
	n := cfg.Store.Len()
	for i := range n {
		r.shards = append(r.shards, &shard{
			Shard: cfg.Store.Shard(i), closes: map[string]stream.Entry{}, decided: map[int64]decided{},
			report: model.ShardReport{Shard: i, Finished: map[string]int64{}},
		})
	}
	if cfg.Ledger != nil {
		r.sinks = append(r.sinks, newSink(cfg.LedgerGroup, inLedger, Lost, n))
	}
	for _, sink := range cfg.Unread {
		r.leaveOut("sink " + sink + ": what its receiver has can't be read back; `hongbao status` says what waits for it")
	}
	if cfg.Remote != nil && cfg.Remote.Ask == nil {
		r.leaveOut("the remote balance system: it settles, but can't be asked (remote.queryable)")
	}
	if cfg.Ledger == nil {
		r.leaveOut("the ledger: none is configured")
	}
	if cfg.Topic != nil {
		r.sinks = append(r.sinks, newSink(cfg.TopicGroup, inTopic, MissingInTopic, n))
	} else {
		r.leaveOut("the topic: none is configured")
	}
	if cfg.Plan == nil {
		r.leaveOut("the planned amounts: no plan is configured")
	}
	for _, id := range opts.Campaigns {
		r.campaign(id) // adds it, so that an unknown campaign is reported, too
	}
	if r.partial() {
		r.leaveOut("the seqs and streams of whole shards: only some campaigns are audited")
	}
	return r
}

func newSink(group string, from source, gone model.DifferenceKind, shards int) *sink {
	s := &sink{group: group, from: from, gone: gone, at: make([]progress, shards),
		owed: make([]stream.Owed, shards)}
	for range shards {
		s.dead = append(s.dead, map[int64]string{})
		s.dropped = append(s.dropped, map[int64]string{})
	}
	return s
}

func (r *run) leaveOut(what string) { r.report.LeftOut = append(r.report.LeftOut, what) }

func (r *run) partial() bool { return len(r.opts.Campaigns) > 0 }

func (r *run) wants(campaign string) bool {
	return !r.partial() || slices.Contains(r.opts.Campaigns, campaign)
}

// campaign returns the facts about a campaign; nil if the campaign is not audited.
func (r *run) campaign(id string) *campaign {
	c := r.campaigns[id]
	if c == nil && r.wants(id) {
		c = &campaign{id: id, on: map[int]*snapshot{}, found: map[model.DifferenceKind]int64{}, first: map[int]int64{}}
		r.campaigns[id] = c
	}
	return c
}

func (r *run) sorted() []*campaign {
	return slices.SortedFunc(maps.Values(r.campaigns), func(a, b *campaign) int { return strings.Compare(a.id, b.id) })
}

// found notes a difference. It returns nil if enough of that kind are listed already, or if a person has acknowledged
// it.
func (r *run) found(d model.Difference) *model.Difference {
	if r.isAcknowledged(&d) {
		return nil
	}
	r.report.Found[d.Kind]++
	if c := r.campaigns[d.Campaign]; c != nil {
		c.found[d.Kind]++
	}
	if r.report.Found[d.Kind] > int64(r.MaxListed) {
		return nil
	}
	r.listed = append(r.listed, &d)
	return &d
}

func (r *run) differs(c *campaign, kind model.DifferenceKind, where, format string, args ...any) {
	r.found(model.Difference{Kind: kind, Where: where, Campaign: c.id, Detail: fmt.Sprintf(format, args...)})
}

// foundPacket notes a difference of one packet. If a receipt has the packet, describe adds what the receipt says.
func (r *run) foundPacket(c *campaign, packet int64, f *fact, d model.Difference) {
	d.Campaign, d.Packet = c.id, packet
	if d.Event == "" {
		d.Event = stream.EventID(int(f.shard), f.seq)
	}
	named := r.found(d)
	if named == nil || !f.has(inReceipts) {
		return
	}
	if r.wanted[c.id] == nil {
		r.wanted[c.id] = map[int64][]*model.Difference{}
	}
	r.wanted[c.id][packet] = append(r.wanted[c.id][packet], named)
}

// digest returns a hash of the facts that all places must agree on, besides campaign and packet.
func (r *run) digest(user string, amount hongbao.Amount, shard int, seq int64) uint64 {
	b := make([]byte, 0, 24+hongbao.MaxIDLength)
	b = binary.LittleEndian.AppendUint64(b, uint64(amount))
	b = binary.LittleEndian.AppendUint64(b, uint64(shard))
	b = binary.LittleEndian.AppendUint64(b, uint64(seq))
	return maphash.Bytes(r.seed, append(b, user...))
}

// decided notes a grant that a person decided about. While Redis has the campaign, its receipts prove the grant. Later
// the decision may be the only proof.
func (r *run) decided(g *hongbao.Grant) {
	if g.Shard < 0 || g.Shard >= len(r.shards) || g.Seq <= 0 {
		return
	}
	if c := r.campaigns[g.Campaign]; c == nil || !c.inRedisOn(g.Shard) {
		r.shards[g.Shard].decided[g.Seq] = decided{r.digest(g.User, g.Amount, g.Shard, g.Seq), g.User == "",
			g.Campaign, g.Packet, g.Time}
	}
}

// about reports whether the decision is about a packet of a campaign with this digest.
func (d *decided) about(campaign string, packet int64, digest uint64) bool {
	return d.campaign == campaign && d.packet == packet && (d.anyone || d.digest == digest)
}

// observe adds a grant that a source has.
func (r *run) observe(from source, g *hongbao.Grant) { r.observeAt(from, g, nil) }

// record is the position of a record in the topic.
type record struct {
	partition int
	offset    int64
}

// observeAt adds a grant that a source has. at is the record's position if the source is the topic.
func (r *run) observeAt(from source, g *hongbao.Grant, at *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.campaign(g.Campaign)
	if c == nil {
		return
	}
	if from == inTopic && at != nil {
		r.noteRecord(c, g, at)
	}
	if c.sealed {
		r.published(c, from, g)
		return
	}
	if g.Packet < 1 || g.Seq < 1 || g.Shard < 0 || g.Shard >= len(r.shards) {
		r.found(model.Difference{Kind: Unfounded, Where: sourceNames[from], Campaign: g.Campaign, Packet: g.Packet,
			Event: g.EventID(), Detail: fmt.Sprintf("packets and seqs begin at 1, shards are 0 to %d: %s", len(r.shards)-1,
				describeGrant(g))})
		return
	}
	f, digest := c.facts.at(g.Packet), r.digest(g.User, g.Amount, g.Shard, g.Seq)
	switch {
	case f.from&whoGotIt == 0:
		f.digest, f.shard, f.seq, f.time = digest, int16(g.Shard), g.Seq, uint32(g.Time.Unix())
		r.noteSeq(c, from, g)
	case f.digest != digest && (f.has(inReceipts) || !c.inRedisOn(g.Shard)):
		c.reportedAmounts++
		r.foundPacket(c, g.Packet, f, model.Difference{Kind: Different, Where: sourceNames[from], Event: g.EventID(),
			Detail: "the " + sourceNames[from] + " has " + describeGrant(g)})
	}
	if f.has(from) {
		r.again(c, f, from, g, at)
	}
	f.from |= from
	if from == inLedger {
		c.counts.Settled++
		c.counts.SettledAmount += g.Amount
	}
	if from == inTopic {
		r.publishedCode(c, g)
	}
	r.published(c, from, g)
}

// published counts the grant if it comes from the topic.
func (r *run) published(c *campaign, from source, g *hongbao.Grant) {
	if from != inTopic || g.Shard < 0 || g.Shard >= len(r.shards) {
		return
	}
	c.counts.Published++
}

// noteSeq marks the seq of a grant without a receipt as seen, so that it is not also reported as a gap. It reports a
// seq of two grants only if the ledger is the only remaining source of the campaign.
func (r *run) noteSeq(c *campaign, from source, g *hongbao.Grant) {
	isNew := r.shards[g.Shard].seen.add(g.Seq)
	if !isNew && from == inLedger && !c.inRedisOn(g.Shard) && !r.partial() {
		r.found(model.Difference{Kind: DuplicateSeq, Where: "ledger", Campaign: c.id, Packet: g.Packet, Event: g.EventID(),
			Detail: "another grant has this seq too: " + describeGrant(g)})
	}
}

var duplicateKind = map[source]model.DifferenceKind{inStream: StreamGap, inLedger: DoubleCredit,
	inTopic: DuplicateInTopic}

func (r *run) again(c *campaign, f *fact, from source, g *hongbao.Grant, at *record) {
	where := "" // distinguishes several copies
	if at != nil {
		where = fmt.Sprintf(" at partition %d, offset %d", at.partition, at.offset)
	}
	r.foundPacket(c, g.Packet, f, model.Difference{Kind: duplicateKind[from], Where: sourceNames[from], Event: g.EventID(),
		Detail: "the " + sourceNames[from] + " has the packet once more" + where + ": " + describeGrant(g)})
}

func describeGrant(g *hongbao.Grant) string {
	return fmt.Sprintf("user %q, amount %d, event %s", g.User, g.Amount, g.EventID())
}
