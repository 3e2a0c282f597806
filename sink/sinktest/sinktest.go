package sinktest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Run runs all cases, each as a subtest, one after the other. It calls open once for each case. The subjects may share
// a target: no case uses the grants of another one.
func Run(t *testing.T, open func(t testing.TB) Subject) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.on(t, open(t)) })
	}
}

// testCase is one case of the suite.
type testCase struct {
	name string
	// lacks returns the hook that the case needs and the subject lacks, or "". If lacks is nil, the case needs none.
	lacks func(s *Subject) string
	run   func(r *run)
}

// cases are all cases, in the order in which a failure explains the most.
var cases = []testCase{
	{"one batch", nil, oneBatch},
	{"an empty batch", nil, emptyBatch},
	{"the same batch again", nil, sameBatchAgain},
	{"batches that overlap", nil, overlappingBatches},
	{"a grant twice in one batch", nil, twiceInOneBatch},
	{"two workers at once", nil, twoWorkers},
	{"two shards at once", nil, twoShards},
	{"an earlier epoch", nil, earlierEpoch},
	{"two grants of one packet", nil, twoGrantsOfOnePacket},
	{"two grants of one packet in one batch", nil, twoGrantsInOneBatch},
	{"a refused grant", needsPoison, refusedGrant},
	{"a refused grant alone", needsPoison, refusedGrantAlone},
	{"a context that is over", nil, contextOver},
	{"a context that ends in the middle", nil, contextEnds},
	{"workers that die", nil, workersDie},
	{"an outage", needsDown, outage},
	{"an outage in the middle", needsDown, outageInTheMiddle},
	{"a lost request", needsLose, lostRequest},
	{"a lost answer", needsLose, lostAnswer},
}

func needsPoison(s *Subject) string { return lacking(s.Poison == nil, "Poison") }
func needsDown(s *Subject) string   { return lacking(s.Down == nil, "Down") }
func needsLose(s *Subject) string   { return lacking(s.Lose == nil, "Lose") }

func lacking(is bool, hook string) string {
	if is {
		return hook
	}
	return ""
}

// on runs the case.
func (c *testCase) on(t testing.TB, s Subject) {
	t.Helper()
	s.prepare(t)
	if c.lacks != nil {
		if hook := c.lacks(&s); hook != "" {
			t.Skipf("the Subject has no hook %s, which this case needs", hook)
		}
	}
	c.run(&run{TB: t, Subject: s, name: c.name, grace: min(s.Patience, mostGrace)})
}

// run is the state of one case.
type run struct {
	testing.TB
	Subject
	name  string
	grace time.Duration // how long Handle may take to return after its context has ended
}

// mostGrace is the grace of a case, unless Patience is shorter.
const mostGrace = 10 * time.Second

// rounds returns how often a case repeats what happens at random moments.
func rounds() int {
	if testing.Short() {
		return 5
	}
	return 25
}

// open returns the handler of another process.
func (r *run) open() hongbao.Handler {
	r.Helper()
	h := r.Open(r.TB)
	if h == nil {
		r.Fatalf("case %q: Open returned nil: return a handler", r.name)
	}
	return h
}

// batch returns new grants of a shard as a batch.
func (r *run) batch(shard, n int) hongbao.Batch {
	r.Helper()
	list := r.Grants(r.TB, shard, n)
	if len(list) != n {
		r.Fatalf("case %q: Grants returned %d grants for %d: return as many as it is asked for", r.name, len(list), n)
	}
	for i := range list {
		if list[i].Shard != shard {
			r.Fatalf("case %q: Grants returned %s for shard %d: return grants of the shard", r.name, label(&list[i]), shard)
		}
	}
	return hongbao.Batch{Shard: shard, Epoch: 1, Grants: list}
}

// some returns a batch with other grants.
func some(b hongbao.Batch, grants []hongbao.Grant) hongbao.Batch {
	b.Grants = grants
	return b
}

// expire ends what dead workers have at the target.
func (r *run) expire() {
	r.Helper()
	if r.Expire != nil {
		r.Expire(r.TB)
	}
}

// context returns a context that ends after Patience.
func (r *run) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), r.Patience)
}

// moment returns a random time after which something happens in a call that usually takes the time usual. Short times
// are more frequent: an outage or the end of a context must often come before the end of the call.
func moment(usual time.Duration) time.Duration {
	return rand.N(usual+usual/2)>>rand.N(3) + 1
}
