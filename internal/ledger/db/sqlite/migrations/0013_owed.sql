-- lowest: 12
-- The events of a shard that a group owes to its sink, as ranges of seqs. A group without a row owes every event.
CREATE TABLE owed (
    sink      TEXT    NOT NULL, -- the group has its name
    shard     INTEGER NOT NULL,
    first_seq INTEGER NOT NULL, -- the first event in the stream when the group was created
    last_seq  INTEGER NOT NULL, -- the highest bigint: the group is there
    begun_at  INTEGER NOT NULL,
    ended_at  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (sink, shard, last_seq)
) STRICT;
