package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger"
)

// Acknowledged is a difference that a person has acknowledged. It counts nowhere else in the report.
type Acknowledged struct {
	Difference
	By    string    `json:"by" doc:"Who acknowledged the difference."`
	Why   string    `json:"why" doc:"The reason for the acknowledgement."`
	Until time.Time `json:"until" doc:"From this time on, the audit counts the difference again."`
}

// String returns the difference in one line, with the person who acknowledged it.
func (a *Acknowledged) String() string {
	return oneLine(fmt.Sprintf("%s. Acknowledged by %s until %s: %s", a.Difference.String(), a.By,
		a.Until.UTC().Format(time.RFC3339), a.Why))
}

// Acknowledge turns a reported difference into the ledger's acknowledgement. It refuses an unknown kind. It also
// refuses double_credit: the ledger has paid twice.
func (d *Difference) Acknowledge() (ledger.Acknowledgement, error) {
	switch {
	case kindIndex(d.Kind) < 0:
		return ledger.Acknowledgement{}, fmt.Errorf("there is no difference of kind %.40q: copy it from `hongbao audit --json`",
			d.Kind)
	case d.Kind == DoubleCredit:
		return ledger.Acknowledgement{}, fmt.Errorf("%s can't be acknowledged: the ledger has paid twice, and each further "+
			"audit must say so", DoubleCredit)
	}
	return ledger.Acknowledgement{Kind: string(d.Kind), Where: d.Where, Campaign: d.Campaign, Packet: d.Packet,
		Event: d.Event, Detail: d.Detail}, nil
}

// isAcknowledged reports whether a person has acknowledged the difference, and notes it in the report. One
// acknowledgement covers one difference: a second, identical difference is counted.
func (r *run) isAcknowledged(d *Difference) bool {
	if len(r.known) == 0 {
		return false
	}
	as, err := d.Acknowledge()
	if err != nil {
		return false
	}
	a, found := r.known[as.ID()]
	if !found {
		return false
	}
	delete(r.known, as.ID())
	r.report.Acknowledged = append(r.report.Acknowledged, Acknowledged{*d, a.By, a.Why, a.Until})
	return true
}

func (r *Report) allFound() map[Kind]int64 {
	all := make(map[Kind]int64, len(r.Found))
	for k, n := range r.Found {
		all[k] = n
	}
	for i := range r.Acknowledged {
		all[r.Acknowledged[i].Kind]++
	}
	return all
}

func (r *Report) sortAcknowledged() {
	slices.SortStableFunc(r.Acknowledged, func(a, b Acknowledged) int { return a.compare(&b.Difference) })
}
