-- lowest: 5
-- The last decision to pause, resume or limit something. Redis has it first, and gets it back from here when it has lost it.
CREATE TABLE control (
    kind       TEXT    NOT NULL, -- campaign, sink, rate or sink_campaign
    sink       TEXT    NOT NULL, -- '' for a campaign
    campaign   TEXT    NOT NULL, -- '' for a sink
    setting    TEXT    NOT NULL, -- as Redis has it: paused or open, 1 or 0, grants a second or ''
    decided_by TEXT    NOT NULL,
    why        TEXT    NOT NULL,
    decided_at INTEGER NOT NULL, -- 0: nothing has ever changed
    rev        INTEGER NOT NULL CHECK (rev > 0), -- the decision with the highest one counts
    PRIMARY KEY (kind, sink, campaign)
) STRICT;
