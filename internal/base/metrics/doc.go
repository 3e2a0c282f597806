// Package metrics measures a process for Prometheus: every name is in one table, with its labels, its unit and its
// help. docs/metrics.md, the alert rules and the dashboard in deploy are generated from that table.
//
// A Set belongs to one process; nothing is global. Labels are bounded: sinks, shards, outcomes, classes and codes are
// few by themselves, and campaigns are only the last few that a server decided grabs of.
package metrics
