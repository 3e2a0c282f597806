-- lowest: 5
-- The last decision to pause, resume or limit something. Redis has it first, and gets it back from here when it has lost it.
CREATE TABLE control (
    kind       varchar(32)   NOT NULL, -- campaign, sink, rate or sink_campaign
    sink       varchar(255)  NOT NULL, -- '' for a campaign
    campaign   varchar(255)  NOT NULL, -- '' for a sink
    setting    varchar(255)  NOT NULL, -- as Redis has it: paused or open, 1 or 0, grants a second or ''
    decided_by varchar(1024) NOT NULL,
    why        varchar(1024) NOT NULL,
    decided_at bigint        NOT NULL, -- 0: nothing has ever changed
    rev        bigint        NOT NULL CHECK (rev > 0), -- the decision with the highest one counts
    PRIMARY KEY (kind, sink, campaign)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
