package audit

import (
	"fmt"
	"slices"

	"github.com/hongbao-project/hongbao/internal/model"
)

// Acknowledge turns a reported difference into the ledger's acknowledgement. It refuses an unknown kind. It also
// refuses double_credit: the ledger has paid twice.
func Acknowledge(d *model.Difference) (model.Acknowledgement, error) {
	switch {
	case kindIndex(d.Kind) < 0:
		return model.Acknowledgement{}, fmt.Errorf("there is no difference of kind %.40q: copy it from `hongbao audit --json`",
			d.Kind)
	case d.Kind == DoubleCredit:
		return model.Acknowledgement{}, fmt.Errorf("%s can't be acknowledged: the ledger has paid twice, and each further "+
			"audit must say so", DoubleCredit)
	}
	return model.Acknowledgement{Kind: string(d.Kind), Where: d.Where, Campaign: d.Campaign, Packet: d.Packet,
		Event: d.Event, Detail: d.Detail}, nil
}

// isAcknowledged reports whether a person has acknowledged the difference, and notes it in the report. One
// acknowledgement covers one difference: a second, identical difference is counted.
func (r *run) isAcknowledged(d *model.Difference) bool {
	if len(r.known) == 0 {
		return false
	}
	as, err := Acknowledge(d)
	if err != nil {
		return false
	}
	a, found := r.known[as.ID()]
	if !found {
		return false
	}
	delete(r.known, as.ID())
	r.report.Acknowledged = append(r.report.Acknowledged, model.Acknowledged{Difference: *d, By: a.By, Why: a.Why,
		Until: a.Until})
	return true
}

// allFound counts the differences of each kind, with the acknowledged ones.
func allFound(r *model.AuditReport) map[model.DifferenceKind]int64 {
	all := make(map[model.DifferenceKind]int64, len(r.Found))
	for k, n := range r.Found {
		all[k] = n
	}
	for i := range r.Acknowledged {
		all[r.Acknowledged[i].Kind]++
	}
	return all
}

func sortAcknowledged(r *model.AuditReport) {
	slices.SortStableFunc(r.Acknowledged, func(a, b model.Acknowledged) int {
		return compare(&a.Difference,
			&b.Difference)
	})
}
