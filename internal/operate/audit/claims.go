package audit

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// claimFormat matches the text of a claim: "state lease ...", then a line with its events, then the data to push.
var claimFormat = regexp.MustCompile(`^\d+ (\d+) [^\n]*\n([^\n]*)\n`)

// readClaims counts the pushes in progress. It reports a claim whose lease is over and whose events are all finished, if
// the sink owes some of them: no worker will complete it.
func (r *run) readClaims(ctx context.Context) error {
	if r.partial() {
		return nil
	}
	now, err := r.Store.Redis().Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("time: %w", store.Classify(err))
	}
	for _, k := range r.sinks {
		for _, s := range r.shards {
			err := r.eachField(ctx, s.Keys.Claims(k.group), func(id, text string) error {
				if id != "#fence" {
					r.claim(k, s, id, text, now)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) claim(k *sink, s *shard, id, text string, now time.Time) {
	r.report.Total.OpenClaims++
	m := claimFormat.FindStringSubmatch(text)
	if m == nil {
		r.found(Difference{Kind: OpenClaim, Where: s.Keys.Claims(k.group), Detail: fmt.Sprintf("claim %.80q can't be read", id)})
		return
	}
	if parseSeq(m[1]) > now.UnixMilli() {
		return
	}
	owes := false
	for events := range strings.SplitSeq(m[2], ",") {
		a, b, _ := strings.Cut(events, "-")
		if k.at[s.Index()].anyUndone(parseSeq(a), parseSeq(b)) {
			return // the events are pending, so a worker will reclaim them and complete the claim
		}
		not := k.owed[s.Index()].Not()
		owes = owes || len(store.Without([]stream.SeqRange{{First: parseSeq(a), Last: parseSeq(b)}}, not)) > 0
	}
	if !owes { // the sink was removed before it completed the claim
		return
	}
	r.found(Difference{Kind: OpenClaim, Where: s.Keys.Claims(k.group),
		Detail: fmt.Sprintf("claim %.80q over events %.200q: its lease is over and its events are finished", id, m[2])})
}

func parseSeq(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
