-- The events that a subscriber has handled, with one row per subscriber, source and shard. seen is a marshaled
-- position, see position.go. turns counts the transactions that locked the row.
CREATE TABLE IF NOT EXISTS hongbao_position (
	name   TEXT    NOT NULL,
	source TEXT    NOT NULL,
	shard  INTEGER NOT NULL,
	turns  INTEGER NOT NULL,
	seen   BLOB    NOT NULL,
	PRIMARY KEY (name, source, shard)
) WITHOUT ROWID
