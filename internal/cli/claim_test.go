package cli

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// claimed writes an open claim for events 1 and 2 of shard 0. The batch was sent at the time sent, and the owner's
// lease ends at until.
func (d *deployment) claimed(sent, until time.Time) string {
	d.t.Helper()
	k := d.store.Shard(0)
	entries, err := d.rdb.XRange(d.t.Context(), k.Keys.Events(), "-", "+").Result()
	require.NoError(d.t, err)
	text := fmt.Sprintf("5 %d w9\n1-2\n3 none 77 0 0 0 %d 0 %s 1-2@%s..%s", until.UnixMilli(), sent.UnixMilli(), d.topic,
		entries[0].ID, entries[1].ID)
	require.NoError(d.t, d.rdb.HSet(d.t.Context(), k.Keys.Claims(configs.SinkKafka), "w9.1", text, "#fence", 5).Err())
	return "kafka/0/w9.1"
}

// A person decides about a claim that workers can't settle. The dead letters of its grants are removed. Grants that are
// not in the topic are published once.
func TestClaimIsSettled(t *testing.T) {
	t.Parallel()
	for _, published := range []bool{false, true} {
		t.Run(fmt.Sprintf("published %t", published), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{kafka: true})
			d.campaign("rain", 10, 1000)
			for i := range 4 {
				d.ok("grab", "rain", fmt.Sprintf("u%d", i))
			}
			d.buried(configs.SinkKafka)
			require.Contains(t, d.ok("claim", "list"), "CLAIM")
			settle := []string{"claim", "settle", "kafka/0/w9.1", "--by", "ann", "--why", "looked at the topic", "--as"}
			as := map[bool]string{true: "published", false: "unpublished"}[published]
			d.refused(1, append(settle, as), "is not open", "hongbao claim list")
			now := time.Now().UTC().Truncate(time.Second)
			old := now.Add(-25 * time.Hour)
			id := d.claimed(old, now.Add(time.Hour))
			d.refused(4, append(settle, as), "worker w9 has claim "+id)
			d.claimed(now.Add(-time.Hour), now.Add(-time.Hour)) // the lease has ended; workers can still find it
			from := now.Add(23 * time.Hour).Format(time.RFC3339)
			require.Contains(t, d.ok("claim", "list"), from)
			d.refused(4, append(settle, as), "settle claim "+id, "still open at "+from)
			require.Contains(t, d.ok("claim", "list"), id, "the claim stays")
			d.claimed(old, now.Add(-time.Hour))
			list := decided[struct{ Claims []deliveries.OpenClaim }](t, d.ok("claim", "list", "--json")).Claims
			require.Len(t, list, 1)
			require.Equal(t, id, list[0].ID)
			require.EqualValues(t, 2, list[0].Grants)
			require.EqualValues(t, d.topic, list[0].Topic)
			require.Contains(t, d.ok("claim", "list"), id)

			require.Contains(t, d.ok(append(settle, as)...), "its 2 grants are "+as+"\n2 of 2 letters were requeued")
			require.Len(t, decided[listed](t, d.ok("dead", "list", "--json")).Letters, 2, "the letters of others stay")
			require.Empty(t, decided[struct{ Claims []deliveries.OpenClaim }](t, d.ok("claim", "list", "--json")).Claims)
			r := d.auditNow()
			require.Zero(t, r.Found[audit.OpenClaim])
			if published {
				require.Empty(t, d.records())
			} else {
				require.Len(t, d.records(), 2)
			}
			d.refused(1, append(settle, as), "is not open")
			require.Contains(t, d.ok("journal", "--json"), string(access.SettleClaim))
		})
	}
}

// The grants of a claim that a person settles as published count as done in their campaign.
func TestSettledClaimCounts(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 10, 1000)
	for i := range 3 {
		d.ok("grab", "rain", fmt.Sprintf("u%d", i))
	}
	before := time.Now().Add(-time.Hour)
	id := d.claimed(before.Add(-24*time.Hour), before)
	d.ok("claim", "settle", id, "--as", "published", "--by", "ann", "--why", "looked at the topic")
	n, err := d.rdb.HGet(t.Context(), d.store.Shard(0).Keys.Campaign("rain"), "done:kafka").Int()
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

// A claim whose payload has a later format is still listed, with null for the unreadable fields. A person can settle
// it.
func TestUnreadableClaimIsListedAndSettled(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 10, 1000)
	d.ok("grab", "rain", "u1")
	d.ok("grab", "rain", "u2")
	d.buried(configs.SinkKafka)
	text := fmt.Sprintf("5 %d w9\n1-2\n9 of a later format", time.Now().Add(-time.Hour).UnixMilli())
	require.NoError(t, d.rdb.HSet(t.Context(), d.store.Shard(0).Keys.Claims(configs.SinkKafka), "w9.1", text, "#fence", 5).Err())
	var list struct{ Claims []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(d.ok("claim", "list", "--json")), &list))
	require.Len(t, list.Claims, 1)
	for _, field := range []string{"topic", "partition", "offset", "sent", "settle_from"} {
		require.Contains(t, list.Claims[0], field)
		require.Nil(t, list.Claims[0][field], field)
	}
	require.Equal(t, "w9", list.Claims[0]["owner"])
	require.Regexp(t, `kafka/0/w9\.1 +2 +1-2 +- +- +- +- +w9 +\S+ +-\n`, d.ok("claim", "list"))
	settle := []string{"claim", "settle", "kafka/0/w9.1", "--by", "ann", "--why", "not in the topic", "--as", "unpublished"}
	require.Contains(t, d.ok(settle...), "its 2 grants are unpublished")
	require.Len(t, d.records(), 2)
}

// A killed replay to another topic leaves a claim. A person can list and settle it like one of a worker: its grants then
// count as delivered for this replay, and the topic gets no copy.
func TestClaimOfAReplay(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 10, 1000)
	d.ok("grab", "rain", "u1")
	d.ok("grab", "rain", "u2")
	other := testkit.Kafka(t).Topic(t, 2,
		map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "false"})
	copies := []string{"replay", "copy", "--to", "topic:" + other, "--json"}
	d.ok(copies...)
	keys := d.store.Shard(0).Keys
	sink := replay.DoneSink("copy")
	require.NoError(t, d.rdb.Del(t.Context(), keys.Done(sink, 0)).Err())
	d.claimed(time.Now().Add(-25*time.Hour), time.Now().Add(-time.Hour))
	require.NoError(t, d.rdb.Rename(t.Context(), keys.Claims(configs.SinkKafka), keys.Claims(sink)).Err())

	id := sink + "/0/w9.1"
	list := decided[struct{ Claims []deliveries.OpenClaim }](t, d.ok("claim", "list", "--json")).Claims
	require.Len(t, list, 1)
	require.Equal(t, id, list[0].ID)
	settle := []string{"claim", "settle", id, "--by", "ann", "--why", "looked at the topic", "--as", "published"}
	require.Contains(t, d.ok(settle...), "its 2 grants are published")
	require.Empty(t, decided[struct{ Claims []deliveries.OpenClaim }](t, d.ok("claim", "list", "--json")).Claims)
	d.refused(1, settle, "is not open")
	report := decided[struct{ Delivered, Before int64 }](t, d.ok(copies...))
	require.Equal(t, []int64{0, 2}, []int64{report.Delivered, report.Before})
}
