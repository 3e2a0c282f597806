-- lowest: 12
-- The events of a shard that a group owes to its sink, as ranges of seqs. A group without a row owes every event.
CREATE TABLE owed (
    sink      text COLLATE "C" NOT NULL, -- the group has its name
    shard     integer NOT NULL,
    first_seq bigint  NOT NULL, -- the first event in the stream when the group was created
    last_seq  bigint  NOT NULL, -- the highest bigint: the group is there
    begun_at  bigint  NOT NULL,
    ended_at  bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (sink, shard, last_seq)
);
