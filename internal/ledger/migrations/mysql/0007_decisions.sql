-- lowest: 5
-- Campaigns that are cancelled before they are loaded, differences of the audit that a person acknowledged, and what an API
-- key may spend.

-- When the campaign's loading began; 0: not yet, so it may be cancelled. 1: an older build created it and does not say.
ALTER TABLE campaign ADD COLUMN loading_at bigint NOT NULL DEFAULT 1;

-- Sponsors whose money the key may spend, with spaces between them; empty: any.
ALTER TABLE api_key ADD COLUMN sponsors longtext NOT NULL DEFAULT ('');

-- The largest total of one campaign that the key may fund, top-ups included, in minor units; 0: any.
ALTER TABLE api_key ADD COLUMN largest_total bigint NOT NULL DEFAULT 0;

-- A difference that the audit shows as acknowledged and does not count until a time.
CREATE TABLE acknowledged (
    difference varchar(255) NOT NULL PRIMARY KEY, -- SHA-256 of kind to detail
    kind       varchar(255) NOT NULL,
    place      varchar(255) NOT NULL,
    campaign   varchar(255) NOT NULL, -- empty if it is about none
    packet     bigint NOT NULL, -- 0 if it is about none
    event      varchar(255) NOT NULL, -- empty if it is about none
    detail     longtext NOT NULL,
    decided_by varchar(1024) NOT NULL,
    why        varchar(1024) NOT NULL,
    until_at   bigint NOT NULL,
    created_at bigint NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
