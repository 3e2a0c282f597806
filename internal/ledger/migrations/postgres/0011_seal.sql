-- lowest: 5
-- What follows the column seqs of table seal, if the seqs of a campaign take more than one statement.
CREATE TABLE seal_seqs (
    campaign text COLLATE "C" NOT NULL,
    part     integer NOT NULL,
    seqs     bytea   NOT NULL,
    PRIMARY KEY (campaign, part)
);
