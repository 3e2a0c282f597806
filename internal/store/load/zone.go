package load

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// afterWindow is how far the transitions reach beyond the window, because a limit of the window's last day resets
// after the window.
const afterWindow = 48 * time.Hour

// Transition is the start of a period in which the local clock has a fixed offset from UTC.
type Transition struct {
	From   int64 // Unix ms; 0 for the first transition, whose start does not matter
	Offset int   // seconds east of UTC
}

// Transitions returns the offsets in force in the campaign's time zone from its start to two days after its end, in
// ascending order of time. The list is never empty.
func Transitions(c hongbao.Campaign) ([]Transition, error) {
	loc, err := time.LoadLocation(c.TimeZone)
	if err == nil && loc == time.Local { // would differ between machines
		err = errors.New("it is the machine's local zone")
	}
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "offsets of campaign %.80q, time zone %.80q: %w", c.ID, c.TimeZone,
			err)
	}
	t, end := c.From.In(loc), c.To.Add(afterWindow)
	_, offset := t.Zone()
	list := []Transition{{Offset: offset}}
	for {
		_, next := t.ZoneBounds()
		if next.IsZero() || next.After(end) {
			return list, nil
		}
		// A zone change without a new offset, for example of the zone's name only, is omitted.
		if _, o := next.Zone(); o != offset {
			offset = o
			list = append(list, Transition{From: next.UnixMilli(), Offset: o})
		}
		t = next
	}
}

// encodeTransitions returns the list as "ms:offset ms:offset ...", the format that grab.lua reads.
func encodeTransitions(list []Transition) string {
	var b strings.Builder
	for i, t := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatInt(t.From, 10))
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(t.Offset))
	}
	return b.String()
}

const (
	hourMillis = int64(time.Hour / time.Millisecond)
	dayMillis  = 24 * hourMillis
)

// Bucket computes limit periods in the same way as grab.lua; tests compare the two. bucket is the number of the local
// day or hour at the time ms. Two grabs count towards the same limit if their buckets are equal. resets is when the
// next period begins, in Unix ms. For a limit per campaign both are 0.
//
// A day is a day of the local calendar, even if it has 23 or 25 hours. An hour begins when the local clock shows a
// full hour. The hour that occurs twice at the end of summer time counts as two hours. If the clock moves forward by
// half an hour, the hour before the change also includes the half hour after it. If the clock goes back over
// midnight, the rest of the old day is repeated, and the new day then continues. resets is then the start of the day
// after the new one.
//
// list is the result of Transitions. ms must not be before the start of the campaign.
func Bucket(list []Transition, per hongbao.Period, ms int64) (bucket, resets int64) {
	unit, shift := dayMillis, func(offset int) int64 { return int64(offset) * 1000 }
	switch per {
	case hongbao.PerCampaign:
		return 0, 0
	case hongbao.PerHour:
		unit, shift = hourMillis, func(offset int) int64 { return floorMod(int64(offset)*1000, hourMillis) }
	case hongbao.PerDay:
	}
	i := 0
	for i+1 < len(list) && list[i+1].From <= ms {
		i++
	}
	local := ms + shift(list[i].Offset)
	bucket = (local - floorMod(local, unit)) / unit
	end := (bucket + 1) * unit
	resets = end - shift(list[i].Offset)
	// If the offset changes before the period ends, the new local time decides when it ends, but not before the
	// change.
	if i+1 < len(list) && list[i+1].From <= resets {
		resets = max(list[i+1].From, end-shift(list[i+1].Offset))
	}
	return bucket, resets
}

func floorMod(a, n int64) int64 { return ((a % n) + n) % n }
