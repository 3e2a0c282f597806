package testkit

import "fmt"

// Entry returns the field and value of a stream entry as the scripts write it, for tests that write entries
// themselves. lines follow the first line.
func Entry(version any, kind, campaign string, seq, epoch, ms any, lines string) []any {
	return []any{fmt.Sprint(version), fmt.Sprintf("%s %s %v %v %v\n%s", kind, campaign, seq, epoch, ms, lines)}
}
