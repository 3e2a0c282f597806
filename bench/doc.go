// Command bench measures Hongbao against plain loops that do the same work without its promises. `make bench` runs it,
// all rows or ROW=name, on real servers that it starts and ends by itself.
//
// Every row runs the two in turn, in one run on one machine, five times if not told otherwise, and compares the
// medians. Absolute numbers depend on the machine; the ratios are what the project promises.
//
// In the order of the table:
//
//   - grab_1x20, grab_1x512, grab_64x8 and grab_256x2 have so many clients, with so many callers each, grab at once through
//     package producer, against the classic script by the better of two clients; with what a grab costs Redis beside it;
//   - http_grab grabs over HTTP with tokens, against a bare handler that answers a constant; serve_256x2 is what the grabs
//     of a fleet cost Redis that way, against the classic script;
//   - settle_postgres, settle_mariadb and settle_sqlite bring a stream to a ledger by the whole consumer, against a bare
//     loop of read, insert and ack on the same tables; settle_postgres_plain, against tables without books;
//   - settle_http brings it to a remote balance system that takes 5 ms for each call, against a bare loop of posts;
//   - publish_kafka brings it to Kafka with claims, against a bare loop of read, send and ack; publish_kafka_franz_none,
//     _lz4 and _zstd, against franz-go's idempotent producer that sends from memory;
//   - both_sinks brings it to PostgreSQL and to Kafka at once, against the slower one alone;
//   - replay delivers it once more, against the rate of publish_kafka;
//   - memory_per_grant is what a grant keeps in Redis, against the classic list and hash;
//   - latency_* are percentiles at half load; receipts_* a grab's cost when its campaign has many receipts already;
//     grab_shards_*, grab_tail_16 and sold_out a campaign over many shards, and one that has nothing left;
//   - recover_1e5 is how long a shard is shut that has lost 100,000 grants, against the time in which they were made;
//   - peer_* are queues that other programs use, run by command bench/peers with the number of handlers that is best there;
//   - audit_1e7 is the memory of `hongbao audit` with ten million grants. It takes long and runs only when it is named.
//
// It prints a table that says kept or MISSED of each promise, and keeps the results, with every single run and how both
// sides were measured, in bench/results.json: a row that was measured again takes the place of its old results. By that
// file it writes the tables of the READMEs and docs/bench.md; command bench/plots draws the figures. A missed promise is
// no error: other machines have other ratios, and a person looks. -profiles DIR writes where each row's time went.
package main
