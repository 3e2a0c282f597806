-- lowest: 5
-- column: account ADD COLUMN IF NOT EXISTS base bigint NOT NULL DEFAULT 0
-- index: account_moved ON account (id) WHERE balance <> base
-- The part of a user's balance that grants of sealed campaigns have paid. Audits read only the accounts whose balance
-- differs from it. A database with accounts has got column and index before this transaction: see postgres_index.go.
ALTER TABLE account ADD COLUMN IF NOT EXISTS base bigint NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS account_moved ON account (id) WHERE balance <> base;

-- The bases of accounts include the campaign's grants up to this packet; the highest bigint: all grants.
ALTER TABLE seal ADD COLUMN based bigint NOT NULL DEFAULT 0;

-- Where the next audit begins to read a partition of the topic. Each record before next_offset was judged. Each record
-- before first_offset also belongs to a sealed campaign. The last record identifies the topic.
CREATE TABLE topic_base (
    topic        text COLLATE "C" NOT NULL,
    part         integer NOT NULL,
    first_offset bigint NOT NULL,
    next_offset  bigint NOT NULL,
    last_offset  bigint NOT NULL,
    last_event   text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, part)
);

-- Verified files with the grants of sealed campaigns; the ledger still has the grants.
CREATE TABLE archive_copy (
    campaign   text COLLATE "C" NOT NULL PRIMARY KEY,
    file       text COLLATE "C" NOT NULL, -- its name, without the folder
    sha256     text COLLATE "C" NOT NULL,
    grants     bigint NOT NULL CHECK (grants >= 0),
    amount     bigint NOT NULL CHECK (amount >= 0),
    written_at bigint NOT NULL
);
