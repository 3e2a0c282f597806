-- lowest: 5
-- The part of a user's balance that grants of sealed campaigns have paid. Audits read only the accounts whose balance
-- differs from it.
ALTER TABLE account ADD COLUMN base bigint NOT NULL DEFAULT 0;

-- 1 if the balance differs from the base. InnoDB has no index on a part of a table.
ALTER TABLE account ADD COLUMN moved tinyint GENERATED ALWAYS AS (CASE WHEN balance <> base THEN 1 END) VIRTUAL;
ALTER TABLE account ADD KEY account_moved (moved, id);

-- The bases of accounts include the campaign's grants up to this packet; the highest bigint: all grants.
ALTER TABLE seal ADD COLUMN based bigint NOT NULL DEFAULT 0;

-- Where the next audit begins to read a partition of the topic. Each record before next_offset was judged. Each record
-- before first_offset also belongs to a sealed campaign. The last record identifies the topic.
CREATE TABLE topic_base (
    topic        varchar(255) NOT NULL,
    part         integer NOT NULL,
    first_offset bigint NOT NULL,
    next_offset  bigint NOT NULL,
    last_offset  bigint NOT NULL,
    last_event   varchar(255) NOT NULL,
    PRIMARY KEY (topic, part)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Verified files with the grants of sealed campaigns; the ledger still has the grants.
CREATE TABLE archive_copy (
    campaign   varchar(255) NOT NULL PRIMARY KEY,
    file       varchar(255) NOT NULL, -- its name, without the folder
    sha256     varchar(255) NOT NULL,
    grants     bigint NOT NULL CHECK (grants >= 0),
    amount     bigint NOT NULL CHECK (amount >= 0),
    written_at bigint NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
