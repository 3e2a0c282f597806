-- Codes of coupons: one for each packet of a campaign that has them. Rows never change. A code is a secret.
CREATE TABLE code (
    campaign text COLLATE "C" NOT NULL,
    packet   bigint           NOT NULL CHECK (packet >= 1),
    code     text COLLATE "C" NOT NULL,
    PRIMARY KEY (campaign, packet),
    UNIQUE (campaign, code)
);
