package load

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// afterWindow is how far beyond the window the transitions reach. A limit of the window's last day resets there.
const afterWindow = 48 * time.Hour

// Transition is an instant from which the local clock differs from UTC by an offset.
type Transition struct {
	From   int64 // Unix ms; the first transition has 0 and is valid from the beginning
	Offset int   // seconds east of UTC
}

// Transitions returns the offsets in force in the campaign's time zone from its start to two days after its end, in
// the order of time. The list is never empty.
func Transitions(c hongbao.Campaign) ([]Transition, error) {
	loc, err := time.LoadLocation(c.TimeZone)
	if err == nil && loc == time.Local { // it depends on the machine
		err = errors.New("it is the machine's own")
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
		// Some transitions change the zone's name only.
		if _, o := next.Zone(); o != offset {
			offset = o
			list = append(list, Transition{From: next.UnixMilli(), Offset: o})
		}
		t = next
	}
}

// encodeTransitions returns the list as "ms:offset ms:offset ...", separated by one space.
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

// Bucket does the same as grab.lua with the offsets, for comparison in tests. It returns the period of an instant,
// and when a later period begins, in Unix ms. A bucket is the number of the local day or hour. Two instants count
// together if their buckets are equal. A limit per campaign has one bucket, 0, that never ends: resets is 0.
//
// A day is a day of the local calendar, even if it has 23 or 25 hours. An hour begins when the local clock shows a
// full hour. The hour that comes twice at the end of summer time is two hours. If the clock moves forward by half an
// hour, the hour before the move continues into the half hour after it. If the clock goes back over midnight, the day
// that had begun continues after the rest of the old one. resets is then when the day after it begins.
//
// list is the result of Transitions. ms is at or after its campaign's start.
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
	// If the clock is moved before then, the period ends where the new clock says, but not before the move.
	if i+1 < len(list) && list[i+1].From <= resets {
		resets = max(list[i+1].From, end-shift(list[i+1].Offset))
	}
	return bucket, resets
}

func floorMod(a, n int64) int64 { return ((a % n) + n) % n }
