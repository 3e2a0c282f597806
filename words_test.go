package hongbao_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func TestCheckID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"u", "--", "0", "~", "!", strings.Repeat("a", 128), "a:b{c}*", "9f1c-44", `"quoted"`, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	} {
		require.NoError(t, hongbao.CheckID(id), "%q", id)
	}
	for _, id := range []string{
		"", "-", " ", "a b", "a\x00", "a\n{\"level\":\"error\"}", "\t", "a\x7f", "\u0430dmin", "\xff",
		strings.Repeat("a", 129),
		strings.Repeat("x", 10<<10), "\u200b", "caf\u00e9",
	} {
		require.Error(t, hongbao.CheckID(id), "%.40q", id)
	}
}

func TestCheckCampaignID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "rain", "rain-2", "r_1", "z" + strings.Repeat("9", 63)} {
		require.NoError(t, hongbao.CheckCampaignID(id), "%q", id)
	}
	for _, id := range []string{
		"", "0", "-1", "1rain", "18446744073709551616", "1 or 1=1", "../x", "{1}", "*", "Rain", "rain:1", "rain.1", "rain ",
		"r\x00",
		"r\u0430in", "a" + strings.Repeat("b", 64), "_a", "-a", "a\n",
	} {
		require.Error(t, hongbao.CheckCampaignID(id), "%.40q", id)
	}
}

func TestCheckFactName(t *testing.T) {
	t.Parallel()
	require.NoError(t, hongbao.CheckFactName("device"))
	require.NoError(t, hongbao.CheckFactName(strings.Repeat("d", 32)))
	for _, name := range []string{"", "user", "Device", "a,b", strings.Repeat("d", 33), "a:b"} {
		require.Error(t, hongbao.CheckFactName(name), "%q", name)
	}
}

// Check returns all mistakes in one error, and shortens long texts.
func TestGrabCheck(t *testing.T) {
	t.Parallel()
	good := hongbao.Grab{Campaign: "rain", User: "u1", RequestID: "r", Trace: traceparent}
	require.NoError(t, good.Check())
	require.NoError(t, (&hongbao.Grab{Campaign: "rain", User: "u1"}).Check())

	bad := hongbao.Grab{Campaign: "1", User: "a b", RequestID: "-", Trace: strings.Repeat("x", 10<<10)}
	err := bad.Check()
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	for _, part := range []string{"campaign", "user", "request id", "traceparent"} {
		require.ErrorContains(t, err, part)
	}
	require.Less(t, len(err.Error()), 2000)

	good.Facts = map[string]string{"user": "", "a b": "v v"} // Check does not know the limits, so it accepts all facts
	require.NoError(t, good.Check())
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	require.Len(t, hongbao.Outcomes(), 11)
	for _, o := range hongbao.Outcomes() {
		undecided := slices.Contains([]hongbao.Outcome{hongbao.OutcomeBusy, hongbao.OutcomeFrozen, hongbao.OutcomeRefilling}, o)
		require.Equal(t, !undecided, o.Final(), o)
	}
}

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	for class, name := range map[hongbao.Class]string{
		hongbao.ClassUnknown: "unknown", hongbao.ClassTransient: "transient", hongbao.ClassPermanent: "permanent",
		hongbao.ClassConflict: "conflict", hongbao.ClassBroken: "broken",
	} {
		require.Equal(t, name, class.String())
		err := fmt.Errorf("outer: %w", hongbao.Errorf(class, "inner: %w", io.EOF))
		require.Equal(t, class, hongbao.ClassOf(err))
		require.False(t, hongbao.IsOutage(err))
		require.ErrorIs(t, err, io.EOF)
		require.EqualError(t, err, "outer: inner: EOF")
		require.True(t, hongbao.IsOutage(fmt.Errorf("x: %w", hongbao.Outagef(class, "y"))))
		require.Equal(t, class, hongbao.ClassOf(errors.Join(io.EOF, err)))
	}
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(io.EOF), "no class means unknown")
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(nil))
	require.False(t, hongbao.IsOutage(io.EOF))
	outer := hongbao.Errorf(hongbao.ClassConflict, "outer: %w", hongbao.Outagef(hongbao.ClassTransient, "inner"))
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(outer), "the outermost class counts")
	require.False(t, hongbao.IsOutage(outer))
}

func TestUserHold(t *testing.T) {
	t.Parallel()
	hold := func(limits ...hongbao.Limit) int64 { return (&hongbao.Campaign{Limits: limits}).UserHold() }
	require.EqualValues(t, hongbao.MaxUserHold, hold())
	require.EqualValues(t, 2, hold(
		hongbao.Limit{By: "user", Per: hongbao.PerCampaign, Max: 3},
		hongbao.Limit{By: "user", Per: hongbao.PerCampaign, Max: 2},
		hongbao.Limit{By: "user", Per: hongbao.PerDay, Max: 1},
		hongbao.Limit{By: "device", Per: hongbao.PerCampaign, Max: 1}))
}

// Programs rely on the JSON names, so these must never change.
func TestAnswerInJSON(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1700000000123).UTC()
	for want, answer := range map[string]hongbao.Answer{
		`{"outcome":"granted","receipts":[{"packet":3,"amount":250,"shard":1,"seq":9,"time":"2023-11-14T22:13:20.123Z",` +
			`"request_id":"r1","code":"C1"}],"time":"2023-11-14T22:13:20.123Z"}`: {
			Outcome: hongbao.OutcomeGranted, Time: at,
			Receipts: []hongbao.Receipt{{Packet: 3, Amount: 250, Shard: 1, Seq: 9, Time: at, RequestID: "r1", Code: "C1"}},
		},
		`{"outcome":"limit_reached","limit":{"limit":{"by":"device","per":"day","max":2},"resets":"2023-11-14T22:13:20.123Z"},` +
			`"time":"2023-11-14T22:13:20.123Z"}`: {
			Outcome: hongbao.OutcomeLimitReached, Time: at,
			Limit: &hongbao.LimitHit{Limit: hongbao.Limit{By: "device", Per: hongbao.PerDay, Max: 2}, Resets: at},
		},
		`{"outcome":"not_started","starts":"2023-11-14T22:13:20.123Z","time":"2023-11-14T22:13:20.123Z"}`: {
			Outcome: hongbao.OutcomeNotStarted, Starts: at, Time: at,
		},
	} {
		got, err := json.Marshal(answer)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}
