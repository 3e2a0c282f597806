package testkit

import "fmt"

// Entry returns the field and value of a stream entry in the format of the scripts, for tests that write
// entries themselves. lines are the lines after the first one.
func Entry(version any, kind, campaign string, seq, epoch, ms any, lines string) []any {
	return []any{fmt.Sprint(version), fmt.Sprintf("%s %s %v %v %v\n%s", kind, campaign, seq, epoch, ms, lines)}
}
