package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
)

func zoneCampaign(t testing.TB, name, from, to string) hongbao.Campaign {
	t.Helper()
	c := hongbao.Campaign{ID: "zone", TimeZone: name}
	var err error
	c.From, err = time.Parse(time.RFC3339, from)
	require.NoError(t, err)
	c.To, err = time.Parse(time.RFC3339, to)
	require.NoError(t, err)
	return c
}

var zones = []struct{ name, from, to, want string }{
	{"UTC", "2026-01-01T00:00:00Z", "2026-12-31T00:00:00Z", "0:0"},
	{"Asia/Shanghai", "2026-01-01T00:00:00Z", "2026-12-31T00:00:00Z", "0:28800"},
	{"Asia/Kolkata", "2026-01-01T00:00:00Z", "2026-12-31T00:00:00Z", "0:19800"},
	// The clock changes on 8 March 2026 07:00Z and 1 November 2026 06:00Z.
	{"America/New_York", "2026-03-01T00:00:00Z", "2026-11-30T00:00:00Z",
		"0:-18000 1772953200000:-14400 1793512800000:-18000"},
	// The clock changes after the window, but within the 48 hours that are included.
	{"America/New_York", "2026-03-01T00:00:00Z", "2026-03-06T07:00:00Z", "0:-18000 1772953200000:-14400"},
	{"America/New_York", "2026-03-01T00:00:00Z", "2026-03-06T06:59:59Z", "0:-18000"},
	// The window starts exactly at the change, so only the new offset is in the list.
	{"America/New_York", "2026-03-08T07:00:00Z", "2026-03-09T00:00:00Z", "0:-14400"},
	// The clock changes at midnight: forward on 15 October 2017 03:00Z, back on 18 February 2018 02:00Z.
	{"America/Sao_Paulo", "2017-10-01T00:00:00Z", "2018-03-01T00:00:00Z",
		"0:-10800 1508036400000:-7200 1518919200000:-10800"},
	// The clock changes by half an hour: back on 4 April 2026 15:00Z, forward on 3 October 2026 15:30Z.
	{"Australia/Lord_Howe", "2026-03-01T00:00:00Z", "2026-12-01T00:00:00Z",
		"0:39600 1775314800000:37800 1791041400000:39600"},
	// The clock changes at one minute past midnight.
	{"America/St_Johns", "2010-03-01T00:00:00Z", "2010-12-01T00:00:00Z",
		"0:-12600 1268537460000:-9000 1289097060000:-12600"},
	// The zone skipped 30 December 2011.
	{"Pacific/Apia", "2011-12-01T00:00:00Z", "2012-01-20T00:00:00Z", "0:-36000 1325239200000:50400"},
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	for _, tt := range zones {
		list, err := Transitions(zoneCampaign(t, tt.name, tt.from, tt.to))
		require.NoError(t, err)
		require.Equal(t, tt.want, encodeTransitions(list), tt.name)
	}
	_, err := Transitions(hongbao.Campaign{TimeZone: "Local"})
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
}

// reference computes the bucket with the calendar of time.Location.
func reference(loc *time.Location, per hongbao.Period, ms int64) int64 {
	at := time.UnixMilli(ms).In(loc)
	if per == hongbao.PerDay {
		y, m, d := at.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400
	}
	_, offset := at.Zone()
	full := ms - int64(at.Minute())*60_000 - int64(at.Second())*1000 - int64(at.Nanosecond())/1e6
	// full is the start of this local hour, as if the offset had not changed since. The bucket is the number of the
	// UTC hour in which the local hour ended.
	return (full + int64(((offset%3600)+3600)%3600)*1000) / 3_600_000
}

// reset returns the first whole minute after ms that has a later bucket. Whole minutes suffice, because clocks change
// at them.
func reset(loc *time.Location, per hongbao.Period, ms int64) int64 {
	bucket := reference(loc, per, ms)
	for ms = ms/60_000*60_000 + 60_000; reference(loc, per, ms) <= bucket; ms += 60_000 {
	}
	return ms
}

func TestBucketAgainstTheCalendar(t *testing.T) {
	t.Parallel()
	for _, tt := range zones {
		c := zoneCampaign(t, tt.name, tt.from, tt.to)
		list, err := Transitions(c)
		require.NoError(t, err)
		loc, err := time.LoadLocation(tt.name)
		require.NoError(t, err)
		check := func(t require.TestingT, per hongbao.Period, ms int64) {
			bucket, resets := Bucket(list, per, ms)
			at := time.UnixMilli(ms).In(loc)
			require.Equal(t, reference(loc, per, ms), bucket, "%s %s %s", tt.name, per, at)
			require.Equal(t, reset(loc, per, ms), resets, "%s %s %s", tt.name, per, at)
		}
		periods := []hongbao.Period{hongbao.PerDay, hongbao.PerHour}
		rapid.Check(t, func(t *rapid.T) {
			check(t, rapid.SampledFrom(periods).Draw(t, "per"),
				rapid.Int64Range(c.From.UnixMilli(), c.To.UnixMilli()).Draw(t, "ms"))
		})
		// Check every ten minutes around each change, and 1 ms before and after these times.
		for _, change := range list[1:] {
			for d := int64(-26 * 6); d <= 26*6; d++ {
				for _, edge := range []int64{-1, 0, 1} {
					if ms := change.From + d*600_000 + edge; ms >= c.From.UnixMilli() && ms <= c.To.UnixMilli() {
						check(t, periods[0], ms)
						check(t, periods[1], ms)
					}
				}
			}
		}
	}
}

func TestBucketByHand(t *testing.T) {
	t.Parallel()
	at := func(text string) int64 {
		v, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return v.UnixMilli()
	}
	for name, tt := range map[string]struct {
		zone   int // index in zones
		per    hongbao.Period
		ms     string
		resets string
	}{
		"a day of 23 hours":                 {3, hongbao.PerDay, "2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00"},
		"a day of 25 hours":                 {3, hongbao.PerDay, "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"},
		"the first of two hours":            {3, hongbao.PerHour, "2026-11-01T01:30:00-04:00", "2026-11-01T01:00:00-05:00"},
		"the second of two hours":           {3, hongbao.PerHour, "2026-11-01T01:30:00-05:00", "2026-11-01T02:00:00-05:00"},
		"the midnight that is skipped":      {7, hongbao.PerDay, "2017-10-14T12:00:00-03:00", "2017-10-15T01:00:00-02:00"},
		"the midnight that comes twice":     {7, hongbao.PerDay, "2018-02-17T12:00:00-02:00", "2018-02-18T00:00:00-03:00"},
		"half an hour forward: 90 minutes":  {8, hongbao.PerHour, "2026-10-04T01:10:00+10:30", "2026-10-04T03:00:00+11:00"},
		"half an hour back: an hour":        {8, hongbao.PerHour, "2026-04-05T01:40:00+11:00", "2026-04-05T01:30:00+10:30"},
		"half an hour back: half an hour":   {8, hongbao.PerHour, "2026-04-05T01:40:00+10:30", "2026-04-05T02:00:00+10:30"},
		"India's hours begin at half past":  {2, hongbao.PerHour, "2026-05-05T05:20:00Z", "2026-05-05T05:30:00Z"},
		"the day before a skipped day":      {10, hongbao.PerDay, "2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		"Shanghai's day begins at 16:00 Z ": {1, hongbao.PerDay, "2026-05-05T15:59:59Z", "2026-05-05T16:00:00Z"},
	} {
		z := zones[tt.zone]
		list, err := Transitions(zoneCampaign(t, z.name, z.from, z.to))
		require.NoError(t, err)
		_, resets := Bucket(list, tt.per, at(tt.ms))
		require.Equal(t, at(tt.resets), resets, "%s: got %s", name, time.UnixMilli(resets).UTC())
	}
	bucket, resets := Bucket([]Transition{{}}, hongbao.PerCampaign, at("2026-01-01T00:00:00Z"))
	require.Zero(t, bucket)
	require.Zero(t, resets)
}
