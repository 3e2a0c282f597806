package shards

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Terms are what a campaign goes by for a while: its window and limits, and in which hashes the limits by facts count.
// They hold for one plan and until a day or an hour ends. grab.lua makes them and gets them back, so that it need not
// read them from the campaign again.
type Terms struct {
	factNames string
	args      []any // as grab.lua wants them
	oneEach   bool  // a user gets one packet only
	limits    []hongbao.LimitHit
	byUser    int          // how many of them, the first ones, are by user
	byFact    []factLimit  // the others
	expiring  atomic.Int64 // until when nobody asks again for the expiry of the periods' hashes; in Unix ns
}

type factLimit struct {
	name, field string // the fact, and what stands in front of its values in the hash
	counters    string // name of the hash
}

// noTerms never hold.
var noTerms = &Terms{args: []any{"", "", ""}}

// keepCounters is how long the counters of a period stay after its end: a clock that is set back a little finds them.
var keepCounters = map[hongbao.Period]time.Duration{hongbao.PerDay: 24 * time.Hour, hongbao.PerHour: time.Hour}

// parseTerms reads the reply of grab.lua that tells terms.
func parseTerms(reply []string) (*Terms, error) {
	broken := fmt.Errorf("script grab answered terms that can't be read: %.200q", reply)
	if len(reply) < 6 || reply[0] != "T" {
		return nil, broken
	}
	t := &Terms{factNames: reply[1], oneEach: reply[4] == "1"}
	var err error
	rest := reply[6:]
	if t.byUser, err = strconv.Atoi(reply[5]); err != nil || t.byUser < 0 || len(rest) < 4*t.byUser ||
		(len(rest)-4*t.byUser)%5 != 0 {
		return nil, broken
	}
	var bounds, leave []string
	for ; len(t.limits) < t.byUser; rest = rest[4:] {
		bounds = append(bounds, rest[1]+":"+rest[2])
		err = errors.Join(err, t.add(hongbao.ByUser, rest[0], rest[1], rest[3]))
	}
	names := strings.Split(t.factNames, ",")
	most := []any{}
	for ; len(rest) > 0; rest = rest[5:] {
		t.byFact = append(t.byFact, factLimit{rest[0], strconv.Itoa(slices.Index(names, rest[0])+1) + ":", rest[4]})
		err = errors.Join(err, t.add(rest[0], rest[1], rest[2], rest[3]))
		left := int64(0)
		if hit := t.limits[len(t.limits)-1]; !hit.Resets.IsZero() {
			left = hit.Resets.Add(keepCounters[hit.Limit.Per]).UnixMilli()
		}
		leave, most = append(leave, strconv.FormatInt(left, 10)), append(most, rest[2])
	}
	if err != nil {
		return nil, broken
	}
	t.args = append([]any{reply[2], reply[3], strings.Join(bounds, " ") + "|" + strings.Join(leave, " ")}, most...)
	return t, nil
}

// add adds what a grab is told that meets the limit.
func (t *Terms) add(by, per, most, resets string) error {
	n, err1 := strconv.ParseInt(most, 10, 64)
	ms, err2 := strconv.ParseInt(resets, 10, 64)
	hit := hongbao.LimitHit{Limit: hongbao.Limit{By: by, Per: hongbao.Period(per), Max: n}}
	if ms > 0 {
		hit.Resets = time.UnixMilli(ms)
	}
	t.limits = append(t.limits, hit)
	return errors.Join(err1, err2)
}

// hit is the limit of that place.
func (t *Terms) hit(place string) (*hongbao.LimitHit, error) {
	at, err := strconv.Atoi(place)
	if err != nil || t == nil || at < 1 || at > len(t.limits) {
		return nil, errors.New("the campaign has no such limit")
	}
	hit := t.limits[at-1]
	return &hit, nil
}
