-- lowest: 1
-- A refund of a campaign on several shards is based on a close of each. That of the first stands in refund itself.

CREATE TABLE refund_close (
    campaign  varchar(255) NOT NULL,
    place     integer      NOT NULL CHECK (place > 0), -- 1 is the campaign's second shard
    shard     integer      NOT NULL,
    close_seq bigint       NOT NULL, -- 0: Redis had lost something of the campaign there
    PRIMARY KEY (campaign, place),
    CONSTRAINT refund_close_refund FOREIGN KEY (campaign) REFERENCES refund (campaign)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX refund_close_by_seq ON refund_close (shard, close_seq);
