package cli

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// Columns are aligned by the places that a terminal needs: two for a Chinese character, none for a combining mark.
func TestColumnsOfWideCharacters(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := newColumns(plain{w: &out})
	fmt.Fprintf(c, "ID\tNAME\tSTATE\nrain\t春雨红包\topen\nsnow\te\u0301te\tclosed\n")
	fmt.Fprintf(c, "no column\nA\tB\nlong one\tx\t\n")
	require.NoError(t, c.Flush())
	require.Equal(t, "ID    NAME      STATE\nrain  春雨红包  open\nsnow  e\u0301te       closed\nno column\nA         B\nlong one  x\n",
		out.String())
}

// Colours come only from the program, and only on a terminal that wants them. Text from the stores can't bring its own.
func TestColumnsColours(t *testing.T) {
	t.Parallel()
	for colour, want := range map[bool]string{
		true:  "\x1b[31mdead\x1b[0m  \\x1b[32mann\n\x1b[32mok\x1b[0m    7\n",
		false: "dead  \\x1b[32mann\nok    7\n",
	} {
		var out bytes.Buffer
		c := newColumns(plain{w: &out, colour: colour})
		fmt.Fprintf(c, "%s\t%s\n%s\t%d\n", styled(bad, "dead"), "\x1b[32mann", styled(good, "ok"), 7)
		require.NoError(t, c.Flush())
		require.Equal(t, want, out.String())
	}
}

// Tables show a state in the colour of its meaning.
func TestTablesHaveColours(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, writeSinks(plain{w: &out, colour: true}, []deliveries.SinkStatus{{Sink: "kafka", State: deliveries.SinkDown},
		{Sink: "balance", State: deliveries.SinkWorking}}))
	require.Contains(t, out.String(), "\x1b[31mdown\x1b[0m")
	require.Contains(t, out.String(), "\x1b[32mworking\x1b[0m")
	out.Reset()
	require.NoError(t, writeCampaigns(plain{w: &out, colour: true}, []model.Campaign{{ID: "rain", Status: "frozen"}}, noon))
	require.Contains(t, out.String(), "\x1b[31mfrozen\x1b[0m")
	require.Equal(t, []style{good, warn, bad}, []style{levelStyle(app.LevelOK), levelStyle(app.LevelWarning),
		levelStyle(app.LevelProblem)})
}

func TestWantsColour(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		terminal, want bool
		env            map[string]string
	}{
		{true, true, nil},
		{false, false, nil},
		{true, false, map[string]string{"NO_COLOR": "1"}},
		{true, false, map[string]string{"CLICOLOR": "0"}},
		{true, false, map[string]string{"TERM": "dumb"}},
		{false, false, map[string]string{"CLICOLOR": "1"}},
	} {
		require.Equal(t, c.want, wantsColour(c.terminal, func(name string) string { return c.env[name] }), c.env)
	}
}

func TestCutLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", cutLine("abc", 3))
	require.Equal(t, "ab…", cutLine("abcd", 3))
	require.Equal(t, "春…", cutLine("春雨红包", 4))
	require.Equal(t, "\x1b[31m春\x1b[0m…", cutLine("\x1b[31m春雨红包\x1b[0m", 4))
}

// A table that is wider than the terminal becomes several tables, which begin with its first column. In a pipe it stays one.
// A long text in the last column may wrap.
func TestColumnsFitATerminal(t *testing.T) {
	t.Parallel()
	text := func(width int, lines string) string {
		var out bytes.Buffer
		c := newColumns(plain{w: &out, width: width})
		fmt.Fprint(c, lines)
		require.NoError(t, c.Flush())
		return out.String()
	}
	const table = "ID\tNAME\tPACKETS\tTO\nrain\t春雨\t1,000\tnoon\nsnow\t\t2\t\n"
	require.Equal(t, "ID    NAME  PACKETS  TO\nrain  春雨  1,000    noon\nsnow        2\n", text(0, table))
	require.Equal(t, text(0, table), text(25, table))
	require.Equal(t, "ID    NAME  PACKETS\nrain  春雨  1,000\nsnow        2\n\nID    TO\nrain  noon\nsnow\n", text(24, table))
	require.Equal(t, "ID    NAME\nrain  春雨\nsnow\n\nID    PACKETS\nrain  1,000\nsnow  2\n\nID    TO\nrain  noon\nsnow\n", text(1, table))
	const reasons = "ID\tBY\tWHY\nrain\tann\tthe bank is closed until two in the morning\n"
	require.Equal(t, text(0, reasons), text(20, reasons))
}

// On a terminal of 80 columns `campaign list` is one table: it cuts the names, and aligns those of wide characters.
func TestCampaignListFitsATerminal(t *testing.T) {
	t.Parallel()
	list := []model.Campaign{
		{ID: "spring-rain-of-2026", Name: "春雨红包大派送第二季", Status: "not_started", Granted: 12_034, Packets: 50_000, Currency: "CNY",
			Paid: 12_345_600, From: noon, To: noon.Add(time.Hour)},
		{ID: "tea", Name: "A coupon for each of our guests in the tea house", Kind: hongbao.KindCoupon, Status: "open", Granted: 3,
			Packets: 500, From: noon.Add(-time.Hour), To: noon.Add(-30 * time.Minute)},
	}
	at := noon.Add(-90 * time.Minute)
	var out bytes.Buffer
	require.NoError(t, writeCampaigns(plain{w: &out, width: 80}, list, at))
	require.Equal(t, `ID                   STATUS       GRANTED        PAID            WINDOW        …
spring-rain-of-2026  not_started  12,034/50,000  123,456.00 CNY  opens in 90m  …
tea                  open         3/500          -               opens in 30m  …
`, out.String())
	out.Reset()
	list[0].ID, list[1].Name = "春雨", "Tea"
	require.NoError(t, writeCampaigns(plain{w: &out, width: 80}, list, noon.Add(10*time.Second)))
	require.Equal(t, `ID    STATUS       GRANTED        PAID            WINDOW         NAME
春雨  not_started  12,034/50,000  123,456.00 CNY  ends in 59m    春雨红包大派送…
tea   open         3/500          -               ended 30m ago  Tea
`, out.String())
}

// Counts of the status have separators. A seq has none, because names of events have none.
func TestStatusSeparatesThousands(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, writeStatus(plain{w: &out}, &deliveries.Status{Sinks: []deliveries.SinkStatus{{Sink: "kafka",
		Shards:  []deliveries.ShardStatus{{Shard: 3, Seq: 1_234_567, Waiting: 12_345, Parked: 1_000, Dead: 2_000}},
		Workers: []deliveries.SinkWorker{{Worker: "w", Alive: true, Holds: 4_000}}}}}))
	require.Contains(t, out.String(), "kafka  3      1234567  12,345   0s     1,000   2,000\n")
	require.Contains(t, out.String(), "kafka  w       0s ago  4,000\n")
}
