-- lowest: 5
-- sum: 690cbcfa4f59f026ab7da1eadc612ffd5ec8c3c172f0e82ab45f59a4d7debf22
-- index: grants_by_campaign_user ON grants (campaign, user_id)
-- Receipts are looked up within a campaign, so the index begins with it. New grants then touch the few pages of the
-- campaigns that run, however many grants there are, and a database that spreads its tables can spread it with them.
-- A database with grants has got the index before this transaction: see the head, and postgres_index.go.
CREATE INDEX IF NOT EXISTS grants_by_campaign_user ON grants (campaign, user_id);
DROP INDEX grants_by_user;

-- Sealed campaigns whose grants stand in a file; they are deleted here.
CREATE TABLE archive (
    campaign    text COLLATE "C" NOT NULL PRIMARY KEY,
    file        text COLLATE "C" NOT NULL, -- its name, without the folder
    sha256      text COLLATE "C" NOT NULL,
    grants      bigint NOT NULL CHECK (grants >= 0),
    amount      bigint NOT NULL CHECK (amount >= 0),
    archived_at bigint NOT NULL,
    deleted_at  bigint NOT NULL -- 0: some grants may be there still
);

-- The last seq of a shard that an archived campaign had: the ledger has seen it.
CREATE TABLE archive_shard (
    campaign text COLLATE "C" NOT NULL,
    shard    integer NOT NULL,
    last_seq bigint NOT NULL,
    PRIMARY KEY (campaign, shard)
);

CREATE INDEX archive_shard_by_shard ON archive_shard (shard, last_seq);
