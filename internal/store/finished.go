package store

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// isCount reports whether a field of a campaign's hash counts finished grants.
func isCount(field string) bool {
	return strings.HasPrefix(field, "done:") || strings.HasPrefix(field, "dead:")
}

// addFinished adds the counts of a place to those of the campaign, which are in the order of the sinks. A campaign's hash
// has the counts of its place, in the fields done:SINK and dead:SINK; lua/bits.lua says how scripts count. If Redis goes
// back in time, the counts go back with the done bits.
func (s *Status) addFinished(f *CampaignFields) error {
	for field, text := range f.counts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis: field %s: %w", f.campaign, field, err)
		}
		column, sink, _ := strings.Cut(field, ":")
		i, found := slices.BinarySearchFunc(s.Sinks, sink,
			func(a model.Finished, b string) int { return strings.Compare(a.Sink, b) })
		if !found {
			s.Sinks = slices.Insert(s.Sinks, i, model.Finished{Sink: sink})
		}
		if column == "done" {
			s.Sinks[i].Done += n
		} else {
			s.Sinks[i].Dead += n
		}
	}
	return nil
}
