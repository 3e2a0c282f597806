-- lowest: 4
-- What sponsors add to campaigns. An older build would put the packets that are added into quarantine.

-- Not 0: from then on the campaign may be closed in Redis, so nothing is added any more.
ALTER TABLE campaign ADD COLUMN closing_at bigint NOT NULL DEFAULT 0;

-- A generation of packets that was added to a campaign; the packets of its specification are generation 1. The packets
-- and the money are in the campaign's row as well. But for state and dealt_at rows never change.
CREATE TABLE generation (
    campaign     text COLLATE "C" NOT NULL REFERENCES campaign (id),
    generation   integer          NOT NULL CHECK (generation BETWEEN 2 AND 64),
    order_id     text COLLATE "C" NOT NULL, -- chosen by who ordered it: the same again changes nothing
    expected     bigint           NOT NULL CHECK (expected >= 0), -- what the campaign was funded with before
    first_packet bigint           NOT NULL CHECK (first_packet >= 2),
    packets      bigint           NOT NULL CHECK (packets >= 1),
    total        bigint           NOT NULL CHECK (total >= 0),
    split        text             NOT NULL, -- JSON, as in the specification
    seed         bytea            NOT NULL CHECK (length(seed) = 32), -- secret, as the campaign's
    plan_hash    text             NOT NULL,
    state        text             NOT NULL CHECK (state IN ('announced', 'dealt')),
    decided_by   text             NOT NULL,
    why          text             NOT NULL,
    created_at   bigint           NOT NULL,
    dealt_at     bigint           NOT NULL DEFAULT 0, -- 0: not all of its packets are in Redis yet
    PRIMARY KEY (campaign, generation),
    UNIQUE (campaign, order_id),
    UNIQUE (campaign, first_packet),
    CONSTRAINT generation_dealt CHECK ((state = 'dealt') = (dealt_at > 0))
);

-- Workers look for those that are not dealt.
CREATE INDEX generation_by_state ON generation (state);
