package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

// progressed shows the progress, as bars.
func (d *Demo) progressed(at standing) {
	all := min(d.Packets, int64(d.Users))
	line := fmt.Sprintf("%5.1fs    granted %s %d  settled %s %d  published %s %d", time.Since(d.started).Seconds(),
		bar(at.granted, all), at.granted, bar(at.settled, all), at.settled, bar(at.published, all), at.published)
	d.screen.show(line, 1+(at.granted+at.settled+at.published)*10/(3*all))
}

// Result is the result of a demo.
type Result struct {
	Grabs       int64                     `json:"grabs"`
	Users       int                       `json:"users"`
	GrabSeconds float64                   `json:"grab_seconds"`
	Outcomes    map[hongbao.Outcome]int64 `json:"outcomes"`
	LostReplies int64                     `json:"lost_replies"`
	Kills       int                       `json:"worker_kills"`
	Seconds     float64                   `json:"seconds"`
	Audit       *audit.Report             `json:"audit"`

	demo *Demo
}

func (d *Demo) result(r *audit.Report) *Result {
	c := d.crowd
	return &Result{c.grabs, d.Users, c.took.Seconds(), c.outcomes, c.lost.Load(), d.kills,
		time.Since(d.started).Seconds(), r, d}
}

// Write writes the result for a person.
func (result *Result) Write(w io.Writer) error {
	d, r := result.demo, result.Audit
	c := d.crowd
	fmt.Fprintf(w, "\ngrabs        %d by %d users in %.1f s: %.0f a second, from %d callers\n", c.grabs, d.Users,
		c.took.Seconds(),
		float64(c.grabs)/c.took.Seconds(), callers)
	fmt.Fprintf(w, "latency      half within %s, 99 of 100 within %s, the slowest %s (lost replies included)\n",
		micros(c.latency.ValueAtQuantile(50)),
		micros(c.latency.ValueAtQuantile(99)), micros(c.latency.Max()))
	for _, o := range hongbao.Outcomes() {
		if n := c.outcomes[o]; n > 0 {
			fmt.Fprintf(w, "  %-17s %8d\n", o, n)
		}
	}
	fmt.Fprintf(w, "faults       %d replies of Redis lost on purpose, %d worker killed with SIGKILL; %d users grabbed "+
		"twice, %d of them had a packet\n"+
		"             and got the same receipt again\n\n", c.lost.Load(), d.kills, c.again, c.same)
	fmt.Fprintln(w, "amounts of the packets that were granted")
	if err := money.WriteHistogram(w, money.Histogram(c.amounts), "CNY"); err != nil {
		return err
	}
	t := &r.Total
	fmt.Fprintf(w, "\ngranted      %8d   %s\nsettled      %8d   %s, double credits %d, lost %d\npublished    %8d   "+
		"duplicates %d, missing %d\n",
		t.Granted, money.Text(t.GrantedAmount, "CNY"), t.Settled, money.Text(t.SettledAmount, "CNY"), t.DoubleCredits, t.Lost,
		t.Published, t.Duplicates, t.MissingInTopic)
	fmt.Fprintf(w, "left         %8d   %s\n", t.Left, money.Text(t.LeftAmount, "CNY"))
	fmt.Fprintf(w, "\naudit        %s: funded %s = granted %s + left %s, in Redis, ledger and topic\n",
		strings.ToUpper(string(r.Verdict)),
		money.Text(t.Funded, "CNY"), money.Text(t.GrantedAmount, "CNY"), money.Text(t.LeftAmount, "CNY"))
	fmt.Fprintf(w, "all of it    %.1f s\n", time.Since(d.started).Seconds())
	if r.Verdict == audit.Agrees {
		return nil
	}
	fmt.Fprintln(w)
	return r.Write(w)
}

func micros(us int64) time.Duration {
	d := time.Duration(us) * time.Microsecond
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
