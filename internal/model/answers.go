package model

import "github.com/hongbao-project/hongbao"

// Answers are the answers of all servers to a campaign's grabs. They count requests to `hongbao serve`, not people: a
// grab that is sent twice counts twice.
type Answers struct {
	Total int64 `json:"total" doc:"Number of requests that were answered."`
	// Counts are in the order of AnswerNames. An answer that no server gave is missing.
	Counts []AnswerCount `json:"counts" nullable:"false" doc:"How often each answer was given. An answer that no server gave is absent."`
}

// AnswerCount says how often servers gave an answer.
type AnswerCount struct {
	Name string `json:"answer" doc:"The outcome of the grabs, or the code of their problem: 'unavailable', 'outcome_unknown' or 'rate_limited'."`
	N    int64  `json:"count" doc:"Number of requests with this answer."`
}

// The answers that are no outcome. The API answers with problems of these codes.
const (
	AnswerUnavailable = "unavailable"
	AnswerUnknown     = "outcome_unknown"
	AnswerRateLimited = "rate_limited"
)

// AnswerNames returns the names of all answers that servers count. unknown_campaign is not among them, because callers
// can make up the names of campaigns.
func AnswerNames() (names []string) {
	for _, o := range hongbao.Outcomes() {
		if o != hongbao.OutcomeUnknownCampaign {
			names = append(names, string(o))
		}
	}
	return append(names, AnswerUnavailable, AnswerUnknown, AnswerRateLimited)
}
