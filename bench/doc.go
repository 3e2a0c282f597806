// Command bench measures Hongbao against plain loops that do the same work without Hongbao's guarantees. `make bench`
// measures all rows, and `make bench ROW=name` measures one. The command starts and stops the servers that it needs.
//
// Each row runs both sides alternately on one machine, five times by default, and compares the medians. Absolute
// numbers depend on the machine, so most goals are ratios.
//
// These are the rows, in the order of the table:
//
//   - Rows grab_1x20, grab_1x512, grab_64x8 and grab_256x2 measure grabs through package producer. The names give the
//     number of clients and the number of callers per client. The baseline is the classic script with the faster of two
//     clients. Some of these rows also compare the cost of a grab for Redis.
//   - Rows grab_shards_* and grab_tail_16 measure what a grab costs Redis in a campaign over many shards. Row sold_out
//     measures refusals when no packets are left.
//   - Row http_grab measures grabs over HTTP with tokens. The baseline is a bare handler that returns a constant.
//   - Row serve_256x2 measures what the grabs of a fleet cost Redis through one server. The baseline is the classic
//     script.
//   - Row control_load measures a rain at half load while `hongbao control` audits, replays, loads and serves 50 viewers.
//     The baseline is the same rain without control. The flag -control gives control only some of this work.
//   - Rows latency_* measure percentiles of latencies at half load.
//   - Rows settle_postgres, settle_mariadb and settle_sqlite deliver a stream to a ledger through package consumer. The
//     baseline is a bare loop of read, insert and ack on the same tables. In row settle_postgres_plain that loop uses
//     tables without double entry.
//   - Row settle_http delivers a stream to a remote balance system that takes 5 ms per call. The baseline is a bare
//     loop of posts.
//   - Row publish_kafka delivers a stream to Kafka with claims. The baseline is a bare loop of read, send and ack. In
//     row publish_kafka_writer the baseline is kafka-go's Writer. In rows publish_kafka_franz_none, _lz4 and _zstd it
//     is franz-go's idempotent producer, which sends from memory.
//   - Row publish_webhook delivers a stream to a webhook whose receiver takes 5 ms per request. The baseline is a bare
//     loop of posts.
//   - Row both_sinks delivers a stream to PostgreSQL and to Kafka at once. The baseline is the slower sink alone.
//   - Row replay delivers a stream again. The baseline is the first delivery, as in publish_kafka.
//   - Row memory_per_grant measures Redis' memory for a grant. The baseline is the list and the hash of the classic
//     script.
//   - Rows receipts_* measure what a grab costs in a campaign that already has many receipts.
//   - Row recover_1e5 measures how long a shard that lost 100,000 grants stays frozen. The baseline is the time in
//     which the grants were made.
//   - Rows peer_* compare Hongbao with queues that other programs use. Command bench/peers runs these queues with their
//     best number of handlers.
//   - Row audit_1e7 measures the memory of `hongbao audit` with ten million grants. It takes long and runs only if it
//     is named.
//
// The command prints a table with kept or MISSED for each goal. It stores the results in bench/results.json, with
// the figures of every round and a description of how both sides were measured. New results of a row replace its old
// ones. From that file it generates the tables of the READMEs and docs/bench.md; command bench/plots draws the figures.
// A missed goal is not an error: other machines have other ratios, and a person decides. The flag -profiles DIR
// writes a CPU profile of each row.
package main
