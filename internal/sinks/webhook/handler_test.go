package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// Each grant is one request. The signature was verified by the receiver.
func TestRequests(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h := newHandler(t, r)
	list := grants(1, 20)
	list[4].Trace = trace
	require.Nil(t, h.handle(t.Context(), list))
	seen := map[string]bool{}
	for _, req := range r.got() {
		var e struct {
			ID, Source, Type, SpecVersion, DataContentType, Time, Traceparent string
			Data                                                              struct{ Packet int64 }
		}
		require.NoError(t, json.Unmarshal([]byte(req.body), &e))
		g := &list[e.Data.Packet-1]
		require.Equal(t, string(cloudevent.AppendEvent(nil, "/hongbao/prod", ID("rain", g.Packet), g)), req.body)
		require.Equal(t, e.ID, req.id)
		require.Equal(t, g.Trace, e.Traceparent)
		require.Equal(t, g.Trace, req.header.Get("Traceparent"))
		require.Equal(t, "application/cloudevents+json", req.header.Get("Content-Type"))
		require.Equal(t, "hongbao", req.header.Get("User-Agent"))
		require.Len(t, strings.Fields(req.header.Get("Webhook-Signature")), 1)
		seen[req.id] = true
	}
	require.Len(t, seen, 20)
	require.Len(t, r.got(), 20)
	require.Nil(t, h.handle(t.Context(), nil))
}

// campaigns has codes for campaign "coupons", except for packet 2. It does not know "rain-2".
type campaigns struct{ down bool }

func (c campaigns) Terms(_ context.Context, _ int, id string) (cloudevent.Facts, bool, error) {
	if c.down {
		return cloudevent.Facts{}, false, errors.New("redis is gone")
	}
	return cloudevent.Facts{Currency: "CNY", Codes: id == "coupons"}, id != "rain-2", nil
}

func (campaigns) Codes(_ context.Context, _ int, _ string, packets []int64) ([]string, error) {
	codes := make([]string, len(packets))
	for i, p := range packets {
		if p != 2 {
			codes[i] = "SPRING-4711"
		}
	}
	return codes, nil
}

// An event has the currency and the code, which a grant from the stream or the ledger may lack.
func TestCampaignsFacts(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h := newHandler(t, r, func(c *Config) { c.Campaigns = campaigns{} })
	list := grants(1, 4)
	for i := range list {
		list[i].Campaign, list[i].Currency = "coupons", ""
	}
	list[2].Campaign = "rain-2"
	require.Equal(t, []string{"done", "permanent", "permanent", "done"}, kinds(h.handle(t.Context(), list)))
	require.Len(t, r.got(), 2)
	for _, req := range r.got() {
		require.Contains(t, req.body, `"currency":"CNY"`)
		require.Contains(t, req.body, `"code":"SPRING-4711"`)
	}
	require.Empty(t, list[0].Code, "the caller's grants do not change")

	down := newHandler(t, r, func(c *Config) { c.Campaigns = campaigns{down: true} })
	require.Equal(t, []string{"outage, transient", "outage, transient"}, kinds(down.handle(t.Context(), list[:2])))
	require.Len(t, r.got(), 2, "nothing was sent")
}

func TestTwiceInOneCall(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h := newHandler(t, r)
	list := append(grants(1, 2), grants(1, 1)...)
	require.Nil(t, h.handle(t.Context(), list))
	require.Equal(t, map[string]int{"rain-1": 1, "rain-2": 1}, r.ids())

	r.status(http.StatusUnprocessableEntity)
	require.Equal(t, []string{"permanent", "permanent", "permanent"}, kinds(h.handle(t.Context(), list)), "each has the result")

	r.set(nil)
	for _, change := range []func(*hongbao.Grant){
		func(g *hongbao.Grant) { g.Seq = 9 }, func(g *hongbao.Grant) { g.User = "thief" }, func(g *hongbao.Grant) { g.Amount = 9 },
	} {
		list[2] = list[0]
		change(&list[2])
		errs := h.handle(t.Context(), list)
		require.Equal(t, []string{"done", "done", "conflict"}, kinds(errs))
		require.ErrorContains(t, errs[2], "packet 1 of campaign rain came as two different grants")
	}
	for _, req := range r.got() {
		require.NotContains(t, req.body, "thief")
	}
}

// After an accepted loss two wins can have the same shard and seq. They are two events.
func TestSameSeq(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	list := grants(1, 2)
	list[1].Seq = list[0].Seq
	require.Nil(t, newHandler(t, r).handle(t.Context(), list))
	require.Equal(t, map[string]int{"rain-1": 1, "rain-2": 1}, r.ids())
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h := newHandler(t, r)
	list := grants(1, 6)
	list[1].User = "a b"
	list[2].Campaign = "Rain"
	list[3].Time = list[3].Time.AddDate(9000, 0, 0)
	list[4].Packet = 0
	require.Equal(t, []string{"done", "permanent", "permanent", "permanent", "permanent", "done"},
		kinds(h.handle(t.Context(), list)))
	require.Equal(t, map[string]int{"rain-1": 1, "rain-6": 1}, r.ids())

	other := testkit.Batch(grants(1, 2))
	other.Grants[1].Shard = 7
	require.Equal(t, []string{"broken", "broken"}, kinds(h.Handle(t.Context(), other)))
	require.Len(t, r.got(), 2)
}
