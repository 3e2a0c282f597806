-- lowest: 5
-- Epochs in which a shard went on although Redis had lost the end of the one before. Nothing that an older epoch has above
-- the floor counts from then on.
CREATE TABLE fence (
    shard     integer NOT NULL,
    epoch     bigint  NOT NULL, -- in which the shard goes on
    floor     bigint  NOT NULL CHECK (floor >= 0), -- the last seq that Redis had
    token     varchar(255) NOT NULL, -- of the Redis server for which the shard goes on
    fenced_at bigint  NOT NULL,
    opened_at bigint, -- null: it may not be open yet
    note      longtext NOT NULL, -- what the opening restored
    PRIMARY KEY (shard, epoch)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
