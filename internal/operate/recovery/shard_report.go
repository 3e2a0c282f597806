package recovery

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// ShardReport is what Redis, the ledger, the topic and the callers know of a shard.
type ShardReport struct {
	Shard  int           `json:"shard"`
	Frozen bool          `json:"frozen"`
	For    time.Duration `json:"-"` // how long the shard has been frozen
	// Redis is the shard's last seq in Redis, -1 if Redis has lost the shard. Ledger, Topic and Seen are the highest
	// seqs that the ledger, the topic and the callers know. Ledger and Topic are -1 if they were not read.
	Redis  int64 `json:"redis"`
	Ledger int64 `json:"ledger"`
	Topic  int64 `json:"topic"`
	Seen   int64 `json:"seen"`
	// SeenIn is the epoch of the event Seen, which is the latest one that a caller has seen. A seq of an earlier epoch
	// than Redis has says nothing.
	SeenIn int64 `json:"seen_epoch,omitempty"`
	// Late shows that the ledger or a process knows an event that an earlier opening has lost; 0 if there is none. It is
	// the event's seq, or the last one that the opening skipped if that is lower.
	Late int64 `json:"late,omitempty"`
	// Refused says why no shard may open on this server with its present settings; empty if shards may open.
	Refused string `json:"refused,omitempty"`
	// Unrestored says why workers can't restore the shard, so that a person has to decide; empty if no worker has said so.
	Unrestored string `json:"unrestored,omitempty"`
	// Epoch is the highest epoch that Redis, the ledger or a caller knows. Opening is the shard's epoch in Redis.
	Epoch   int64 `json:"epoch"`
	Opening int64 `json:"-"`
	// Campaigns has the campaigns in doubt: Redis has lost them, or another source knows more of them than Redis.
	Campaigns []Doubt `json:"campaigns,omitempty"`
	// Unloaded has the campaigns that Redis does not have and that can't have granted anything.
	Unloaded []string `json:"unloaded,omitempty"`

	// Unrecorded has earlier openings that the ledger does not know yet.
	Unrecorded []store.Unrecorded `json:"unrecorded,omitempty"`

	here   map[string]here                // the ledger's campaigns that Redis has on this shard
	ended  map[string]*store.LostCampaign // refunded campaigns that Redis has lost, or removed after their grace
	broken []string                       // why campaigns stay in doubt even if all lost events are restored

	attempt store.Attempt    // the attempt that restores the shard; zero if there is none
	noted   []model.Restored // the ledger's notes of the shard's openings, newest first
	// guarded reports whether a silent process may have reported grants that no source knows, so that packets are
	// withheld.
	guarded bool
	// withheld has the packets that restores have withheld, by campaign.
	withheld map[string]map[int64]bool
	counts   *model.RestoreCounts // what the attempt has restored
	restored int64                // the last seq in Redis after the restore
	opened   int64                // the epoch of the opening
	// evidence is the number of witness reports that were judged. If Redis has more reports at the opening, the shard
	// does not open.
	evidence int64

	state  store.Frozen
	events ledger.Events    // what the ledger knows of the events that Redis has lost
	dealt  map[string]int64 // newest generation in Redis, for each campaign that was topped up
	silent map[int]bool     // shards that did not answer
}

// Doubt is a campaign that can't continue with the state in Redis.
type Doubt struct {
	Campaign string `json:"campaign"`
	Missing  bool   `json:"missing"` // Redis has lost it
	Why      string `json:"why"`

	places int // number of the campaign's shards
}

// Known returns the highest seq that any source knows.
func (v *ShardReport) Known() int64 {
	known := max(v.Redis, v.Ledger, v.Topic, 0)
	if v.SeenIn >= v.Opening {
		known = max(known, v.Seen)
	}
	return known
}

func (v *ShardReport) lostEvents() bool { return v.Known() > v.Redis || v.lostOpening() || v.Late > 0 }

// lostOpening reports whether a caller has seen a later epoch than Redis has.
func (v *ShardReport) lostOpening() bool { return v.SeenIn > v.Opening && v.Seen > 0 }

// last returns the latest event that the shard may have had before it froze.
func (v *ShardReport) last() store.Sight {
	if v.lostOpening() {
		return store.Sight{Epoch: v.SeenIn, Seq: v.Seen}
	}
	return store.Sight{Epoch: v.Opening, Seq: v.Known()}
}

// Lost reports whether Redis has lost events, or a campaign is in doubt, or workers can't restore the shard.
func (v *ShardReport) Lost() bool {
	return v.lostEvents() || len(v.Campaigns) > 0 || v.Unrestored != ""
}

// report returns the report on a shard. It reads the ledger, and the topic as well if f is nil. It changes nothing,
// except that it freezes a shard that was opened for another server.
func (r *Recoverer) report(ctx context.Context, shard int, f *facts) (*ShardReport, error) {
	k := r.cfg.Store.Shard(shard)
	z, err := k.Freeze(ctx)
	if err != nil {
		return nil, err
	}
	v := &ShardReport{Shard: shard, Frozen: z.Frozen, For: z.Since, Redis: z.Seq, Seen: z.Seen.Seq, SeenIn: z.Seen.Epoch,
		Late: z.Late, Topic: -1, Epoch: max(z.Epoch, z.Seen.Epoch, 0), Opening: z.Epoch, state: z, dealt: map[string]int64{},
		silent: map[int]bool{}, here: map[string]here{}, ended: map[string]*store.LostCampaign{}}
	if v.Unrecorded, _, err = k.Unrecorded(ctx); err != nil || !z.Frozen {
		return v, err
	}
	if err := r.checkServer(ctx, v); err != nil {
		return nil, err
	}
	return v, r.askOthers(ctx, v, f)
}

// checkServer sets v.Refused if no shard may open on the shard's present server.
func (r *Recoverer) checkServer(ctx context.Context, v *ShardReport) error {
	if r.cfg.Check == nil {
		return nil
	}
	node, err := r.cfg.Store.Shard(v.Shard).Node(ctx)
	if err != nil {
		return err
	}
	servers, err := store.Inspect(ctx, node)
	if err != nil {
		return err
	}
	if refused := r.cfg.Check(&servers[0]); hongbao.IsOutage(refused) {
		return refused
	} else if refused != nil {
		v.Refused = refused.Error()
	}
	return nil
}

func (r *Recoverer) askOthers(ctx context.Context, v *ShardReport, f *facts) error {
	if err := r.askLedger(ctx, v); err != nil {
		return err
	}
	switch {
	case r.cfg.Topic == nil:
	case f != nil:
		v.Topic = f.highest()
	default:
		since, err := r.LastEntry(ctx, v.Shard)
		if err != nil {
			return err
		}
		if v.Topic, err = r.cfg.Topic.HighestSeq(ctx, v.Shard, since); err != nil {
			return fmt.Errorf("ask the topic for the highest event of shard %d: %w", v.Shard, err)
		}
	}
	if r.cfg.Ledger == nil {
		return nil
	}
	return r.askCampaigns(ctx, v)
}

// askLedger reads the shard's epoch and highest seq in the ledger. It sets v.Late if the ledger has an event that an
// opening without the ledger skipped.
func (r *Recoverer) askLedger(ctx context.Context, v *ShardReport) error {
	if v.Ledger = -1; r.cfg.Ledger == nil {
		return nil
	}
	state, err := r.cfg.Ledger.Shard(ctx, v.Shard)
	if err != nil {
		return err
	}
	v.Epoch = max(v.Epoch, state.Epoch)
	if err = r.askFences(ctx, v); err != nil {
		return err
	}
	if v.Ledger, err = r.cfg.Ledger.HighestSeq(ctx, v.Shard); err != nil {
		return err
	}
	for _, u := range v.Unrecorded { // Redis can lose the removal of a mark, so events after u.Last may be later
		late, err := r.cfg.Ledger.HighestSeqIn(ctx, v.Shard, stream.SeqRange{First: u.Seq + 1, Last: u.Last}, u.Epoch)
		if err != nil {
			return err
		}
		v.Late = max(v.Late, min(late, u.Last))
	}
	return nil
}

// askCampaigns compares the ledger's campaigns on this shard with those in Redis.
func (r *Recoverer) askCampaigns(ctx context.Context, v *ShardReport) error {
	if err := r.askEvents(ctx, v); err != nil {
		return err
	}
	for c, err := range r.cfg.Ledger.EachCampaign(ctx, "") {
		if err != nil {
			return err
		}
		if !r.cfg.Store.Has(c.Spec.ID, c.Spec.Places(), v.Shard) || c.State == model.MoneyRefunded && !v.lostEvents() {
			continue // a refunded campaign grants nothing more, and Redis has its close
		}
		if err := r.askCampaign(ctx, v, c); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recoverer) askCampaign(ctx context.Context, v *ShardReport, c *ledger.StoredCampaign) error {
	id := c.Spec.ID
	state, dealt, err := r.cfg.Store.Shard(v.Shard).Place(id).CampaignState(ctx)
	if err != nil {
		return err
	}
	missing := state == ""
	why := v.doubt(c, state)
	if why == "" && missing {
		if why, err = r.elsewhere(ctx, v, c); err != nil {
			return err
		}
	}
	if !missing {
		begun := !time.Now().Add(stream.ClockSkew).Before(c.Spec.From)
		h := here{dealt: max(dealt, 1), limit: c.Spec.UserHold(), places: c.Spec.Places(), began: later(c.Spec.From, c.Created),
			grants: begun && (state == store.StateOpen || state == store.StatePaused)}
		if c.Packets > c.Spec.Packets && c.State != model.MoneyRefunded {
			h.added = c.Packets
		}
		v.here[id] = h
	}
	whole := *v
	whole.events = ledger.Events{}
	if still := whole.doubt(c, state); still != "" || missing && why != "" {
		v.broken = append(v.broken, "campaign "+id+": "+cmp.Or(still, why))
	}
	switch {
	case why != "":
		v.Campaigns = append(v.Campaigns, Doubt{Campaign: id, Missing: missing, Why: why, places: c.Spec.Places()})
		return nil
	case c.State == model.MoneyRefunded:
		if missing && time.Since(c.Closing) < endedFor {
			v.ended[id] = ended(c)
		}
		return nil
	}
	if missing {
		v.Unloaded = append(v.Unloaded, id)
	}
	if c.Packets > c.Spec.Packets {
		v.dealt[id] = dealt
	}
	return nil
}

// elsewhere returns why a campaign that the shard does not have can't simply be loaded; empty if it can. No place of a
// campaign opens before all are loaded. So if another place is open, this shard has lost the campaign. A refunded
// campaign is an exception, because it leaves its places one by one. A shard that is down is skipped: a load asks every
// place again before it deals packets.
func (r *Recoverer) elsewhere(ctx context.Context, v *ShardReport, c *ledger.StoredCampaign) (string, error) {
	if c.Spec.Places() == 1 || c.State == model.MoneyRefunded {
		return "", nil
	}
	for _, k := range r.cfg.Store.Places(c.Spec.ID, c.Spec.Places()) {
		if v.silent[k.Index()] {
			continue
		}
		state, _, err := k.CampaignState(ctx)
		if hongbao.IsOutage(err) && ctx.Err() == nil && k.Index() != v.Shard {
			v.silent[k.Index()] = true
			continue
		}
		if err != nil {
			return "", err
		}
		if state != "" && state != store.StateLoading {
			return fmt.Sprintf("Redis has lost it here: on shard %d it is %s", k.Index(), state), nil
		}
	}
	return "", nil
}

func (r *Recoverer) askEvents(ctx context.Context, v *ShardReport) (err error) {
	v.events, err = r.cfg.Ledger.EventsIn(ctx, v.Shard, stream.SeqRange{First: max(v.Redis, 0) + 1, Last: v.Known()})
	return err
}

// doubt returns why a campaign can't continue with its state in Redis; empty if it can.
func (v *ShardReport) doubt(c *ledger.StoredCampaign, state string) string {
	ahead := v.events.Campaigns[c.Spec.ID]
	refunded := c.State == model.MoneyRefunded
	begun := !time.Now().Add(stream.ClockSkew).Before(c.Spec.From)
	switch {
	case state == "" && refunded:
		return "" // the campaign left Redis after its grace
	case state == "" && (c.Grants > 0 || ahead):
		return "Redis has lost it"
	case state == "" && begun && v.Known() > v.Redis:
		return "Redis does not have it: it has lost it, unless it was never loaded"
	case state == "":
		return "" // never loaded, or can be loaded again because it has granted nothing
	case state == store.StateClosed || state == store.StateRefunded:
		return ""
	case refunded:
		return "the ledger has refunded it, but in Redis it is " + state
	case ahead:
		return "the ledger has grants of it that Redis has lost"
	case v.Late > 0:
		return fmt.Sprintf("event %d was seen, and the shard was opened without it; its campaign is unknown",
			v.Late)
	case v.events.Gap > 0:
		return fmt.Sprintf("Redis has lost event %d, and the ledger does not have it: its campaign is unknown",
			v.events.Gap)
	}
	return ""
}

// blindChunks is how many more chunks are skipped if the ledger was not read, since it may know later events.
const blindChunks = 16

// chunk is the distance between two boundaries. The first seq after an opening is a boundary.
const chunk = 1 << 16

// skipTo returns the last seq that the opening skips. The next seq is a boundary after all known seqs, and one
// boundary further if something was lost. The opening skips at least half a chunk.
func (v *ShardReport) skipTo() int64 {
	next := nextAfter(v.Known())
	if v.Lost() {
		next += chunk
	}
	if v.Ledger < 0 {
		next += blindChunks * chunk
	}
	return next - 1
}

// nextAfter returns the lowest first seq of an opening that knows this seq.
func nextAfter(seq int64) int64 { return ((seq+chunk/2)/chunk + 1) * chunk }

// String returns the highest seqs and the campaigns in doubt in one line.
func (v *ShardReport) String() string {
	redis := fmt.Sprintf("Redis has come to event %d", v.Redis)
	if v.Redis < 0 {
		redis = "Redis has lost the shard"
	}
	topic := fmt.Sprintf("the topic knows event %d", v.Topic)
	if v.Topic < 0 {
		topic = "the topic was not asked"
	}
	ledger := fmt.Sprintf("the ledger knows event %d", v.Ledger)
	if v.Ledger < 0 && v.Frozen {
		ledger = "the ledger was not asked"
	}
	ids := make([]string, len(v.Campaigns))
	for i, c := range v.Campaigns {
		ids[i] = c.Campaign
	}
	in := ""
	if len(ids) > 0 {
		in = "; campaigns in doubt: " + strings.Join(ids, ", ")
	}
	late := ""
	if v.Late > 0 {
		late = fmt.Sprintf("; the shard was opened without event %d, which was seen before", v.Late)
	}
	epoch := ""
	if v.SeenIn != v.Opening && v.SeenIn > 0 {
		epoch = fmt.Sprintf(" of epoch %d", v.SeenIn)
	}
	why := ""
	if v.Unrestored != "" {
		why = "; it is not restored: " + v.Unrestored
	}
	return fmt.Sprintf("%s, %s, %s, callers have seen event %d%s%s%s%s", redis, ledger, topic, v.Seen, epoch, late, in, why)
}
