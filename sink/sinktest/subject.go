package sinktest

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Subject is the sink under test. Open and Effects are required. The suite calls one field at a time.
type Subject struct {
	// Open returns the handler of a new process that works on the same target. So it shares no memory with the handlers
	// before it: the suite opens one as a second worker, and as a worker after a restart. A case opens up to 200 of them.
	// Close them by t.Cleanup.
	Open func(t testing.TB) hongbao.Handler

	// Effects returns how often each of the grants has had its effect at the target, in the order of the grants. It asks
	// the target and not the sink, also while the target is down for the sink. What an effect is, is up to the sink: a
	// row, a record, a credit.
	//
	// An effect counts for a grant only if it was for the grant's campaign, packet and user. If the target gets copies
	// with an id and ignores them, as the receiver of a webhook does, copies with the same id count once.
	Effects func(t testing.TB, grants []hongbao.Grant) []int

	// Aside returns whether the target has put each of the grants aside for a person, in the order of the grants. For
	// example, the ledger has a quarantine. If Aside is nil, the target puts no grant aside.
	Aside func(t testing.TB, grants []hongbao.Grant) []bool

	// Grants returns n new grants of a shard, which no call has returned before. The target accepts them. They have
	// ascending Seq, Epoch 1, and different packets and users. The suite asks for shards 0 and 1, and changes the grants
	// only as the other fields say. If Grants is nil, the suite makes the grants: packets 1 to n of new campaigns with any
	// users, amounts from 1 to 1,000, and EntryID, RequestID and Time as Redis has them.
	Grants func(t testing.TB, shard, n int) []hongbao.Grant

	// Poison makes the target refuse exactly this grant for good. It returns the grant, which it may change so that it
	// can't be accepted. The cases about a grant that is refused need Poison.
	Poison func(t testing.TB, g hongbao.Grant) hongbao.Grant

	// Down makes the target unreachable for all handlers, or reachable again. The cases about an outage need Down.
	Down func(t testing.TB, down bool)

	// Lose makes the connection of the target break once, at the request with the index n from now on, counted from 0
	// over all handlers. If answer is set, the target has done the request and only its answer is lost. Otherwise the
	// request is lost. The function that Lose returns says whether that has happened, and ends the order if not. The cases
	// that break each step of a sink need Lose.
	Lose func(t testing.TB, n int, answer bool) (happened func() bool)

	// Expire ends all leases, claims and locks that dead workers have at the target, as time would. The suite calls it
	// only while no call of Handle is under way. If it is nil, they must end by themselves within Patience.
	Expire func(t testing.TB)

	// ByEvent says that the target takes events and not effects of packets, as a log does. Two grants of one packet are
	// two events there: both arrive, and who reads them decides.
	ByEvent bool

	// MayDoubt says that the target can't recognize a repeat, so that the sink must not repeat what may have happened. A
	// grant in doubt may get the class Permanent or Conflict, and then has its effect at most once.
	MayDoubt bool

	// Patience is how long a case waits for what must happen in the end, for example after an outage. 0 means 30 s.
	Patience time.Duration
}

// defaultPatience is the Patience of a subject that has none.
const defaultPatience = 30 * time.Second

// prepare completes the subject. A subject that can't be tested ends the test.
func (s *Subject) prepare(t testing.TB) {
	t.Helper()
	if s.Open == nil || s.Effects == nil {
		t.Fatal("sinktest: Subject needs Open and Effects")
	}
	if s.Patience == 0 {
		s.Patience = defaultPatience
	}
	if s.Grants == nil {
		m := &maker{name: "sinktest-" + strings.ToLower(rand.Text()[:8]), last: map[int]int64{}}
		s.Grants = func(_ testing.TB, shard, n int) []hongbao.Grant { return m.grants(shard, n) }
	}
}

// maker makes grants of new campaigns. Seqs are the same on each shard, and packets the same in each campaign. So a
// sink that takes one of them alone for an id has too few effects.
type maker struct {
	name string
	last map[int]int64 // by shard: the last seq
}

func (m *maker) grants(shard, n int) []hongbao.Grant {
	list := make([]hongbao.Grant, n)
	for i := range list {
		m.last[shard]++
		seq := m.last[shard]
		ms := int64(1_770_000_000_000) + seq
		list[i] = hongbao.Grant{
			Shard: shard, Seq: seq, Epoch: 1, EntryID: fmt.Sprintf("%d-0", ms),
			Campaign: fmt.Sprintf("%s-%d-%d", m.name, shard, seq%2), Packet: (seq + 1) / 2,
			Amount: hongbao.Amount(1 + seq%1000), User: fmt.Sprintf("user-%d-%d", shard, seq),
			RequestID: fmt.Sprintf("request-%d-%d", shard, seq), Time: time.UnixMilli(ms).UTC(),
		}
	}
	return list
}
