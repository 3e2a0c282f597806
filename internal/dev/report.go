package dev

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Result is the result of a demo.
type Result struct {
	Grabs       int64                     `json:"grabs"`
	Users       int                       `json:"users"`
	GrabSeconds float64                   `json:"grab_seconds"`
	Outcomes    map[hongbao.Outcome]int64 `json:"outcomes"`
	LostReplies int                       `json:"lost_replies"`
	Kills       int                       `json:"worker_kills"`
	Seconds     float64                   `json:"seconds"`
	Audit       *model.AuditReport        `json:"audit"`

	latency *hdrhistogram.Histogram // microseconds
	amounts []hongbao.Amount
	// again counts the users who grabbed twice; same counts those of them who got the same packet both times.
	again, same int
}

// Write prints the result as text.
func (r *Result) Write(w io.Writer) error {
	fmt.Fprintf(w, "\ngrabs        %d by %d users in %.1f s: %.0f a second, from %d callers\n", r.Grabs, r.Users,
		r.GrabSeconds, float64(r.Grabs)/r.GrabSeconds, callers)
	fmt.Fprintf(w, "latency      half within %s, 99 of 100 within %s, the slowest %s (lost replies included)\n",
		micros(r.latency.ValueAtQuantile(50)), micros(r.latency.ValueAtQuantile(99)), micros(r.latency.Max()))
	for _, o := range hongbao.Outcomes() {
		if n := r.Outcomes[o]; n > 0 {
			fmt.Fprintf(w, "  %-17s %8d\n", o, n)
		}
	}
	fmt.Fprintf(w, "faults       %d replies lost on purpose, %d worker killed with SIGKILL; %d users grabbed twice, "+
		"%d of them had a packet\n             and got the same receipt again\n\n", r.LostReplies, r.Kills, r.again, r.same)
	fmt.Fprintln(w, "amounts of the packets that were granted")
	if err := money.WriteHistogram(w, money.Histogram(r.amounts), currency); err != nil {
		return err
	}
	t := &r.Audit.Total
	granted, left := money.Text(t.GrantedAmount, currency), money.Text(t.LeftAmount, currency)
	fmt.Fprintf(w, "\ngranted      %8d   %s\n", t.Granted, granted)
	fmt.Fprintf(w, "settled      %8d   %s, double credits %d, lost %d\n", t.Settled, money.Text(t.SettledAmount, currency),
		t.DoubleCredits, t.Lost)
	fmt.Fprintf(w, "published    %8d   duplicates %d, missing %d\n", t.Published, t.Duplicates, t.MissingInTopic)
	fmt.Fprintf(w, "left         %8d   %s\n", t.Left, left)
	fmt.Fprintf(w, "\naudit        %s: funded %s = granted %s + left %s, in Redis, ledger and topic\n",
		strings.ToUpper(string(r.Audit.Verdict)), money.Text(t.Funded, currency), granted, left)
	fmt.Fprintf(w, "all of it    %.1f s\n", r.Seconds)
	if r.Audit.Verdict == model.Agrees {
		return nil
	}
	fmt.Fprintln(w)
	return r.Audit.Write(w)
}

func micros(us int64) time.Duration {
	d := time.Duration(us) * time.Microsecond
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
