-- lowest: 5
-- Campaigns that are cancelled before they are loaded, differences of the audit that a person acknowledged, and what an API
-- key may spend.

-- When the campaign's loading began; 0: not yet, so it may be cancelled. 1: an older build created it and does not say.
ALTER TABLE campaign ADD COLUMN loading_at bigint NOT NULL DEFAULT 1;

-- Sponsors whose money the key may spend, with spaces between them; empty: any.
ALTER TABLE api_key ADD COLUMN sponsors text NOT NULL DEFAULT '';

-- The largest total of one campaign that the key may fund, top-ups included, in minor units; 0: any.
ALTER TABLE api_key ADD COLUMN largest_total bigint NOT NULL DEFAULT 0;

-- A difference that the audit shows as acknowledged and does not count until a time.
CREATE TABLE acknowledged (
    difference text COLLATE "C" PRIMARY KEY, -- SHA-256 of kind to detail
    kind       text NOT NULL,
    place      text NOT NULL,
    campaign   text NOT NULL, -- empty if it is about none
    packet     bigint NOT NULL, -- 0 if it is about none
    event      text NOT NULL, -- empty if it is about none
    detail     text NOT NULL,
    decided_by text NOT NULL,
    why        text NOT NULL,
    until_at   bigint NOT NULL,
    created_at bigint NOT NULL
);
