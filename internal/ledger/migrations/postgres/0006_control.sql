-- lowest: 5
-- The last decision to pause, resume or limit something. Redis has it first, and gets it back from here when it has lost it.
CREATE TABLE control (
    kind       text COLLATE "C" NOT NULL, -- campaign, sink, rate or sink_campaign
    sink       text COLLATE "C" NOT NULL, -- '' for a campaign
    campaign   text COLLATE "C" NOT NULL, -- '' for a sink
    setting    text   NOT NULL, -- as Redis has it: paused or open, 1 or 0, grants a second or ''
    decided_by text   NOT NULL,
    why        text   NOT NULL,
    decided_at bigint NOT NULL, -- 0: nothing has ever changed
    rev        bigint NOT NULL CHECK (rev > 0), -- the decision with the highest one counts
    PRIMARY KEY (kind, sink, campaign)
);
