package store

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

// LimitPeriods are the rules of a campaign in the current limit periods: its window, its limits, and the hashes that
// count for limits by facts. They are valid for one revision of the campaign, until a day or an hour of its limits
// ends. grab.lua returns them, and later calls send them back. So grab.lua need not compute them again.
type LimitPeriods struct {
	factNames string
	places    int64 // number of the campaign's shards
	newest    int64 // the newest announced generation
	from      int64 // start of the campaign's window, in Unix ms
	revision  string
	since     int64 // the terms are valid from since to until, in Unix ms
	until     int64
	texts     string // maxima of the limits by user, and expiry times of counters, in the format of grab.lua
	oneEach   bool   // a user may have only one packet
	limits    []hongbao.LimitHit
	byUser    int          // number of limits by user, which come first in limits
	byFact    []factLimit  // the limits by facts
	expiring  atomic.Int64 // until this Unix time in ns, calls need not set the counters' expiry again
}

type factLimit struct {
	name, field string // the fact, and the prefix of its values in the hash
	counters    string // name of the hash
	most        int64
}

// Places returns the number of the campaign's shards, at least 1.
func (t *LimitPeriods) Places() int { return int(max(t.places, 1)) }

// Generation returns the newest generation that was announced on the place from which the terms come, at least 1.
func (t *LimitPeriods) Generation() int64 { return max(t.newest, 1) }

// Revision returns the revision of the campaign, which changes when a generation is announced.
func (t *LimitPeriods) Revision() string { return t.revision }

// walks reports whether other places or generations may have packets when this place has none left.
func (t *LimitPeriods) walks() bool { return t.places > 1 || t.newest > 1 }

// sinceStart formats times for grab.lua: ms since the start of the window.
func (t *LimitPeriods) sinceStart(times []time.Time) string {
	var text []byte
	for i, at := range times {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, max(0, at.UnixMilli()-t.from), 10)
	}
	return string(text)
}

// noTerms make grab.lua return the valid terms.
var noTerms = &LimitPeriods{texts: "|"}

// keepCounters is how long the counters of a period remain after its end. So they are still there if the clock is set
// back a little.
var keepCounters = map[hongbao.Period]time.Duration{hongbao.PerDay: 24 * time.Hour, hongbao.PerHour: time.Hour}

// parseTerms parses a reply of grab.lua that has terms.
func parseTerms(reply []string) (*LimitPeriods, error) {
	broken := fmt.Errorf("script grab answered terms that can't be read: %.200q", reply)
	if len(reply) < 10 || reply[0] != "T" {
		return nil, broken
	}
	t := &LimitPeriods{factNames: reply[1], revision: reply[2], oneEach: reply[8] == "1"}
	var err error
	for i, to := range []*int64{&t.since, &t.until, &t.from, &t.places, &t.newest} {
		n, failed := strconv.ParseInt(reply[3+i], 10, 64)
		*to, err = n, errors.Join(err, failed)
	}
	byUser, failed := strconv.Atoi(reply[9])
	rest := reply[10:]
	if err != nil || failed != nil || byUser < 0 || len(rest) < 4*byUser || (len(rest)-4*byUser)%5 != 0 {
		return nil, broken
	}
	t.byUser = byUser
	var bounds, leave []string
	for ; len(t.limits) < t.byUser; rest = rest[4:] {
		bounds = append(bounds, rest[1]+":"+rest[2])
		err = errors.Join(err, t.add(hongbao.ByUser, rest[0], rest[1], rest[3]))
	}
	names := strings.Split(t.factNames, ",")
	for ; len(rest) > 0; rest = rest[5:] {
		err = errors.Join(err, t.add(rest[0], rest[1], rest[2], rest[3]))
		hit, left := t.limits[len(t.limits)-1], int64(0)
		field := strconv.Itoa(slices.Index(names, rest[0])+1) + ":"
		t.byFact = append(t.byFact, factLimit{rest[0], field, rest[4], hit.Limit.Max})
		if !hit.Resets.IsZero() {
			left = hit.Resets.Add(keepCounters[hit.Limit.Per]).UnixMilli()
		}
		leave = append(leave, strconv.FormatInt(left, 10))
	}
	if err != nil {
		return nil, broken
	}
	t.texts = strings.Join(bounds, " ") + "|" + strings.Join(leave, " ")
	return t, nil
}

// add appends a limit to those that a grab's answer can refer to.
func (t *LimitPeriods) add(by, per, most, resets string) error {
	n, err1 := strconv.ParseInt(most, 10, 64)
	ms, err2 := strconv.ParseInt(resets, 10, 64)
	hit := hongbao.LimitHit{Limit: hongbao.Limit{By: by, Per: hongbao.Period(per), Max: n}}
	if ms > 0 {
		hit.Resets = time.UnixMilli(ms)
	}
	t.limits = append(t.limits, hit)
	return errors.Join(err1, err2)
}

// hit returns the limit with the index in grab.lua's answer, which counts from 1.
func (t *LimitPeriods) hit(index string) (*hongbao.LimitHit, error) {
	at, err := strconv.Atoi(index)
	if err != nil || t == nil || at < 1 || at > len(t.limits) {
		return nil, errors.New("the campaign has no such limit")
	}
	hit := t.limits[at-1]
	return &hit, nil
}
