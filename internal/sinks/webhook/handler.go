package webhook

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/httpsink"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Handler sends the events of grants to an endpoint. Its methods are safe for concurrent use.
type Handler struct {
	cfg      Config
	endpoint *url.URL
	source   string
	signer   signer
	dialer   *net.Dialer
	http     *http.Transport
	gate     *httpsink.Gate
	failures failures
	now      func() time.Time
}

// New checks the configuration and returns a Handler. It sends nothing.
func New(cfg Config) (*Handler, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("webhook configuration: the URL can't be read: %w", err)
	}
	h := &Handler{cfg: cfg, endpoint: endpoint, source: cloudevent.SourcePrefix + cfg.Deployment, now: time.Now,
		signer: newSigner(cfg.Secret, cfg.PreviousSecret), dialer: newDialer(&cfg)}
	now := func() time.Time { return h.now() }
	h.http, h.failures.now = newTransport(&cfg, h.dialer), now
	h.gate = httpsink.NewGate(httpsink.Limits{Server: "the endpoint at " + endpoint.Host, Concurrency: cfg.Concurrency,
		BreakerFailures: cfg.BreakerFailures, BreakerOpen: cfg.BreakerOpen, Now: now})
	return h, nil
}

// Close closes idle connections. Call it after all calls of Handle have returned.
func (h *Handler) Close() { h.http.CloseIdleConnections() }

// BreakerOpen reports whether the circuit breaker is not closed. It closes after one successful request.
func (h *Handler) BreakerOpen() bool { return h.gate.BreakerOpen() }

// ID returns the id of a grant's event: the header webhook-id, and the id of the CloudEvent. It depends only on
// campaign and packet, which identify a grant forever. Shard and seq do not: after an accepted loss two grants can have
// the same.
func ID(campaign string, packet int64) string { return campaign + "-" + strconv.FormatInt(packet, 10) }

// item is the state of one event within a call.
type item struct {
	id    string
	grant *hongbao.Grant
	// indexes are those of the grant in the batch, which may have the same grant twice.
	indexes []int
	err     error // nil if and only if the endpoint has the event
	// failure is why the last try failed, if it is not known yet whom that concerns. began is failures.begin of the try.
	failure error
	began   int64
}

// Handle sends one event for each grant. A nil error means that the endpoint has confirmed it.
func (h *Handler) Handle(ctx context.Context, b hongbao.Batch) []error {
	if err := stream.CheckBatch(&b); err != nil {
		return slices.Repeat([]error{err}, len(b.Grants))
	}
	errs := make([]error, len(b.Grants))
	items := h.sort(b.Grants, errs)
	h.complete(ctx, items)
	h.send(ctx, items)
	for _, it := range items {
		for _, i := range it.indexes {
			errs[i] = it.err
		}
	}
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return errs
	}
	return nil
}

// sort returns an item for each event. For grants that have no event it sets an error in errs.
func (h *Handler) sort(grants []hongbao.Grant, errs []error) []*item {
	items := make([]*item, 0, len(grants))
	known := make(map[string]*item, len(grants))
	for i := range grants {
		g := &grants[i]
		err := cloudevent.CheckGrant(g)
		if err == nil {
			err = cloudevent.CheckTime(g.Time)
		}
		if err != nil {
			errs[i] = hongbao.Errorf(hongbao.ClassPermanent, "grant %s can't be an event: %w", g.EventID(), err)
			continue
		}
		id := ID(g.Campaign, g.Packet)
		has := known[id]
		switch {
		case has == nil:
			known[id] = &item{id: id, grant: g, indexes: []int{i}}
			items = append(items, known[id])
		case has.grant.Seq == g.Seq && has.grant.User == g.User && has.grant.Amount == g.Amount:
			has.indexes = append(has.indexes, i)
		default:
			errs[i] = hongbao.Errorf(hongbao.ClassConflict, "packet %d of campaign %s came as two different grants in one "+
				"call, events %s and %s; a person decides about the second one, the first one is sent", g.Packet, g.Campaign,
				has.grant.EventID(), g.EventID())
		}
	}
	return items
}

// complete replaces the items' grants by copies with currency and code. If they can't be found, it sets the errors of
// the items.
func (h *Handler) complete(ctx context.Context, items []*item) {
	if h.cfg.Campaigns == nil || len(items) == 0 {
		return
	}
	grants := make([]hongbao.Grant, len(items))
	for i, it := range items {
		grants[i] = *it.grant
	}
	full, without, err := cloudevent.Complete(ctx, h.cfg.Campaigns, grants)
	for i, it := range items {
		if it.err = err; err == nil {
			it.grant, it.err = &full[i], without[i]
		}
	}
}
