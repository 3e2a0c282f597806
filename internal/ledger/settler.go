package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/model"
)

// MaxBatch is the maximum number of grants in a transaction. A longer batch takes several transactions.
const MaxBatch = 10_000

// PlanSource returns the planned amounts of packets. Amount returns the amount of a packet, and false if the plan has
// no such packet. It must be safe for concurrent use.
type PlanSource interface {
	Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error)
}

// SettlerConfig has the dependencies of a Settler.
type SettlerConfig struct {
	Ledger *Ledger
	Plan   PlanSource
	Log    *zap.Logger
	// OnQuarantine, if not nil, is called for each grant that waits in quarantine for a decision, after the commit. It is
	// called for each redelivery of the grant, then with ID 0. It may count the grant or freeze its campaign. Its errors
	// are outages, so the grant is redelivered. It must be fast and safe for concurrent use.
	OnQuarantine func(model.Quarantined) error
}

// Settler is the hongbao.Handler that settles grants. Its methods are safe for concurrent use, even with the same
// grants.
type Settler struct {
	config SettlerConfig
	// pending says that the grants' pending rows are deleted in the transaction that settles them.
	pending bool
	alarms  *alarms
}

// alarms has the time of the last alarm of each kind.
type alarms struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// NewSettler returns a Settler.
func NewSettler(config SettlerConfig) (*Settler, error) {
	var errs []error
	if config.Ledger == nil {
		errs = append(errs, errors.New("the ledger is missing"))
	}
	if config.Plan == nil {
		errs = append(errs, errors.New("the plan is missing: without it any amount would be paid"))
	}
	if config.Log == nil {
		errs = append(errs, errors.New("the log is missing"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("settler configuration: %w", errors.Join(errs...))
	}
	config.Ledger.log.CompareAndSwap(nil, config.Log)
	return &Settler{config: config, alarms: &alarms{last: make(map[string]time.Time)}}, nil
}

// Handle settles the grants; all valid ones share a transaction. A nil error for a grant means that the ledger has it
// durably, paid or in quarantine. A repeated call changes nothing. If the ledger does not have a grant's campaign, the
// grant waits (hongbao.IsWaiting) until the campaign is created or disowned. A grant that a fence leaves out gets
// ErrFenced, an outage; the other grants are settled.
func (s *Settler) Handle(ctx context.Context, b hongbao.Batch) []error {
	if err := stream.CheckBatch(&b); err != nil {
		return slices.Repeat([]error{err}, len(b.Grants))
	}
	errs := make([]error, len(b.Grants))
	known := make(map[string]knownCampaign)
	planned, refused := s.checkPlans(ctx, &b, known, errs)
	for part := range slices.Chunk(planned, MaxBatch) {
		refused = append(refused, s.settle(ctx, part, known, errs)...)
	}
	s.quarantine(ctx, refused, errs)
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return errs
	}
	return nil
}

// Record is like Handle, for grants that a remote has credited. A nil error also means that the grant is no longer
// pending (see Begin).
func (s *Settler) Record(ctx context.Context, b hongbao.Batch) []error {
	return (&Settler{config: s.config, pending: true, alarms: s.alarms}).Handle(ctx, b)
}

// PutAside sends grants of disowned campaigns to quarantine. It settles no grant, because it is for deployments in
// which a remote pays. A nil error for a grant means that it is in quarantine. Grants of other campaigns that the
// ledger does not have wait (hongbao.IsWaiting).
func (s *Settler) PutAside(ctx context.Context, b hongbao.Batch) []error {
	grants, errs := b.Grants, make([]error, len(b.Grants))
	known, missing := make(map[string]knownCampaign), make(map[string]bool)
	var disowned []item
	for i := range grants {
		it := item{index: i, grant: &grants[i], epoch: b.Epoch}
		if errs[i] = malformed(it.grant); errs[i] != nil {
			continue
		}
		_, it.reason, errs[i] = s.lookUp(ctx, it.grant, known, missing)
		switch {
		case errs[i] != nil:
		case it.reason != "":
			disowned = append(disowned, it)
		default:
			errs[i] = hongbao.Errorf(hongbao.ClassTransient, "retry grant %s: the ledger has campaign %s by now",
				it.grant.EventID(), it.grant.Campaign)
		}
	}
	s.quarantine(ctx, disowned, errs)
	return errs
}

// checkPlans separates the grants into planned ones and refused ones, which go to quarantine. It sets errs for
// malformed grants, and for grants whose plan can't be read.
func (s *Settler) checkPlans(
	ctx context.Context, b *hongbao.Batch, known map[string]knownCampaign, errs []error,
) (planned, refused []item) {
	grants := b.Grants
	planned = make([]item, 0, len(grants))
	missing := make(map[string]bool)
	var outage error
	for i := range grants {
		it := item{index: i, grant: &grants[i], epoch: b.Epoch}
		if errs[i] = malformed(it.grant); errs[i] != nil {
			continue
		}
		if errs[i] = outage; outage != nil { // after an outage each further query could cost a timeout
			continue
		}
		k, reason, err := s.lookUp(ctx, it.grant, known, missing)
		if err == nil && reason == "" {
			reason, err = s.checkPlan(ctx, it.grant, k)
		}
		if it.reason, errs[i] = reason, err; err != nil {
			if hongbao.IsOutage(err) {
				outage = err
			}
			continue
		}
		if it.reason == "" {
			planned = append(planned, it)
		} else {
			refused = append(refused, it)
		}
	}
	return planned, refused
}

// malformed returns an error if a grant does not fit into the ledger's tables.
func malformed(g *hongbao.Grant) error {
	err := hongbao.CheckCampaignID(g.Campaign)
	if err == nil {
		err = hongbao.CheckID(g.User)
	}
	if err == nil && g.RequestID != "" {
		err = hongbao.CheckID(g.RequestID)
	}
	if err == nil && (g.Shard < 0 || g.Shard >= 1<<31 || g.Seq < 0) {
		err = fmt.Errorf("shard %d and seq %d are out of range", g.Shard, g.Seq)
	}
	if err == nil {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "grant %s of campaign %.80q is malformed: %w", g.EventID(),
		g.Campaign, err)
}

// lookUp returns a grant's campaign, or the reason why the grant must go to quarantine. known and missing are caches
// for the batch: known has campaigns of the ledger. missing has other campaigns, and whether they are disowned.
func (s *Settler) lookUp(
	ctx context.Context, g *hongbao.Grant, known map[string]knownCampaign, missing map[string]bool,
) (k knownCampaign, reason model.QuarantineReason, err error) {
	k, ok := known[g.Campaign]
	disowned, met := missing[g.Campaign]
	if !met && (!ok || g.Packet > k.packets && !k.latest) {
		if k, ok, err = s.config.Ledger.lookUp(ctx, g.Campaign, g.Packet); err != nil {
			return k, "", err
		}
		if ok {
			k.latest = g.Packet > k.packets
			known[g.Campaign] = k
		} else if disowned, err = s.config.Ledger.disowned(ctx, g.Campaign); err != nil {
			return k, "", err
		} else {
			missing[g.Campaign] = disowned
		}
	}
	switch {
	case ok:
		return k, "", nil
	case disowned:
		return k, NoCampaign, nil
	}
	s.alarm("unknown_campaign", g.Campaign, "ALARM: grants wait unpaid, the ledger does not have their campaign; is it the "+
		"right ledger, and not an older copy? `hongbao quarantine campaign` sends them to quarantine if the campaign will "+
		"never be there")
	// Each grant gets its own error, since a shared one would count as a failure of the whole batch.
	return k, "", hongbao.Waitingf("grant %s waits: %w, so its amount can't be checked. Point ledger.dsn to the right "+
		"ledger, or restore the one that has campaign %s; if there is none, `hongbao quarantine campaign %s` sends its "+
		"grants to quarantine", g.EventID(), ErrNoCampaign, g.Campaign, g.Campaign)
}

// checkPlan compares a grant with its campaign and the plan. It returns the reason if the grant must go to quarantine.
func (s *Settler) checkPlan(ctx context.Context, g *hongbao.Grant, k knownCampaign) (model.QuarantineReason, error) {
	amount, err := k.ask(ctx, s.config.Plan, g)
	if errors.Is(err, errIncompletePlan) {
		s.alarm("incomplete_plan", g.Campaign, "ALARM: grants wait unpaid, because the plan of their campaign lacks packets that "+
			"the ledger counts: the program's plan source knows no top-ups; give settlement.Ledger.Plan to "+
			"campaign.PlansConfig.Source")
	}
	if err != nil {
		return "", err
	}
	return k.refuses(g, amount), nil
}

// errIncompletePlan says that the plan lacks a packet that the ledger counts.
var errIncompletePlan = errors.New("the plan lacks a packet that the ledger counts")

// has reports whether the campaign has a packet.
func (k knownCampaign) has(packet int64) bool { return packet >= 1 && packet <= k.packets }

// ask returns the planned amount of a grant's packet; 0 if the campaign has no such packet. A grant whose packet only
// the plan lacks waits: the plan is wrong, not the grant.
func (k knownCampaign) ask(ctx context.Context, plan PlanSource, g *hongbao.Grant) (hongbao.Amount, error) {
	if !k.has(g.Packet) {
		return 0, nil
	}
	amount, ok, err := plan.Amount(ctx, g.Campaign, g.Packet)
	if err != nil {
		return 0, fmt.Errorf("ask the plan of campaign %s for packet %d: %w", g.Campaign, g.Packet, err)
	}
	if !ok {
		return 0, hongbao.Waitingf("grant %s waits: %w, packet %d of campaign %s. Make plans with all top-ups: see package "+
			"settlement, Ledger.Plan", g.EventID(), errIncompletePlan, g.Packet, g.Campaign)
	}
	return amount, nil
}

// refuses returns the reason why the settler refuses a grant because of the plan; "" if it does not. amount is what ask
// returned.
func (k knownCampaign) refuses(g *hongbao.Grant, amount hongbao.Amount) model.QuarantineReason {
	switch {
	case !k.has(g.Packet):
		return PacketNotPlanned
	case amount != g.Amount || amount < 0 || amount > hongbao.MaxAmount:
		return AmountNotPlanned
	}
	return ""
}

// refuses returns the reason why the campaign's state or pool does not allow a new grant; "" if it does. CHECK
// constraints of the tables enforce the same.
func (c *StoredCampaign) refuses(g *hongbao.Grant) model.QuarantineReason {
	switch {
	case c.State == model.MoneyRefunded:
		return AfterRefund
	case g.Packet > c.Packets:
		return PacketNotPlanned
	case g.Amount > c.Funded-c.Granted-c.Refunded:
		return OverFunded
	}
	return ""
}

// alarm logs an alarm about a campaign, each at most once a minute.
func (s *Settler) alarm(code, campaign, text string) {
	if s.alarms.due(code + " " + campaign) {
		s.config.Log.Error(text, zap.String("code", code), zap.String("campaign", campaign))
	}
}

// due reports whether the last alarm of a kind is at least a minute old, and notes the new alarm.
func (a *alarms) due(kind string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, raised := a.last[kind]; raised && time.Since(last) < time.Minute {
		return false
	}
	if len(a.last) >= maxKnownCampaigns {
		clear(a.last)
	}
	a.last[kind] = time.Now()
	return true
}

// settle settles the items, and returns those that must go to quarantine. If the funding does not cover all items, or a
// balance would overflow, it settles each half separately, until it has isolated the items that fail.
func (s *Settler) settle(ctx context.Context, items []item, known map[string]knownCampaign, errs []error) []item {
	call := &settleCall{Ledger: s.config.Ledger, items: items, known: known, pending: s.pending}
	refused, err := call.post(ctx)
	if err == nil {
		noteLeftOut(call.fencedOff, errs)
		return refused
	}
	overdraws := errors.Is(err, db.ErrOverdraw)
	if !overdraws && (len(items) == 1 || hongbao.ClassOf(err) != hongbao.ClassPermanent) {
		for _, it := range items {
			errs[it.index] = err
		}
		return nil
	}
	if len(items) == 1 {
		it := &items[0]
		c, _, err := s.config.Ledger.Campaign(ctx, it.grant.Campaign)
		if errs[it.index] = err; err != nil {
			return nil
		}
		s.config.Ledger.known.forget(it.grant.Campaign)
		if it.reason = c.refuses(it.grant); it.reason == "" { // topped up meanwhile, or the pool was changed by hand
			it.reason = OverFunded
		}
		return items
	}
	half := len(items) / 2
	refused = s.settle(ctx, items[:half], known, errs)
	if err := errs[items[half-1].index]; hongbao.IsOutage(err) && !errors.Is(err, ErrFenced) {
		for _, it := range items[half:] {
			errs[it.index] = err
		}
		return refused
	}
	return append(slices.Clip(refused), s.settle(ctx, items[half:], known, errs)...)
}

// noteLeftOut sets the errors of the items that a fence leaves out.
func noteLeftOut(items []item, errs []error) {
	for _, it := range items {
		errs[it.index] = it.event().fencedError(it.fence)
	}
}

func (s *Settler) quarantine(ctx context.Context, items []item, errs []error) {
	if len(items) == 0 {
		return
	}
	added, fencedOff, err := s.config.Ledger.addToQuarantine(ctx, items, s.pending)
	if err != nil {
		for _, it := range items {
			errs[it.index] = err
		}
		return
	}
	noteLeftOut(fencedOff, errs)
	for _, q := range added {
		if err := s.report(q); err != nil {
			// The rows are stored, but the grants are redelivered until the hook succeeds.
			for _, it := range items {
				errs[it.index] = hongbao.Outagef(hongbao.ClassTransient, "quarantine of packet %d of campaign %s: %w",
					q.Grant.Packet, q.Grant.Campaign, err)
			}
			return
		}
	}
}

// report logs a grant if it is new in quarantine. It calls the hook for redelivered grants, too.
func (s *Settler) report(q model.Quarantined) error {
	g := &q.Grant
	fields := []zap.Field{
		zap.String("reason", string(q.Reason)), zap.Int64("quarantine", q.ID), zap.String("event", g.EventID()),
		zap.String("campaign", g.Campaign), zap.Int64("packet", g.Packet), zap.String("user", g.User),
		zap.Int64("amount", int64(g.Amount)),
	}
	if q.Has != nil {
		fields = append(fields, zap.String("ledger_event", q.Has.EventID()), zap.String("ledger_user", q.Has.User),
			zap.Int64("ledger_amount", int64(q.Has.Amount)))
	}
	if q.ID != 0 {
		s.config.Log.Error("grant went to quarantine", fields...)
	}
	if s.config.OnQuarantine != nil {
		return s.config.OnQuarantine(q)
	}
	return nil
}
