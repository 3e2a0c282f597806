package stream

import (
	"errors"

	"github.com/hongbao-project/hongbao"
)

// Claim is the right of one worker to push events of one shard to a sink. The worker stores the claim before the push
// and removes it afterwards. If the worker dies, its successor learns from the claim what may have been sent. See
// store.Claims for a claim's lifecycle.
type Claim struct {
	// ID identifies the claim within its shard and sink. The owner chooses a new ID for each claim.
	ID string
	// Fence is the fencing number of the claim. Every claim and every takeover raises the fence of the shard and sink.
	// A worker whose claim has an older fence has lost the claim.
	Fence int64
	// Events are the events of the claim, in the order of the push.
	Events []SeqRange
	// Payload is the data that the sink needs to finish the push. Redis does not interpret it.
	Payload string
}

// ClaimAnswer is the result of an attempt to claim events. The claim is granted if and only if Done, Open and Held are
// empty. Otherwise nothing was claimed, and these fields say why.
type ClaimAnswer struct {
	// Fence is the fence of the granted claim.
	Fence int64
	// Done are the requested events that the sink has already finished.
	Done []SeqRange
	// Open are unfinished claims that cover some of the requested events. The call has taken them over by raising their
	// fences, so the caller must finish them. Each has its payload and all its events.
	Open []Claim
	// LiveClaims is the number of claims of live owners that cover some of the requested events. Try again later.
	LiveClaims int
}

// Granted reports whether the claim was granted.
func (a *ClaimAnswer) Granted() bool {
	return len(a.Done) == 0 && len(a.Open) == 0 && a.LiveClaims == 0
}

// ErrFenced says that another worker has taken over the claim or has finished it.
var ErrFenced = errors.New("the claim was taken over by another worker")

// SeqRange is a range of consecutive events of one shard, including First and Last.
type SeqRange struct {
	First int64 `doc:"The first seq of the range."`
	Last  int64 `doc:"The last seq of the range."`
}

// Has reports whether seq is in the range.
func (r SeqRange) Has(seq int64) bool { return r.First <= seq && seq <= r.Last }

// Len returns the number of events in the range.
func (r SeqRange) Len() int64 { return r.Last - r.First + 1 }

// AppendSeq adds seq to ascending runs. If seq directly follows the last run, it extends that run.
func AppendSeq(runs []SeqRange, seq int64) []SeqRange {
	if n := len(runs); n > 0 && runs[n-1].Last+1 == seq {
		runs[n-1].Last = seq
		return runs
	}
	return append(runs, SeqRange{First: seq, Last: seq})
}

// CampaignRange is a range of consecutive grants of one campaign. Campaign is empty for events that are no grants, and
// for events that are not counted by campaign.
type CampaignRange struct {
	SeqRange
	Campaign string
}

// OfCampaign adds a campaign to ranges.
func OfCampaign(campaign string, ranges ...SeqRange) []CampaignRange {
	runs := make([]CampaignRange, len(ranges))
	for i, r := range ranges {
		runs[i] = CampaignRange{r, campaign}
	}
	return runs
}

// AppendEvent adds an event to ascending runs. If it directly follows the last run, and is of the same campaign, it
// extends that run.
func AppendEvent(runs []CampaignRange, campaign string, seq int64) []CampaignRange {
	if n := len(runs); n > 0 && runs[n-1].Last+1 == seq && runs[n-1].Campaign == campaign {
		runs[n-1].Last = seq
		return runs
	}
	return append(runs, CampaignRange{SeqRange{First: seq, Last: seq}, campaign})
}

// EventsOf returns the events of grants, which are in the order of their seqs.
func EventsOf(grants []hongbao.Grant) (runs []CampaignRange) {
	for i := range grants {
		runs = AppendEvent(runs, grants[i].Campaign, grants[i].Seq)
	}
	return runs
}

// Seqs returns the runs without their campaigns. Runs that directly follow each other become one.
func Seqs(runs []CampaignRange) (seqs []SeqRange) {
	for _, r := range runs {
		if n := len(seqs); n > 0 && seqs[n-1].Last+1 == r.First {
			seqs[n-1].Last = r.Last
			continue
		}
		seqs = append(seqs, r.SeqRange)
	}
	return seqs
}
