-- lowest: 5
-- The part of a user's balance that grants of sealed campaigns have paid. Audits read only the accounts whose balance
-- differs from it.
ALTER TABLE account ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
CREATE INDEX account_moved ON account (id) WHERE balance <> base;

-- The bases of accounts include the campaign's grants up to this packet; the highest bigint: all grants.
ALTER TABLE seal ADD COLUMN based INTEGER NOT NULL DEFAULT 0;

-- Where the next audit begins to read a partition of the topic. Each record before next_offset was judged. Each record
-- before first_offset also belongs to a sealed campaign. The last record identifies the topic.
CREATE TABLE topic_base (
    topic        TEXT NOT NULL,
    part         INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    next_offset  INTEGER NOT NULL,
    last_offset  INTEGER NOT NULL,
    last_event   TEXT NOT NULL,
    PRIMARY KEY (topic, part)
) STRICT;

-- Verified files with the grants of sealed campaigns; the ledger still has the grants.
CREATE TABLE archive_copy (
    campaign   TEXT NOT NULL PRIMARY KEY,
    file       TEXT NOT NULL, -- its name, without the folder
    sha256     TEXT NOT NULL,
    grants     INTEGER NOT NULL CHECK (grants >= 0),
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    written_at INTEGER NOT NULL
) STRICT;
