-- lowest: 1
-- A refund of a campaign on several shards is based on a close of each. That of the first stands in refund itself.

CREATE TABLE refund_close (
    campaign  TEXT NOT NULL REFERENCES refund (campaign),
    place     INTEGER NOT NULL CHECK (place > 0), -- 1 is the campaign's second shard
    shard     INTEGER NOT NULL,
    close_seq INTEGER NOT NULL, -- 0: Redis had lost something of the campaign there
    PRIMARY KEY (campaign, place)
) STRICT;

CREATE INDEX refund_close_by_seq ON refund_close (shard, close_seq);
