-- Which events of a shard a subscriber has dealt with; one row a subscriber, source and shard. seen is written by
-- subscriber.Position. turns counts the transactions that held the row.
CREATE TABLE IF NOT EXISTS hongbao_position (
	name   TEXT    NOT NULL,
	source TEXT    NOT NULL,
	shard  INTEGER NOT NULL,
	turns  INTEGER NOT NULL,
	seen   BLOB    NOT NULL,
	PRIMARY KEY (name, source, shard)
) WITHOUT ROWID
