-- lowest: 5
-- Campaigns that are cancelled before they are loaded, differences of the audit that a person acknowledged, and what an API
-- key may spend.

-- When the campaign's loading began; 0: not yet, so it may be cancelled. 1: an older build created it and does not say.
ALTER TABLE campaign ADD COLUMN loading_at INTEGER NOT NULL DEFAULT 1;

-- Sponsors whose money the key may spend, with spaces between them; empty: any.
ALTER TABLE api_key ADD COLUMN sponsors TEXT NOT NULL DEFAULT '';

-- The largest total of one campaign that the key may fund, top-ups included, in minor units; 0: any.
ALTER TABLE api_key ADD COLUMN largest_total INTEGER NOT NULL DEFAULT 0;

-- A difference that the audit shows as acknowledged and does not count until a time.
CREATE TABLE acknowledged (
    difference TEXT PRIMARY KEY, -- SHA-256 of kind to detail
    kind       TEXT NOT NULL,
    place      TEXT NOT NULL,
    campaign   TEXT NOT NULL, -- empty if it is about none
    packet     INTEGER NOT NULL, -- 0 if it is about none
    event      TEXT NOT NULL, -- empty if it is about none
    detail     TEXT NOT NULL,
    decided_by TEXT NOT NULL,
    why        TEXT NOT NULL,
    until_at   INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
