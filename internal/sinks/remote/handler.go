package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/httpsink"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Handler credits grants at the remote. Its methods are safe for concurrent use.
type Handler struct {
	cfg       Config
	base      string
	http      *http.Transport
	owner     string
	campaigns Campaigns
	ledger    Ledger
	gate      *httpsink.Gate
	credits   refusals // refused requests for a credit
	questions refusals // refused queries about a credit
	auditRate *rate.Limiter
	known     known
	now       func() time.Time
}

// New checks the configuration and returns a Handler. It sends nothing to the remote.
func New(cfg Config, campaigns Campaigns, ledger Ledger) (*Handler, error) {
	err := cfg.Check()
	if campaigns == nil || ledger == nil {
		err = errors.Join(err, errors.New("campaigns and ledger are required"))
	}
	if err != nil {
		return nil, err
	}
	h := &Handler{
		cfg: cfg, base: strings.TrimRight(cfg.URL, "/"), http: newTransport(&cfg), owner: "h" + rand.Text(),
		campaigns: campaigns, ledger: ledger, now: time.Now, auditRate: newLimiter(cfg.AuditRate),
	}
	h.gate = h.newGate()
	return h, nil
}

func (h *Handler) newGate() *httpsink.Gate {
	return httpsink.NewGate(httpsink.Limits{Server: "the remote", Concurrency: h.cfg.Concurrency,
		BreakerFailures: h.cfg.BreakerFailures, BreakerOpen: h.cfg.BreakerOpen,
		Now: func() time.Time { return h.now() }})
}

// newLimiter returns a limiter that spreads the queries evenly: it allows one query at a time.
func newLimiter(perSecond int) *rate.Limiter {
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), 1)
}

// Close closes idle connections. Call it after all calls of Handle have returned.
func (h *Handler) Close() { h.http.CloseIdleConnections() }

// BreakerOpen reports whether the circuit breaker is not closed. It closes after one successful request.
func (h *Handler) BreakerOpen() bool { return h.gate.BreakerOpen() }

// outcome says what this call knows about a credit at the remote.
type outcome int

const (
	outcomeOpen     outcome = iota // may be booked now or later
	outcomeUnbooked                // certainly not booked
	outcomeBooked                  // certainly booked
	outcomeRejected                // the remote refuses it permanently
)

// item is the state of one grant within a call.
type item struct {
	grant      *hongbao.Grant
	index      int
	credit     credit
	outcome    outcome
	err        error     // nil if and only if the grant is done
	first      time.Time // earliest time at which a request may have been sent
	asked      time.Time // when a worker last started to request it; that worker had ClaimTime
	batch      int64     // the batch of its pending row; 0 if this call owns no row
	listed     time.Time // for a row that this call has only listed: its Asked
	sent       bool      // a request was sent in this round
	resend     bool      // certainly not booked although it was pending: the next round sends it
	last       result
	rejected   *result // rejection of a retry: an earlier request may still be booked
	mismatches int     // number of responses about another credit
}

// Handle credits the grants at the remote and records them in the ledger. A nil error means that both were confirmed.
// Grants without a value need no credit: they are only recorded.
func (h *Handler) Handle(ctx context.Context, b hongbao.Batch) []error {
	if err := stream.CheckBatch(&b); err != nil {
		return slices.Repeat([]error{err}, len(b.Grants))
	}
	grants, errs := b.Grants, make([]error, len(b.Grants))
	items, free := h.sort(ctx, grants, errs)
	h.record(ctx, b.Epoch, free)
	size := maxBlind
	if h.cfg.idempotent() {
		size = maxBegun
	}
	h.each(len(items), size, func(first, last int) { h.settle(ctx, b.Epoch, items[first:last]) })
	byKey := make(map[string]error, len(items))
	for _, it := range slices.Concat(items, free) {
		errs[it.index] = it.err
		byKey[it.credit.Reference] = it.err
	}
	for i := range grants {
		if errors.Is(errs[i], errTwice) {
			errs[i] = byKey[h.keyOf(&grants[i])]
		}
	}
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return errs
	}
	return nil
}

var errTwice = errors.New("the grant comes twice in one call")

// ErrContradiction is wrapped by those Conflict errors that show a contradiction, not only a doubt. The grant
// contradicts the plan, or its packet differs in the ledger or at the remote. Possible causes are forged grants, two
// deployments with one id, and a Redis that went back in time. The campaign must be stopped.
var ErrContradiction = errors.New("contradiction")

// each splits n indexes into parts of size, calls do for each part, and waits. At most Concurrency calls run at once.
func (h *Handler) each(n, size int, do func(first, last int)) {
	httpsink.Each(n, size, h.cfg.Concurrency, do)
}

// sort returns an item for each grant that needs a credit (items) or has no value (free). For all other grants it sets
// an error in errs.
func (h *Handler) sort(ctx context.Context, grants []hongbao.Grant, errs []error) (items, free []*item) {
	items = make([]*item, 0, len(grants))
	currencies := map[string]string{}
	type event struct {
		shard int
		seq   int64
	}
	seen := make(map[event]*hongbao.Grant, len(grants))
	packets := make(map[string]bool, len(grants))
	var outage error
	for i := range grants {
		g := &grants[i]
		if errs[i] = outage; outage != nil { // another query would only cost another timeout
			continue
		}
		if errs[i] = h.check(ctx, g, currencies); errs[i] != nil {
			if hongbao.IsOutage(errs[i]) {
				outage = errs[i]
			}
			continue
		}
		if has := seen[event{g.Shard, g.Seq}]; has != nil {
			errs[i] = errTwice
			if has.Campaign != g.Campaign || has.Packet != g.Packet || has.User != g.User {
				errs[i] = hongbao.Errorf(hongbao.ClassConflict, "event %s came as two different grants in one call", g.EventID())
			}
			continue
		}
		seen[event{g.Shard, g.Seq}] = g
		key := h.keyOf(g)
		if packets[key] {
			errs[i] = hongbao.Errorf(hongbao.ClassConflict, "%w: packet %d of campaign %s came as two different events in one "+
				"call; a person decides about event %s",
				ErrContradiction, g.Packet, g.Campaign, g.EventID())
			continue
		}
		packets[key] = true
		it := &item{grant: g, index: i, credit: credit{Key: key, Reference: key, Account: g.User,
			Currency: currencies[g.Campaign], Amount: g.Amount}}
		if g.Amount > 0 {
			items = append(items, it)
			continue
		}
		it.outcome = outcomeBooked
		free = append(free, it)
	}
	return items, free
}

// check compares a grant with the plan of its campaign.
func (h *Handler) check(ctx context.Context, g *hongbao.Grant, currencies map[string]string) error {
	err := hongbao.CheckCampaignID(g.Campaign)
	if err == nil {
		err = hongbao.CheckID(g.User)
	}
	if err == nil && (g.Packet < 1 || g.Seq < 1 || g.Packet > int64(hongbao.MaxPackets)) {
		err = fmt.Errorf("packet %d and seq %d: want numbers from 1", g.Packet, g.Seq)
	}
	if err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "grant %s of campaign %.80q is malformed: %w", g.EventID(),
			g.Campaign, err)
	}
	amount, ok, err := h.campaigns.Amount(ctx, g.Campaign, g.Packet)
	if err != nil {
		return fmt.Errorf("ask the plan of campaign %s for packet %d: %w", g.Campaign, g.Packet, err)
	}
	if !ok || amount != g.Amount || amount < 0 || amount > hongbao.MaxAmount {
		return hongbao.Errorf(hongbao.ClassConflict, "%w: packet %d of campaign %s has the amount %d, which is not "+
			"planned; nothing was sent, a person decides",
			ErrContradiction, g.Packet, g.Campaign, g.Amount)
	}
	if _, known := currencies[g.Campaign]; !known {
		c, err := h.campaigns.Currency(ctx, g.Campaign)
		if err != nil {
			return fmt.Errorf("ask for the currency of campaign %s: %w", g.Campaign, err)
		}
		currencies[g.Campaign] = c
	}
	return nil
}
