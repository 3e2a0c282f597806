-- Codes of coupons: one for each packet of a campaign that has them. Rows never change. A code is a secret.
CREATE TABLE code (
    campaign TEXT    NOT NULL,
    packet   INTEGER NOT NULL CHECK (packet >= 1),
    code     TEXT    NOT NULL,
    PRIMARY KEY (campaign, packet),
    UNIQUE (campaign, code)
) STRICT, WITHOUT ROWID;
