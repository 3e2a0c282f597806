package audit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// campaign has what the audit knows about one campaign.
type campaign struct {
	id     string
	on     map[int]*snapshot // by shard; a shard that lacks the campaign has no snapshot
	ledger *books.Totals
	facts  table[fact] // by packet
	codes  codes
	counts model.Counts
	found  map[model.DifferenceKind]int64 // its differences
	sealed bool                           // its grants are not compared
	first  map[int]int64                  // offset of its first record in each partition of the topic, as far as the topic was read
	// places is the number of shards over which the campaign is dealt. If there are several, gone are the shards that
	// lack it. lostOn counts the shards on which a person ended the campaign from the ledger. stubs counts the shards
	// that have lost it and have a stub.
	places        int
	gone          map[int]bool
	lostOn, stubs int
	perUser       map[uint64]int32 // packets by hash of the user, if on several shards
	aboveLimit    map[string]int64 // see Config.AboveLimit; nil until a user has more packets than the limit
	// unplanned means that the ledger does not have the campaign, so its amounts can't be checked.
	unplanned bool
	// reportedPackets and reportedAmounts count packets whose difference was already reported, so that the same cause is
	// not reported as drift of the counts. reportedPackets change the number of packets, reportedAmounts only the amounts.
	reportedPackets, reportedAmounts int64
}

func (c *campaign) inRedis() bool { return len(c.on) > 0 }

// currency returns the campaign's currency from the ledger, or from Redis if the ledger does not have the campaign.
func (c *campaign) currency() string {
	if c.ledger != nil {
		return c.ledger.Currency
	}
	for _, s := range c.on {
		return s.currency
	}
	return ""
}

// lost reports whether Redis had lost data of the campaign and a person ended it from the ledger alone.
func (c *campaign) lost() bool { return c.ledger != nil && c.ledger.Closed && c.ledger.By != "" }

// ended returns who ended a lost campaign, and why.
func (c *campaign) ended() string {
	return fmt.Sprintf("Redis had lost something of the campaign, and %.128s ended it from the ledger: %.200q",
		c.ledger.By, c.ledger.Why)
}

// snapshot is a campaign on one shard, read at one instant. receipts, receiptSum and stockSum are read later and refer
// to the same instant.
type snapshot struct {
	state, currency             string
	packets, loaded             int64
	total                       hongbao.Amount
	granted                     int64
	grantedAmount, loadedAmount hongbao.Amount
	limit, from                 int64
	// The campaign is dealt over places shards, and this one has the number place. share is the number of this place's
	// packets from all generations announced on it; base is the same without the newest generation.
	places, place     int
	share, base       int64
	shareAmount       hongbao.Amount
	generation, dealt int64
	seq               int64 // the shard's last seq at the same instant
	stocked           int64 // length of the stock, at the same instant
	withheld          int64 // packets among them that a restore has withheld
	closeSeq          int64 // the seq of the close; set if over
	codes             bool  // whether its packets have codes
	lost              bool  // a person ended the campaign from the ledger, so its data in Redis proves nothing

	receipts             int64          // receipts with a seq up to seq
	receiptSum, stockSum hongbao.Amount // as of seq
}

// loading reports whether packets are still being added to the stock, before the first grant.
func (s *snapshot) loading() bool { return s.state == store.StateLoading }

// over reports whether the campaign was closed on the shard.
func (s *snapshot) over() bool {
	return s.state == store.StateClosed || s.state == store.StateRefunded
}

func (s *snapshot) parse(f *store.CampaignFields) error {
	s.state, s.currency, s.codes, s.lost = f.State, f.Currency, f.Codes, f.Lost
	need := []string{"packets", "total", "loaded", "loaded_amount", "user_campaign", "from"}
	if s.over() {
		need = append(need, "close_seq", "granted", "granted_amount")
		s.closeSeq, s.granted, s.grantedAmount = f.CloseSeq, f.Granted, f.GrantedAmount
	}
	s.packets, s.total, s.loaded, s.loadedAmount = f.Packets, f.Total, f.Loaded, f.LoadedAmount
	s.limit, s.from = f.PerUser, f.From.UnixMilli()
	errs := []error{f.Need(need...)}
	if s.packets > hongbao.MaxPackets {
		errs = append(errs, fmt.Errorf("%d packets are more than any campaign has", s.packets))
	}
	return errors.Join(append(errs, s.parseWalk(f))...)
}

// parseWalk reads the fields of a campaign that is on several shards or was topped up. A campaign on one shard has none
// of these fields.
func (s *snapshot) parseWalk(f *store.CampaignFields) error {
	errs := []error{f.Readable("places", "place", "generation", "dealt", "share", "share_amount", "base")}
	value := func(name string, has, absent, most int64) int64 {
		if !f.Has(name) {
			return absent
		}
		if has > most {
			errs = append(errs, fmt.Errorf("field %s is %d, want at most %d", name, has, most))
		}
		return has
	}
	s.places = int(max(1, value("places", f.Places, 1, hongbao.MaxCampaignShards)))
	s.place = int(value("place", f.Place, 0, int64(s.places)-1))
	s.generation = value("generation", f.Generation, 1, store.MaxGenerations)
	s.dealt = value("dealt", f.Dealt, 1, s.generation)
	s.share = value("share", f.Share, s.packets, s.packets)
	s.shareAmount = hongbao.Amount(value("share_amount", int64(f.ShareAmount), int64(s.total), int64(s.total)))
	s.base = value("base", f.Base, 0, s.packets)
	return errors.Join(errs...)
}

// readSeqs returns a step that reads each shard's last seq and passes it to note.
func (r *run) readSeqs(note func(s *shard, seq int64)) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, s := range r.shards {
			seq, err := s.LastSeq(ctx)
			if err != nil {
				return err
			}
			note(s, seq)
		}
		return nil
	}
}

func (r *run) readCampaigns(ctx context.Context) error {
	on := make([]*store.Shard, len(r.shards))
	for i, s := range r.shards {
		on[i] = s.Shard
	}
	places, err := r.Store.FindCampaigns(ctx, on...)
	if err != nil {
		return err
	}
	for p := range places {
		if err := r.readCampaign(ctx, r.shards[p.Index()], p.Campaign); err != nil {
			return fmt.Errorf("campaign %.80q on shard %d: %w", p.Campaign, p.Index(), err)
		}
	}
	r.findPlaces()
	return nil
}

func (r *run) readCampaign(ctx context.Context, s *shard, id string) error {
	c := r.campaign(id)
	if c == nil {
		return nil
	}
	snap, why, err := r.snapshot(ctx, s, c.id)
	if err != nil {
		return err
	}
	if why != "" {
		r.differs(c, CampaignBroken, s.Keys.Campaign(c.id), "%s", why)
	}
	if snap != nil && snap.lost {
		c.lostOn++
	}
	if snap == nil || snap.lost { // the ledger alone judges a lost campaign, as if it had left Redis
		return nil
	}
	c.on[s.Index()] = snap
	if snap.state == store.StateFrozen {
		r.differs(c, CampaignFrozen, s.Keys.Campaign(c.id), "`hongbao recover` left it frozen on shard %d", s.Index())
	}
	if snap.loading() {
		return nil
	}
	// The stock is read before the receipts. So a packet that is granted in between is seen in both rather than in
	// neither.
	err = s.Place(c.id).EachLeft(ctx, snap.dealt, func(packet string) error { return r.stocked(ctx, c, snap, packet) })
	if err != nil {
		return err
	}
	return r.readReceipts(ctx, s, c, snap)
}

// snapshot reads the campaign's keys at one instant. It returns nil if there is no campaign to audit, or if the keys can't
// be read; then why is the reason.
func (r *run) snapshot(ctx context.Context, s *shard, id string) (snap *snapshot, why string, err error) {
	has, err := s.Place(id).CampaignKeys(ctx)
	if err != nil {
		return nil, "", err
	}
	if !has.Fields.Exists() {
		if has.Stocked+has.Receipts == 0 {
			return nil, "", nil // the campaign was purged just now, or only its counters are left
		}
		return nil, fmt.Sprintf("the campaign's hash is missing, but %d packets of its stock and %d users' receipts exist",
			has.Stocked, has.Receipts), nil
	}
	snap = &snapshot{stocked: has.Stocked, withheld: has.Withheld, seq: has.Seq}
	if err := snap.parse(has.Fields); err != nil {
		return nil, "its fields can't be read: " + strings.ReplaceAll(err.Error(), "\n", "; "), nil
	}
	return snap, "", nil
}

func (r *run) stocked(ctx context.Context, c *campaign, snap *snapshot, text string) error {
	number, value, _ := strings.Cut(text, " ")
	packet, err1 := strconv.ParseInt(number, 10, 64)
	amount, err2 := strconv.ParseInt(value, 10, 64)
	if err1 != nil || err2 != nil || packet < 1 || packet > snap.packets {
		c.reportedPackets++
		has := fmt.Sprintf("packet %d", packet)
		if err1 != nil || err2 != nil {
			has = "a packet that can't be read"
		}
		r.differs(c, PacketUnknown, "stock", "the stock has %s; want \"number amount\" with numbers 1 to %d", has, snap.packets)
		return nil
	}
	if snap.dealtTo(packet) != snap.place {
		c.reportedPackets++
		r.found(model.Difference{Kind: PacketUnknown, Where: "stock", Campaign: c.id, Packet: packet,
			Detail: fmt.Sprintf("it is on place %d of %d, but was dealt to place %d", snap.place, snap.places,
				snap.dealtTo(packet))})
	}
	snap.stockSum += hongbao.Amount(amount)
	f := c.facts.at(packet)
	if f.has(inStock) {
		c.reportedPackets++
		r.found(model.Difference{Kind: PacketTwice, Where: "stock", Campaign: c.id, Packet: packet,
			Detail: "the stock has it twice"})
	}
	f.from |= inStock
	return r.planned(ctx, c, packet, hongbao.Amount(amount), "stock")
}

// planned compares a packet's amount with the plan, if a plan is configured. Viewers see differences, so a difference of
// the stock has no amounts: a user who knows the amount of a packet that no one has won can time a grab.
func (r *run) planned(ctx context.Context, c *campaign, packet int64, amount hongbao.Amount, where string) error {
	if r.Plan == nil || c.unplanned {
		return nil
	}
	want, ok, err := r.Plan.Amount(ctx, c.id, packet)
	if errors.Is(err, ledger.ErrNoCampaign) { // judgePresence reports it
		c.unplanned = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if !ok || want != amount {
		c.reportedAmounts++
		detail := fmt.Sprintf("the %s has amount %d, planned is %d", where, amount, want)
		if where == "stock" {
			detail = "the stock has another amount than the plan"
		}
		r.found(model.Difference{Kind: NotPlanned, Where: where, Campaign: c.id, Packet: packet, Detail: detail})
	}
	return nil
}
