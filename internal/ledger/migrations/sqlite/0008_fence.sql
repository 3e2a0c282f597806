-- lowest: 5
-- Epochs in which a shard went on although Redis had lost the end of the one before. Nothing that an older epoch has above
-- the floor counts from then on.
CREATE TABLE fence (
    shard     INTEGER NOT NULL,
    epoch     INTEGER NOT NULL, -- in which the shard goes on
    floor     INTEGER NOT NULL CHECK (floor >= 0), -- the last seq that Redis had
    token     TEXT    NOT NULL, -- of the Redis server for which the shard goes on
    fenced_at INTEGER NOT NULL,
    opened_at INTEGER, -- null: it may not be open yet
    note      TEXT    NOT NULL, -- what the opening restored
    PRIMARY KEY (shard, epoch)
) STRICT;
