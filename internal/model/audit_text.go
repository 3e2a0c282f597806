package model

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
)

// Write prints the report as text: the counts as a table, each listed difference in one line, and a remedy for each
// kind. It escapes text from outside.
func (r *AuditReport) Write(w io.Writer) error { return r.WriteWithin(w, 0) }

// WriteWithin is like Write. If the table of counts is wider than the width, it writes one table for each part of it: Redis,
// the ledger and the numbers of packets. A width of 0 has no limit.
func (r *AuditReport) WriteWithin(w io.Writer, width int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Redis, ledger and topic: %s. Audit of %s, %.1f s.\n", r.Verdict, r.Started.UTC().Format(time.RFC3339),
		r.Seconds)
	for i := range r.Campaigns {
		if c := &r.Campaigns[i]; c.Ended != "" {
			fmt.Fprintf(&b, "Campaign %s: %s.\n", oneLine(c.Campaign), oneLine(c.Ended))
		}
	}
	for i := range r.Campaigns {
		if c := &r.Campaigns[i]; c.Loading {
			fmt.Fprintf(&b, "Campaign %s is still being loaded: its stock is not compared with its plan yet. If no load runs, "+
				"`hongbao campaign load %s` continues it.\n", oneLine(c.Campaign), oneLine(c.Campaign))
		}
	}
	for _, what := range r.LeftOut {
		fmt.Fprintf(&b, "Not compared: %s.\n", oneLine(what))
	}
	if n := r.Total.InFlight; n > 0 || !r.Quiet {
		fmt.Fprintf(&b, "%s in flight, not judged (%s to the ledger, %s to the topic).\n", plural.Of(n, "grant"),
			money.Count(r.Total.Unsettled), money.Count(r.Total.Unpublished))
	}
	if r.Total.Newer > 0 {
		fmt.Fprintf(&b, "%s made while the audit was reading, not judged; sums that were read later may include more of them.\n",
			plural.Of(r.Total.Newer, "grant"))
	}
	if r.Total.Expired > 0 {
		fmt.Fprintf(&b, "%s expired from the topic, not judged there.\n", plural.Of(r.Total.Expired, "grant"))
	}
	if n := r.Total.NotOwed; n > 0 {
		fmt.Fprintf(&b, "%s that a sink does not owe, not judged there: `hongbao status` shows since when it owes.\n", plural.Of(n, "grant"))
	}
	if r.Total.Foreign+r.Total.OpenClaims > 0 {
		fmt.Fprintf(&b, "%s foreign records in the topic, %s pushes in progress.\n", money.Count(r.Total.Foreign),
			money.Count(r.Total.OpenClaims))
	}
	if n := r.Total.Withheld; n > 0 {
		fmt.Fprintf(&b, "Withheld packets without a decision: %s, see `hongbao hole list`.\n", money.Count(n))
	}
	b.WriteByte('\n')
	b.WriteString(r.table(width))
	r.differences(&b)
	r.acknowledged(&b)
	r.dropped(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// tableParts are the parts of a line of the table after its campaign: what Redis has, what the ledger has, and the numbers
// of packets.
var tableParts = [][2]int{{1, 4}, {4, 7}, {7, 12}}

func (r *AuditReport) table(width int) string {
	lines := [][]string{{"campaign", "funded", "granted", "left", "settled", "refunded", "open", "packets", "granted", "left",
		"settled", "published"}}
	row := func(name, currency string, c *Counts) {
		line := []string{oneLine(name)}
		for _, a := range []hongbao.Amount{c.Funded, c.GrantedAmount, c.LeftAmount, c.SettledAmount, c.Refunded, c.Open} {
			line = append(line, oneLine(money.Text(a, currency)))
		}
		for _, n := range []int64{c.Packets, c.Granted, c.Left, c.Settled, c.Published} {
			line = append(line, money.Count(n))
		}
		lines = append(lines, line)
	}
	totals := map[string]*Counts{} // by currency, because amounts of different currencies can't be added
	for i := range r.Campaigns {
		c := &r.Campaigns[i]
		name := c.Campaign
		if c.Sealed {
			name += " (sealed)"
		} else if !c.InRedis {
			name += " (not in Redis)"
		}
		if c.Loading {
			name += " (still loading)"
		}
		if c.Ended != "" {
			name += " (ended from the ledger)"
		}
		row(name, c.Currency, &c.Counts)
		if totals[c.Currency] == nil {
			totals[c.Currency] = &Counts{}
		}
		totals[c.Currency].Add(&c.Counts)
	}
	if len(totals) == 0 {
		totals[""] = &Counts{}
	}
	for _, currency := range slices.Sorted(maps.Keys(totals)) {
		row("total", currency, totals[currency])
	}
	return layOut(lines, width)
}

// layOut aligns the lines to the right, as one table or, if it is wider than the width, as one for each part.
func layOut(lines [][]string, width int) string {
	all := align(lines, tableParts...)
	if width == 0 || strings.IndexByte(all, '\n') <= width {
		return all
	}
	tables := make([]string, len(tableParts))
	for i, part := range tableParts {
		tables[i] = align(lines, part)
	}
	return strings.Join(tables, "\n")
}

func align(lines [][]string, parts ...[2]int) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range lines {
		text := line[0] + "\t"
		for i, part := range parts {
			if i > 0 {
				text += "|\t"
			}
			text += strings.Join(line[part[0]:part[1]], "\t") + "\t"
		}
		fmt.Fprintln(t, text)
	}
	_ = t.Flush() // a write to a strings.Builder never fails
	return b.String()
}

// differences prints the differences, which are sorted by kind. At least one difference of each kind is listed.
func (r *AuditReport) differences(b *strings.Builder) {
	for at := 0; at < len(r.Differences); {
		k := r.Differences[at].Kind
		n, remedy := r.Found[k], r.Remedies[k]
		fmt.Fprintf(b, "\n%s: %s. It means: %s. What to do: %s.\n", k, money.Count(n), remedy.Means, remedy.Do)
		named := int64(0)
		for ; at < len(r.Differences) && r.Differences[at].Kind == k; at++ {
			fmt.Fprintf(b, "  %s\n", r.Differences[at].String())
			named++
		}
		if named < n {
			fmt.Fprintf(b, "  and %s more\n", money.Count(n-named))
		}
	}
}

func (r *AuditReport) acknowledged(b *strings.Builder) {
	if len(r.Acknowledged) == 0 {
		return
	}
	fmt.Fprintf(b, "\nAcknowledged by a person: %s. None is counted before the time in its line.\n",
		money.Count(int64(len(r.Acknowledged))))
	for i := range r.Acknowledged {
		fmt.Fprintf(b, "  %s\n", r.Acknowledged[i].String())
	}
}

func (r *AuditReport) dropped(b *strings.Builder) {
	if r.Total.Dropped == 0 {
		return
	}
	fmt.Fprintf(b, "\nNot delivered by a person's decision: %s. These are not differences.\n", money.Count(r.Total.Dropped))
	for i := range r.Dropped {
		fmt.Fprintf(b, "  %s\n", r.Dropped[i].String())
	}
	if n := r.Total.Dropped - int64(len(r.Dropped)); n > 0 {
		fmt.Fprintf(b, "  and %s more\n", money.Count(n))
	}
}

// String returns the difference in one line. It escapes line breaks and other unprintable characters.
func (d *Difference) String() string {
	var b strings.Builder
	b.WriteString(string(d.Kind))
	if d.Campaign != "" {
		b.WriteString(" campaign " + d.Campaign)
	}
	if d.Packet != 0 {
		b.WriteString(" packet " + strconv.FormatInt(d.Packet, 10))
	}
	if d.Event != "" {
		b.WriteString(" event " + d.Event)
	}
	b.WriteString(" (" + d.Where + "): " + d.Detail)
	if d.Receipt != "" {
		b.WriteString("; " + d.Receipt)
	}
	return oneLine(b.String())
}

// String returns the difference in one line, with the person who acknowledged it.
func (a *Acknowledged) String() string {
	return oneLine(fmt.Sprintf("%s. Acknowledged by %s until %s: %s", a.Difference.String(), a.By,
		a.Until.UTC().Format(time.RFC3339), a.Why))
}

// oneLine escapes everything except printable ASCII. It leaves escapes in s as they are.
func oneLine(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= ' ' && r <= '~' {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
