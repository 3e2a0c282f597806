-- The packets that subscribers have seen. A row has the packets chunk*4096+1 to (chunk+1)*4096 of a campaign on a shard.
-- Bit i (from 0, the lowest first) of byte j of seen is the packet chunk*4096 + 8*j + i + 1. Pages stay half empty,
-- because a busy row gets two new versions in each batch: on a full page the table would grow until the next VACUUM.
CREATE TABLE IF NOT EXISTS hongbao_seen (
	name     TEXT    NOT NULL,
	source   TEXT    NOT NULL,
	campaign TEXT    NOT NULL,
	shard    INTEGER NOT NULL,
	chunk    BIGINT  NOT NULL,
	seen     BYTEA   NOT NULL,
	PRIMARY KEY (name, source, campaign, shard, chunk)
) WITH (fillfactor = 50);

-- How far a consumer group has come: the offset after its last event, and which event that was. It is needed when the
-- group's offsets in Kafka have expired. last is empty, or "hongbao-last OFFSET MILLISECONDS ID".
CREATE TABLE IF NOT EXISTS hongbao_offset (
	name           TEXT    NOT NULL,
	consumer_group TEXT    NOT NULL,
	topic          TEXT    NOT NULL,
	partition_id   INTEGER NOT NULL,
	next           BIGINT  NOT NULL,
	last           TEXT    NOT NULL,
	PRIMARY KEY (name, consumer_group, topic, partition_id)
) WITH (fillfactor = 50)
