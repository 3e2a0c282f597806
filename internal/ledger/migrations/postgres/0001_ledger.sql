-- lowest: 1
-- The ledger. Money is integers in minor units, times are unix milliseconds. Rows of grants and transfer never change.
-- Ids are compared byte by byte (COLLATE "C"): the order must not depend on the server's locale.

CREATE TABLE campaign (
    id         text COLLATE "C" PRIMARY KEY,
    spec       text   NOT NULL, -- the canonical JSON that plan_hash covers
    plan_hash  text   NOT NULL,
    seed       bytea  NOT NULL CHECK (length(seed) = 32), -- secret until it is revealed after the close
    kind       text   NOT NULL,
    currency   text   NOT NULL,
    packets    bigint NOT NULL CHECK (packets >= 1),
    funded     bigint NOT NULL CHECK (funded >= 0),
    granted    bigint NOT NULL DEFAULT 0 CHECK (granted >= 0),
    grants     bigint NOT NULL DEFAULT 0 CHECK (grants >= 0), -- how many packets granted is the sum of
    refunded   bigint NOT NULL DEFAULT 0 CHECK (refunded >= 0),
    state      text   NOT NULL CHECK (state IN ('funded', 'refunded')),
    created_at bigint NOT NULL,
    revealed_at bigint NOT NULL DEFAULT 0, -- 0: the seed is secret
    -- The last guard against over-issue: it holds whatever Redis or a worker believes.
    CONSTRAINT campaign_not_over_funded CHECK (granted + refunded <= funded),
    -- The guards of a refund: it leaves nothing, and no seed is published before it.
    CONSTRAINT campaign_refund_is_exact CHECK (state <> 'refunded' OR granted + refunded = funded),
    CONSTRAINT campaign_revealed_late CHECK (revealed_at = 0 OR state = 'refunded')
);

-- A sponsor's account is where money comes in from outside: minus what it has funded so far, so it may be negative.
CREATE TABLE account (
    id       text COLLATE "C" PRIMARY KEY,
    kind     text   NOT NULL CHECK (kind IN ('sponsor', 'pool', 'user')),
    currency text   NOT NULL,
    balance  bigint NOT NULL,
    CONSTRAINT account_not_overdrawn CHECK (kind = 'sponsor' OR balance >= 0)
);

-- No foreign key to campaign: it would cost one look-up a row, and the settler has looked the campaign up already.
CREATE TABLE grants (
    campaign   text COLLATE "C" NOT NULL,
    packet     bigint  NOT NULL CHECK (packet >= 1),
    user_id    text COLLATE "C" NOT NULL,
    amount     bigint  NOT NULL CHECK (amount >= 0),
    shard      integer NOT NULL,
    seq        bigint  NOT NULL,
    epoch      bigint  NOT NULL,
    request_id text    NOT NULL,
    granted_at bigint  NOT NULL,
    batch      bigint  NOT NULL, -- the transfer that debited the pool for it
    PRIMARY KEY (campaign, packet)
);

-- Not unique: after Redis went back in time a seq can come twice, for different packets.
CREATE INDEX grants_by_seq ON grants (shard, seq);

-- Receipts of a campaign that has left Redis.
CREATE INDEX grants_by_user ON grants (user_id, campaign);

CREATE TABLE transfer (
    id         text COLLATE "C" PRIMARY KEY,
    kind       text   NOT NULL CHECK (kind IN ('funding', 'grants', 'refund')),
    campaign   text COLLATE "C" NOT NULL REFERENCES campaign (id),
    debit      text COLLATE "C" NOT NULL REFERENCES account (id),
    credit     text COLLATE "C" REFERENCES account (id), -- null for kind grants: the grants of the batch are the credits
    amount     bigint NOT NULL CHECK (amount >= 0),
    grants     bigint NOT NULL CHECK (grants >= 0),
    batch      bigint NOT NULL, -- 0 if kind is not grants
    created_at bigint NOT NULL
);

-- The audit and the refund read the transfers of one campaign.
CREATE INDEX transfer_by_campaign ON transfer (campaign, id);

CREATE TABLE refund (
    campaign   text COLLATE "C" PRIMARY KEY REFERENCES campaign (id),
    transfer   text COLLATE "C" NOT NULL REFERENCES transfer (id),
    amount     bigint NOT NULL CHECK (amount >= 0),
    packets    bigint NOT NULL CHECK (packets >= 0),
    shard      integer NOT NULL, -- shard and seq of the close that the refund is based on; seq 0: Redis had lost the campaign
    close_seq  bigint NOT NULL,
    decided_by text   NOT NULL, -- without a close who decided, and why; else empty
    why        text   NOT NULL,
    created_at bigint NOT NULL
);

-- What came, and in the has_ columns what the ledger had at that time (has is 0 if it had nothing).
CREATE TABLE quarantine (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reason         text    NOT NULL,
    campaign       text COLLATE "C" NOT NULL,
    packet         bigint  NOT NULL,
    user_id        text COLLATE "C" NOT NULL,
    amount         bigint  NOT NULL,
    shard          integer NOT NULL,
    seq            bigint  NOT NULL,
    epoch          bigint  NOT NULL,
    request_id     text    NOT NULL,
    granted_at     bigint  NOT NULL,
    entry_id       text    NOT NULL,
    has            integer NOT NULL CHECK (has IN (0, 1)),
    has_user_id    text    NOT NULL,
    has_amount     bigint  NOT NULL,
    has_shard      integer NOT NULL,
    has_seq        bigint  NOT NULL,
    has_epoch      bigint  NOT NULL,
    has_request_id text    NOT NULL,
    has_granted_at bigint  NOT NULL,
    created_at    bigint  NOT NULL,
    batch          bigint  NOT NULL, -- of the transaction that wrote it
    resolved_at    bigint  NOT NULL DEFAULT 0, -- 0: open
    resolved_by    text    NOT NULL DEFAULT '',
    resolution     text    NOT NULL DEFAULT '',
    UNIQUE (campaign, packet, shard, seq, user_id, amount)
);

-- Whether a person has decided about a grant of the campaign.
CREATE INDEX quarantine_decided ON quarantine (campaign, resolved_at);

-- What `hongbao balance` books: credits that its clients ask for over HTTP. Each is a transfer from its client's fund to its account. These
-- tables stand beside the campaigns' ones and share no row with them, so that the conservation of each holds by itself.

CREATE TABLE credit_token (
    hash       text COLLATE "C" NOT NULL PRIMARY KEY, -- the SHA-256; the token itself is nowhere
    client     text COLLATE "C" NOT NULL,
    scopes     text             NOT NULL,
    created_at bigint           NOT NULL,
    revoked_at bigint NOT NULL DEFAULT 0 -- 0: valid
);

-- Where a client's credits in a currency come from: what was put into it, and what was credited of that.
CREATE TABLE credit_fund (
    client   text COLLATE "C" NOT NULL,
    currency text COLLATE "C" NOT NULL,
    funded   bigint           NOT NULL,
    credited bigint           NOT NULL,
    credits  bigint           NOT NULL,
    PRIMARY KEY (client, currency),
    -- The last guard: no client credits more than it was funded with.
    CONSTRAINT credit_fund_covers CHECK (credited >= 0 AND credited <= funded AND funded <= 9007199254740991)
);

-- What a person put into a fund. Rows never change.
CREATE TABLE credit_funding (
    client     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    currency   text COLLATE "C" NOT NULL,
    amount     bigint           NOT NULL CHECK (amount >= 1),
    decided_by text             NOT NULL,
    why        text             NOT NULL,
    created_at bigint           NOT NULL,
    PRIMARY KEY (client, id)
);

CREATE TABLE credit_account (
    id       text COLLATE "C" NOT NULL,
    currency text COLLATE "C" NOT NULL,
    balance  bigint           NOT NULL,
    credits  bigint           NOT NULL, -- how many, and the line number of the last one
    PRIMARY KEY (id, currency),
    CONSTRAINT credit_account_in_range CHECK (balance >= 0 AND balance <= 9007199254740991)
);

-- Rows never change, but that the transaction that inserts one also gives it its line number.
CREATE TABLE credit (
    client          text COLLATE "C" NOT NULL,
    reference       text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL, -- kept permanently: no retention to run out
    payload_hash    text             NOT NULL, -- SHA-256 of what the key stands for
    account         text COLLATE "C" NOT NULL,
    currency        text COLLATE "C" NOT NULL,
    line_no         bigint, -- 1, 2, 3, ... in the statement of account and currency, under the lock of its row of credit_account
    amount          bigint           NOT NULL CHECK (amount >= 1),
    created_at      bigint           NOT NULL,
    PRIMARY KEY (client, reference),
    UNIQUE (client, idempotency_key),
    CONSTRAINT credit_statement UNIQUE (account, currency, line_no)
);

-- Codes of coupons: one for each packet of a campaign that has them. Rows never change. A code is a secret.
CREATE TABLE code (
    campaign text COLLATE "C" NOT NULL,
    packet   bigint           NOT NULL CHECK (packet >= 1),
    code     text COLLATE "C" NOT NULL,
    PRIMARY KEY (campaign, packet),
    UNIQUE (campaign, code)
);

-- Credits that may have been asked for at a remote balance system: a row is there before the first request, and until the grant is recorded,
-- or certainly nothing was booked. Until its owner's time is over only he asks; batch is his call.
CREATE TABLE pending (
    campaign   text COLLATE "C" NOT NULL,
    packet     bigint  NOT NULL CHECK (packet >= 1),
    user_id    text COLLATE "C" NOT NULL,
    amount     bigint  NOT NULL CHECK (amount >= 0),
    shard      integer NOT NULL,
    seq        bigint  NOT NULL,
    epoch      bigint  NOT NULL,
    request_id text    NOT NULL,
    granted_at bigint  NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    batch      bigint  NOT NULL,
    since      bigint  NOT NULL, -- the first request can't be older; by this database's clock
    asked_at   bigint  NOT NULL, -- when its owner began last, by the same clock
    PRIMARY KEY (campaign, packet)
);

-- Whose ledger this is: one row, written when the deployment is founded.
CREATE TABLE deployment (
    one        integer PRIMARY KEY CHECK (one = 1),
    id         text    NOT NULL,
    key_prefix text    NOT NULL,
    shards     integer NOT NULL CHECK (shards >= 1),
    founding   text    NOT NULL CHECK (founding <> '') -- Redis has the same: it tells this ledger from others with the same id
);

-- What the ledger knows of each shard in Redis.
CREATE TABLE shard (
    shard integer PRIMARY KEY,
    epoch bigint  NOT NULL CHECK (epoch >= 0), -- 0: not founded in Redis yet
    token text    NOT NULL                     -- of the Redis server for which the shard was opened last
);

CREATE INDEX quarantine_by_seq ON quarantine (shard, seq);

-- What the grants of a refunded and audited campaign come to: the audit does not read them again. See settlement/seal.go.
CREATE TABLE seal (
    campaign   text COLLATE "C" PRIMARY KEY REFERENCES campaign (id),
    grants     bigint NOT NULL,
    amount     bigint NOT NULL,
    users      bytea  NOT NULL, -- what each group of users was paid
    seqs       bytea  NOT NULL, -- of the grants, by shard
    created_at bigint NOT NULL
);

-- Campaigns that the ledger will never have, by a person's word: their grants go to quarantine.
CREATE TABLE disowned (
    campaign    text COLLATE "C" PRIMARY KEY,
    disowned_by text   NOT NULL,
    why         text   NOT NULL,
    created_at  bigint NOT NULL
);

-- Losses of Redis that a person accepted: the shard was to go on in this epoch all the same. Rows never change.
CREATE TABLE accepted_loss (
    shard       integer NOT NULL,
    epoch       bigint  NOT NULL,
    accepted_by text    NOT NULL,
    why         text    NOT NULL,
    lost        text    NOT NULL, -- what Redis, the ledger, the topic and callers knew by then
    created_at  bigint  NOT NULL,
    PRIMARY KEY (shard, epoch)
);
