package testkit

import "fmt"

// Entry returns the field and value of a stream entry in the format of the scripts, for tests that write
// entries themselves. lines are the lines after the first one. Grants have no currency.
func Entry(kind, campaign string, seq, epoch, ms any, lines string) []any {
	version, currency := "3", " -"
	switch kind {
	case "close":
		version, currency = "1", ""
	case "epoch":
		version, currency = "2", ""
	}
	return []any{version, fmt.Sprintf("%s %s %v %v %v%s\n%s", kind, campaign, seq, epoch, ms, currency, lines)}
}
