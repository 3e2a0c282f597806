package stream_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// values returns the field and the value of a valid entry. change may first modify its parts: version, kind, campaign,
// seq, epoch, time, currency, and the lines of the grants.
func values(change func(v []string) []string) []string {
	v := []string{"3", "grant", "rain", "7", "1", "1700000000123", "-", "3 500 u1 r1 -\n4 0 u2 - tr"}
	if change != nil {
		v = change(v)
	}
	return []string{v[0], strings.Join(v[1:len(v)-1], " ") + "\n" + v[len(v)-1]}
}

func set(at int, value string) func([]string) []string {
	return func(v []string) []string { v[at] = value; return v }
}

func TestParseEntryGrants(t *testing.T) {
	t.Parallel()
	e, err := stream.ParseEntry(5, "9-1", values(nil))
	require.NoError(t, err)
	at := time.UnixMilli(1700000000123).UTC()
	want := func(seq, packet int64, amount hongbao.Amount, user, request, trace string) hongbao.Grant {
		return hongbao.Grant{
			Shard: 5, Seq: seq, Epoch: 1, EntryID: "9-1", Campaign: "rain", Packet: packet, Amount: amount, User: user,
			RequestID: request, Trace: trace, Time: at,
		}
	}
	require.Equal(t, stream.Entry{
		ID: "9-1", Shard: 5, Kind: stream.EntryGrant, Campaign: "rain", Seq: 7, Epoch: 1, Time: at,
		Grants: []hongbao.Grant{want(7, 3, 500, "u1", "r1", ""), want(8, 4, 0, "u2", "", "tr")},
	}, e)
	require.EqualValues(t, 2, e.Events())
	require.Equal(t, "5-8", e.Grants[1].EventID())
}

func TestParseEntryCurrency(t *testing.T) {
	t.Parallel()
	for word, currency := range map[string]string{"CNY": "CNY", "-": ""} {
		e, err := stream.ParseEntry(5, "9-1", values(set(6, word)))
		require.NoError(t, err)
		require.Equal(t, []string{currency, currency}, []string{e.Grants[0].Currency, e.Grants[1].Currency})
	}
	for _, word := range []string{"", "cny", "CN", "CNYY", "C Y", "C1Y", "\x1b[m"} {
		_, err := stream.ParseEntry(5, "9-1", values(set(6, word)))
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "currency %q", word)
	}
}

// Each kind of entry has one version. With another version it is invalid, also a grant without a currency.
func TestParseEntryOfOtherVersion(t *testing.T) {
	t.Parallel()
	for kind, text := range map[string]string{
		"close": "close rain 7 1 1700000000123\n10 100 2 20",
		"epoch": "epoch - 7 2 1700000000123\n64 7",
		"grant": "grant rain 7 1 1700000000123 CNY\n3 500 u1 r1 -",
		"old":   "grant rain 7 1 1700000000123\n3 500 u1 r1 -",
	} {
		for version, has := range map[string]string{"1": "close", "2": "epoch", "3": "grant"} {
			e, err := stream.ParseEntry(5, "9-1", []string{version, text})
			if kind == has {
				require.NoError(t, err)
				require.Equal(t, kind, string(e.Kind))
				continue
			}
			require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "version %s of %s", version, kind)
			if kind != "old" {
				require.ErrorContains(t, err, "version "+version+" has no kind \""+kind+"\"")
			}
		}
	}
	_, err := stream.ParseEntry(5, "9-1", []string{"1", "grant rain 7 1 1700000000123\n3 500 u1 r1 -"})
	require.EqualError(t, err, `entry 9-1 of shard 5 can't be read: version 1 has no kind "grant"`)
}

func TestParseEntryClose(t *testing.T) {
	t.Parallel()
	e, err := stream.ParseEntry(0, "9-1", values(closing("10 100 2 20")))
	require.NoError(t, err)
	require.Equal(t, stream.Closing{Granted: 10, GrantedAmount: 100, Left: 2, LeftAmount: 20}, e.Close)
	require.Empty(t, e.Grants)
	require.EqualValues(t, 1, e.Events())
}

// An entry that starts an epoch covers the seqs that it skips, at least one.
func TestParseEntryEpoch(t *testing.T) {
	t.Parallel()
	for last, events := range map[int]int64{5: 1, 64: 60} {
		e, err := stream.ParseEntry(0, "9-1", []string{"2", fmt.Sprintf("epoch - 5 2 1700000000123\n%d 4", last)})
		require.NoError(t, err)
		require.Equal(t, stream.EntryEpoch, e.Kind)
		require.Equal(t, events, e.Events())
		require.EqualValues(t, last, e.Last())
	}
	_, err := stream.ParseEntry(0, "9-1", []string{"2", "epoch - 5 2 1700000000123\n4 4"})
	require.ErrorContains(t, err, "below its own")
}

// lines returns the lines of n valid grants.
func lines(n int) string { return strings.TrimSuffix(strings.Repeat("1 1 u - -\n", n), "\n") }

func grants(g string) func([]string) []string { return set(7, g) }

func closing(g string) func([]string) []string {
	return func(v []string) []string { return []string{"1", "close", v[2], v[3], v[4], v[5], g} }
}

// badEntries are changes that make an entry unreadable.
var badEntries = map[string]func([]string) []string{
	"a word too few":     func(v []string) []string { return append(v[:1], v[2:]...) },
	"a word too many":    set(5, "1700000000123 1"),
	"two spaces ahead":   set(4, " 1"),
	"words swapped":      func(v []string) []string { v[2], v[3] = v[3], v[2]; return v },
	"version 0":          set(0, "0"),
	"version -1":         set(0, "-1"),
	"version empty":      set(0, ""),
	"version text":       set(0, "one"),
	"kind empty":         set(1, ""),
	"kind unknown":       set(1, "refund"),
	"campaign empty":     set(2, ""),
	"campaign path":      set(2, "../x"),
	"campaign braces":    set(2, "{1}"),
	"seq 0":              set(3, "0"),
	"seq empty":          set(3, ""),
	"seq leading zero":   set(3, "07"),
	"seq exponent":       set(3, "1e9"),
	"seq plus":           set(3, "+7"),
	"seq space":          set(3, " 7"),
	"seq trailing":       set(3, "7 "),
	"seq fraction":       set(3, "7.0"),
	"seq 2^53":           set(3, "9007199254740992"),
	"seq runs over 2^53": set(3, "9007199254740991"),
	"seq 10^30":          set(3, "1"+strings.Repeat("0", 30)),
	"epoch 0":            set(4, "0"),
	"epoch negative":     set(4, "-1"),
	"time 0":             set(5, "0"),
	"time text":          set(5, "2024-01-01T00:00:00Z"),
	"grants empty":       grants(""),
	"grants end line":    grants("1 1 u - -\n"),
	"129 grants":         grants(lines(129)),
	"four words":         grants("1 1 u -"),
	"six words":          grants("1 1 u - - -"),
	"two spaces":         grants("1  1 u - -"),
	"space at the end":   grants("1 1 u - - "),
	"tab":                grants("1\t1\tu\t-\t-"),
	"packet 0":           grants("0 1 u - -"),
	"packet negative":    grants("-1 1 u - -"),
	"packet hex":         grants("0x1 1 u - -"),
	"amount negative":    grants("1 -1 u - -"),
	"amount -0":          grants("1 -0 u - -"),
	"amount exponent":    grants("1 1e9 u - -"),
	"amount fraction":    grants("1 1.5 u - -"),
	"amount 2^53":        grants("1 9007199254740992 u - -"),
	"amount 2^64":        grants("1 18446744073709551616 u - -"),
	"amount full width":  grants("1 \uff11 u - -"),
	"user missing":       grants("1 1 - - -"),
	"user empty":         grants("1 1  - -"),
	"user NUL":           grants("1 1 a\x00b - -"),
	"user look-alike":    grants("1 1 us\u0435r - -"),
	"user too long":      grants("1 1 " + strings.Repeat("u", 129) + " - -"),
	"request empty":      grants("1 1 u  -"),
	"request too long":   grants("1 1 u " + strings.Repeat("r", 129) + " -"),
	"trace control":      grants("1 1 u - \x1b[1m"),
	"carriage return":    grants("1 1 u - -\r\n2 1 u - -"),
	"second line bad":    grants("1 1 u - -\nx"),
	"close empty":        closing(""),
	"close of three":     closing("1 2 3"),
	"close of five":      closing("1 2 3 4 5"),
	"close negative":     closing("1 2 3 -4"),
	"close above 2^53":   closing("1 9007199254740992 3 4"),
}

func TestParseEntryRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range badEntries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := stream.ParseEntry(3, "9-1", values(change))
			require.Error(t, err)
			require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
			require.False(t, hongbao.IsOutage(err))
			require.Contains(t, err.Error(), "entry 9-1 of shard 3")
			require.Zero(t, e, "a bad entry returns no data")
			require.NotContains(t, err.Error(), "\x1b", "an error's text is safe to log")
			require.NotContains(t, strings.TrimSuffix(err.Error(), "\n"), "\n")
		})
	}
}

func TestParseEntryBounds(t *testing.T) {
	t.Parallel()
	full := strings.TrimSuffix(strings.Repeat("9007199254740991 9007199254740991 "+strings.Repeat("u", 128)+" - -\n", 128),
		"\n")
	e, err := stream.ParseEntry(0, "1-1", values(func(v []string) []string {
		v[3], v[7] = fmt.Sprint(int64(hongbao.MaxAmount)-128), full
		return v
	}))
	require.NoError(t, err)
	require.Len(t, e.Grants, 128)
	require.Less(t, e.Grants[127].Seq, int64(hongbao.MaxAmount))
}

// An entry of a newer version gives ErrNewerEntry, even if the rest of the entry is malformed.
func TestParseEntryOfNewerBuild(t *testing.T) {
	t.Parallel()
	for _, v := range [][]string{
		values(set(0, "5")), append(values(set(0, "4")), "x", "y"), {"4", ""}, values(set(0, "4294967296")),
	} {
		e, err := stream.ParseEntry(1, "1-1", v)
		require.ErrorIs(t, err, stream.ErrNewerEntry)
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
		require.Zero(t, e)
	}
}

func TestParseEntryOfNoField(t *testing.T) {
	t.Parallel()
	good := values(nil)
	for _, v := range [][]string{nil, {}, good[:1], {"v", good[1]}, {"", good[1]}, {"3", ""}} {
		e, err := stream.ParseEntry(3, "9-1", v)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "%q", v)
		require.Zero(t, e)
	}
	require.Equal(t, "rain", stream.CampaignOf(good))
	require.Equal(t, "rain", stream.CampaignOf([]string{"9", "gift rain"}), "also from an unreadable entry")
	require.Empty(t, stream.CampaignOf([]string{"3", "grant {x} 7"}))
	require.Empty(t, stream.CampaignOf(nil))
}

func anyID() *rapid.Generator[string] {
	return rapid.StringMatching(`[!-~]{1,128}`).Filter(func(s string) bool { return s != "-" })
}

func TestGrantLineRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "grants")
		want := make([]hongbao.Grant, n)
		text := make([]string, n)
		optional := rapid.OneOf(rapid.Just(""), anyID())
		for i := range want {
			want[i] = hongbao.Grant{
				Shard: 2, Seq: 7 + int64(i), Epoch: 1, EntryID: "1-0", Campaign: "rain", Time: time.UnixMilli(1700000000123).UTC(),
				Packet: rapid.Int64Range(1, int64(hongbao.MaxAmount)).Draw(t, "packet"),
				Amount: hongbao.Amount(rapid.Int64Range(0, int64(hongbao.MaxAmount)).Draw(t, "amount")),
				User:   anyID().Draw(t, "user"), RequestID: optional.Draw(t, "request"), Trace: optional.Draw(t, "trace"),
			}
			text[i] = store.GrantLine(&want[i])
		}
		e, err := stream.ParseEntry(2, "1-0", values(set(7, strings.Join(text, "\n"))))
		require.NoError(t, err)
		require.Equal(t, want, e.Grants)
	})
}

// FuzzParseEntry checks that every input is either parsed or refused with class Permanent or Broken, without a panic.
// It also checks that each parsed entry has only one textual form.
func FuzzParseEntry(f *testing.F) {
	f.Add(strings.Join(values(nil), "\x01"))
	f.Add(strings.Join(values(closing("1 2 3 4")), "\x01"))
	f.Add(strings.Join(values(set(0, "2")), "\x01"))
	f.Add("3\x01grant rain 7 1 1700000000123 CNY\n3 500 u1 r1 -")
	f.Add("2\x01epoch - 5 2 1700000000123\n64 7")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		v := strings.Split(text, "\x01")
		e, err := stream.ParseEntry(1, "1-0", v)
		if err != nil {
			require.Contains(t, []hongbao.Class{hongbao.ClassPermanent, hongbao.ClassBroken}, hongbao.ClassOf(err))
			require.Zero(t, e)
			return
		}
		require.Equal(t, v, written(&e))
	})
}

// written formats an entry as the scripts write it.
func written(e *stream.Entry) []string {
	head := fmt.Sprintf("%s %s %d %d %d", e.Kind, cmp.Or(e.Campaign, "-"), e.Seq, e.Epoch, e.Time.UnixMilli())
	switch e.Kind {
	case stream.EntryEpoch:
		return []string{"2", fmt.Sprintf("%s\n%d %d", head, e.Skipped.Last, e.Skipped.Known)}
	case stream.EntryClose:
		return []string{"1", fmt.Sprintf("%s\n%d %d %d %d", head, e.Close.Granted, e.Close.GrantedAmount, e.Close.Left,
			e.Close.LeftAmount)}
	case stream.EntryGrant:
	}
	lines := make([]string, len(e.Grants))
	for i := range e.Grants {
		lines[i] = store.GrantLine(&e.Grants[i])
	}
	return []string{"3", head + " " + cmp.Or(e.Grants[0].Currency, "-") + "\n" + strings.Join(lines, "\n")}
}
