-- Codes of coupons: one for each packet of a campaign that has them. Rows never change. A code is a secret.
CREATE TABLE code (
    campaign varchar(255) NOT NULL,
    packet   bigint       NOT NULL CHECK (packet >= 1),
    code     varchar(255) NOT NULL,
    PRIMARY KEY (campaign, packet),
    UNIQUE KEY code_once (campaign, code)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
