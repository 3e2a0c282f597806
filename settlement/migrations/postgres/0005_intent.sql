-- What was about to be sent to a remote balance system that is not idempotent, in case Redis loses its claims. A row without its
-- grant in grants may have been credited there or not. It is removed only when that is certainly not so.
CREATE TABLE intent (
    campaign   text COLLATE "C" NOT NULL,
    packet     bigint  NOT NULL CHECK (packet >= 1),
    user_id    text COLLATE "C" NOT NULL,
    amount     bigint  NOT NULL CHECK (amount >= 0),
    shard      integer NOT NULL,
    seq        bigint  NOT NULL,
    claim      text COLLATE "C" NOT NULL, -- the claim in Redis under which it was to be sent
    created_at bigint  NOT NULL,
    PRIMARY KEY (campaign, packet)
);
