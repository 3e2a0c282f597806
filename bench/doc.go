// Command bench measures Hongbao against plain loops that do the same work without its promises. `make bench` runs
// it, all rows or ROW=name, on real servers that it starts and stops itself.
//
// Every row runs both sides in turn, in one run on one machine, five times by default, and compares the medians.
// Absolute numbers depend on the machine. The project promises the ratios.
//
// In the order of the table:
//
//   - grab_1x20, grab_1x512, grab_64x8 and grab_256x2 are named by their clients and the callers of each. All grab at
//     once through package producer, against the classic script by the better of two clients; they also show the cost
//     of a grab for Redis;
//   - http_grab grabs over HTTP with tokens, against a bare handler that answers a constant; serve_256x2 is the cost
//     of a fleet's grabs for Redis that way, against the classic script;
//   - settle_postgres, settle_mariadb and settle_sqlite deliver a stream to a ledger by the whole consumer, against a
//     bare loop of read, insert and ack on the same tables; settle_postgres_plain, against tables without books;
//   - settle_http delivers it to a remote balance system that takes 5 ms for each call, against a bare loop of posts;
//   - publish_kafka delivers it to Kafka with claims, against a bare loop of read, send and ack;
//     publish_kafka_franz_none, _lz4 and _zstd, against franz-go's idempotent producer that sends from memory;
//   - both_sinks delivers it to PostgreSQL and to Kafka at once, against the slower one alone;
//   - replay delivers it again, against the rate of publish_kafka;
//   - memory_per_grant is the memory of a grant in Redis, against the classic list and hash;
//   - latency_* are percentiles at half load; receipts_* are a grab's cost when its campaign has many receipts
//     already; grab_shards_*, grab_tail_16 and sold_out are a campaign over many shards, and one with no packets
//     left;
//   - recover_1e5 is how long a shard that lost 100,000 grants is shut, against the time in which they were made;
//   - peer_* are queues that other programs use; command bench/peers runs them with their best number of handlers;
//   - audit_1e7 is the memory of `hongbao audit` with ten million grants. It takes long and runs only if it is named.
//
// bench prints a table with kept or MISSED for each promise. It keeps the results, with every run and how both sides
// were measured, in bench/results.json. New results of a row replace its old ones. From that file it writes the
// tables of the READMEs and docs/bench.md; command bench/plots draws the figures. A missed promise is not an error:
// other machines have other ratios, and a person decides. -profiles DIR writes a CPU profile of each row.
package main
