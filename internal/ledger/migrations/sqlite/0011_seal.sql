-- lowest: 5
-- What follows the column seqs of table seal, if the seqs of a campaign take more than one statement.
CREATE TABLE seal_seqs (
    campaign TEXT    NOT NULL,
    part     INTEGER NOT NULL,
    seqs     BLOB    NOT NULL,
    PRIMARY KEY (campaign, part)
) STRICT;
