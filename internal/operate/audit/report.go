package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// notDelivered is the kind of each element of Report.Dropped.
const notDelivered model.DifferenceKind = "dropped"

// setFound sets the counts of the differences about single grants.
func setFound(c *model.Counts, n map[model.DifferenceKind]int64) {
	c.Lost, c.DoubleCredits, c.Unfounded, c.Different = n[Lost], n[DoubleCredit], n[Unfounded], n[Different]
	c.MissingInTopic, c.Duplicates = n[MissingInTopic], n[DuplicateInTopic]
	c.DeadLetters, c.Quarantined = n[DeadLetter], n[InQuarantine]
}

func compare(d, o *model.Difference) int {
	return cmp.Or(cmp.Compare(kindIndex(d.Kind), kindIndex(o.Kind)), cmp.Compare(d.Campaign, o.Campaign),
		cmp.Compare(d.Packet, o.Packet), cmp.Compare(d.Where, o.Where), cmp.Compare(d.Event, o.Event))
}

func kindIndex(k model.DifferenceKind) int {
	return slices.IndexFunc(remedies, func(m remedy) bool { return m.kind == k })
}

// sealable reports whether the campaign can't change any more and all of its grants were judged.
func (r *run) sealable(c *campaign) bool {
	return len(r.report.Found) == 0 && !r.partial() && c.ledger != nil && c.ledger.Closed && !c.sealed && !c.inRedis() &&
		c.counts.InFlight+c.counts.Newer == 0 && c.counts.Settled == c.ledger.Grants
}

// frozenOnly reports whether all differences of a kind belong to campaigns that are frozen on every shard that still
// has them, or has a stub of them. Such campaigns can't be paused.
func (r *run) frozenOnly(k model.DifferenceKind) bool {
	var n int64
	for _, c := range r.campaigns {
		if c.frozen() {
			n += c.found[k]
		}
	}
	return n == r.report.Found[k]
}

// loading reports whether the campaign is still being loaded on any of its shards.
func (c *campaign) loading() bool {
	for _, s := range c.on {
		if s.loading() {
			return true
		}
	}
	return false
}

func (c *campaign) frozen() bool {
	for _, s := range c.on {
		if s.state != store.StateFrozen {
			return false
		}
	}
	return len(c.on)+c.stubs > 0
}

func (r *run) finish() *model.AuditReport {
	rep := &r.report
	rep.Verdict = model.Agrees
	if len(rep.Found) > 0 {
		rep.Verdict = model.Differs
	}
	for _, d := range r.listed {
		rep.Differences = append(rep.Differences, *d)
	}
	slices.SortStableFunc(rep.Differences, func(a, b model.Difference) int { return compare(&a, &b) })
	for _, c := range r.sorted() {
		setFound(&c.counts, c.found)
		report := model.CampaignReport{Campaign: c.id, Currency: c.currency(), InRedis: c.inRedis(), Loading: c.loading(),
			Sealed:   c.sealed,
			Sealable: r.sealable(c), Unbased: c.sealed && !c.ledger.Based, Counts: c.counts}
		if c.lost() {
			report.Ended = c.ended()
		}
		rep.Campaigns = append(rep.Campaigns, report)
		rep.Total.Add(&c.counts)
	}
	rep.Bases = r.bases()
	for _, s := range r.shards {
		rep.Shards = append(rep.Shards, s.report)
	}
	setFound(&rep.Total, rep.Found)
	sortAcknowledged(rep)
	rep.Remedies = make(map[model.DifferenceKind]model.Remedy, len(rep.Found))
	all := allFound(rep)
	for k := range rep.Found {
		rep.Remedies[k] = remedyOf(k, all, r.frozenOnly(k))
	}
	rep.Seconds = time.Since(rep.Started).Seconds()
	return rep
}
