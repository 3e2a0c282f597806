-- lowest: 5
-- What follows the column seqs of table seal, if the seqs of a campaign take more than one statement.
CREATE TABLE seal_seqs (
    campaign varchar(255) NOT NULL,
    part     integer      NOT NULL,
    seqs     longblob     NOT NULL,
    PRIMARY KEY (campaign, part)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
