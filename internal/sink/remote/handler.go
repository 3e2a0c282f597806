package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hongbao-project/hongbao"
)

// Handler credits grants at the remote. Its methods are safe for concurrent use.
type Handler struct {
	cfg       Config
	base      string
	http      *http.Transport
	owner     string
	campaigns Campaigns
	ledger    Ledger
	breaker   *gobreaker.TwoStepCircuitBreaker[struct{}]
	slots     chan struct{}
	gate      atomic.Int64 // unix ns until which nothing is sent to the remote
	credits   refusals     // for requests of a credit
	questions refusals     // for queries about a credit
	known     known
	now       func() time.Time
}

// New checks the configuration. It sends nothing to the remote.
func New(cfg Config, campaigns Campaigns, ledger Ledger) (*Handler, error) {
	err := cfg.Check()
	if campaigns == nil || ledger == nil {
		err = errors.Join(err, errors.New("campaigns and ledger are required"))
	}
	if err != nil {
		return nil, err
	}
	return &Handler{
		cfg: cfg, base: strings.TrimRight(cfg.URL, "/"), http: newTransport(&cfg), owner: "h" + rand.Text(),
		campaigns: campaigns, ledger: ledger,
		slots: make(chan struct{}, cfg.Concurrency), now: time.Now,
		breaker: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
			Name: "remote", MaxRequests: 1, Interval: 0, Timeout: cfg.BreakerOpen,
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(cfg.BreakerFailures) },
			IsExcluded:  func(err error) bool { return errors.Is(err, errAborted) },
		}),
	}, nil
}

// Close closes idle connections. No Handle may be running.
func (h *Handler) Close() { h.http.CloseIdleConnections() }

// BreakerOpen reports whether the circuit breaker stops requests. It is open until one request succeeds.
func (h *Handler) BreakerOpen() bool { return h.breaker.State() != gobreaker.StateClosed }

// outcome says whether the remote has booked a credit, as far as this call knows.
type outcome int

const (
	outcomeOpen     outcome = iota // it may be booked, now or later
	outcomeUnbooked                // certainly not booked
	outcomeBooked                  // certainly booked
	outcomeRejected                // the remote refuses it permanently
)

// item is the state of one grant.
type item struct {
	grant      *hongbao.Grant
	index      int
	credit     credit
	outcome    outcome
	err        error     // nil if and only if done
	first      time.Time // the earliest time of a request
	asked      time.Time // when a worker last began to ask for it; that worker had ClaimTime
	batch      int64     // the batch of its row in the ledger; 0 if it has no row, or another batch's
	sent       bool      // a request for it was sent in this round
	resend     bool      // it was noted before and is certainly not booked: the next round sends it
	last       result
	rejected   *result // of a repeat: what was sent before may be booked all the same
	mismatches int     // responses about another credit
}

// Handle credits the grants. Nil for a grant means that the remote confirmed the credit and the ledger has it since
// then. Grants without a value need no credit and are only recorded.
func (h *Handler) Handle(ctx context.Context, grants []hongbao.Grant) []error {
	errs := make([]error, len(grants))
	items, free := h.sort(ctx, grants, errs)
	h.record(ctx, free)
	size := maxBlind
	if h.cfg.idempotent() {
		size = maxBegun
	}
	h.each(len(items), size, func(first, last int) { h.settle(ctx, items[first:last]) })
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

// ErrContradiction is in the chain of a Conflict that is more than a doubt: the grant contradicts the plan, or what the
// ledger or the remote has of its packet. The cause is a forgery, two deployments with one id, or a Redis that went
// back in time. Stop the campaign.
var ErrContradiction = errors.New("contradiction")

// each calls do for the parts of n, at most Concurrency at once, and waits. One goroutine per grant would be thousands
// of stacks that only wait for a slot.
func (h *Handler) each(n, size int, do func(first, last int)) {
	if n <= size {
		if n > 0 {
			do(0, n)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min((n+size-1)/size, h.cfg.Concurrency) {
		wg.Go(func() {
			for {
				first := int(next.Add(int64(size))) - size
				if first >= n {
					return
				}
				do(first, min(first+size, n))
			}
		})
	}
	wg.Wait()
}

// sort makes items of the grants that need a credit, and of those without a value; errs gets the errors of the others.
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
		if errs[i] = outage; outage != nil { // asking once more would be one more timeout
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

// check compares a grant with the plan, before anything is changed.
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
