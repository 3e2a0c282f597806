-- What was about to be sent to a remote balance system that is not idempotent, in case Redis loses its claims. A row without its
-- grant in grants may have been credited there or not. It is removed only when that is certainly not so.
CREATE TABLE intent (
    campaign   TEXT    NOT NULL,
    packet     INTEGER NOT NULL CHECK (packet >= 1),
    user_id    TEXT    NOT NULL,
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    shard      INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    claim      TEXT    NOT NULL, -- the claim in Redis under which it was to be sent
    created_at INTEGER NOT NULL,
    PRIMARY KEY (campaign, packet)
) STRICT, WITHOUT ROWID;
