-- lowest: 4
-- What sponsors add to campaigns. An older build would put the packets that are added into quarantine.

-- Each statement must fail when it runs a second time: see 0001_ledger.sql.

-- Not 0: from then on the campaign may be closed in Redis, so nothing is added any more.
ALTER TABLE campaign ADD COLUMN closing_at bigint NOT NULL DEFAULT 0;

-- A generation of packets that was added to a campaign; the packets of its specification are generation 1. The packets
-- and the money are in the campaign's row as well. But for state and dealt_at rows never change.
CREATE TABLE generation (
    campaign     varchar(255)   NOT NULL,
    generation   integer        NOT NULL CHECK (generation BETWEEN 2 AND 64),
    order_id     varchar(255)   NOT NULL, -- chosen by who ordered it: the same again changes nothing
    expected     bigint         NOT NULL CHECK (expected >= 0), -- what the campaign was funded with before
    first_packet bigint         NOT NULL CHECK (first_packet >= 2),
    packets      bigint         NOT NULL CHECK (packets >= 1),
    total        bigint         NOT NULL CHECK (total >= 0),
    split        longtext       NOT NULL, -- JSON, as in the specification
    seed         varbinary(255) NOT NULL CHECK (length(seed) = 32), -- secret, as the campaign's
    plan_hash    varchar(255)   NOT NULL,
    state        varchar(255)   NOT NULL CHECK (state IN ('announced', 'dealt')),
    decided_by   varchar(1024)  NOT NULL,
    why          varchar(1024)  NOT NULL,
    created_at   bigint         NOT NULL,
    dealt_at     bigint         NOT NULL DEFAULT 0, -- 0: not all of its packets are in Redis yet
    PRIMARY KEY (campaign, generation),
    UNIQUE (campaign, order_id),
    UNIQUE (campaign, first_packet),
    CONSTRAINT generation_dealt CHECK ((state = 'dealt') = (dealt_at > 0)),
    CONSTRAINT generation_campaign FOREIGN KEY (campaign) REFERENCES campaign (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Workers look for those that are not dealt.
CREATE INDEX generation_by_state ON generation (state);
