// Package metrics exports the metrics of a process to Prometheus. One table defines every metric with its labels, its
// unit and its help text. docs/metrics.md, the alert rules and the dashboard in deploy are generated from that table.
//
// Each process creates one Set; the package has no global state. Every label has few values. There are few sinks,
// shards, outcomes, classes and codes. The label campaign has at most ops.campaigns values: the campaigns with the
// latest grabs on that server.
package metrics
