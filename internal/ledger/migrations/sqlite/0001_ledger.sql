-- lowest: 1
-- The ledger. Money is integers in minor units, times are unix milliseconds. Rows of grants and transfer never change.
-- The same tables as on PostgreSQL; STRICT, so that an overflow is an error and never becomes a float.

CREATE TABLE campaign (
    id         TEXT PRIMARY KEY,
    spec       TEXT   NOT NULL, -- the canonical JSON that plan_hash covers
    plan_hash  TEXT   NOT NULL,
    seed       BLOB   NOT NULL CHECK (length(seed) = 32), -- secret until it is revealed after the close
    kind       TEXT   NOT NULL,
    currency   TEXT   NOT NULL,
    packets    INTEGER NOT NULL CHECK (packets >= 1),
    funded     INTEGER NOT NULL CHECK (funded >= 0),
    granted    INTEGER NOT NULL DEFAULT 0 CHECK (granted >= 0),
    grants     INTEGER NOT NULL DEFAULT 0 CHECK (grants >= 0), -- how many packets granted is the sum of
    refunded   INTEGER NOT NULL DEFAULT 0 CHECK (refunded >= 0),
    state      TEXT   NOT NULL CHECK (state IN ('funded', 'refunded')),
    created_at INTEGER NOT NULL,
    revealed_at INTEGER NOT NULL DEFAULT 0, -- 0: the seed is secret
    -- The last guard against over-issue: it holds whatever Redis or a worker believes.
    CONSTRAINT campaign_not_over_funded CHECK (granted + refunded <= funded),
    -- The guards of a refund: it leaves nothing, and no seed is published before it.
    CONSTRAINT campaign_refund_is_exact CHECK (state <> 'refunded' OR granted + refunded = funded),
    CONSTRAINT campaign_revealed_late CHECK (revealed_at = 0 OR state = 'refunded')
) STRICT;

-- A sponsor's account is where money comes in from outside: minus what it has funded so far, so it may be negative.
CREATE TABLE account (
    id       TEXT PRIMARY KEY,
    kind     TEXT   NOT NULL CHECK (kind IN ('sponsor', 'pool', 'user')),
    currency TEXT   NOT NULL,
    balance  INTEGER NOT NULL,
    CONSTRAINT account_not_overdrawn CHECK (kind = 'sponsor' OR balance >= 0)
) STRICT, WITHOUT ROWID;

-- No foreign key to campaign: it would cost one look-up a row, and the settler has looked the campaign up already.
CREATE TABLE grants (
    campaign   TEXT NOT NULL,
    packet     INTEGER  NOT NULL CHECK (packet >= 1),
    user_id    TEXT NOT NULL,
    amount     INTEGER  NOT NULL CHECK (amount >= 0),
    shard      INTEGER NOT NULL,
    seq        INTEGER  NOT NULL,
    epoch      INTEGER  NOT NULL,
    request_id TEXT    NOT NULL,
    granted_at INTEGER  NOT NULL,
    batch      INTEGER  NOT NULL, -- the transfer that debited the pool for it
    PRIMARY KEY (campaign, packet)
) STRICT, WITHOUT ROWID;

-- Not unique: after Redis went back in time a seq can come twice, for different packets.
CREATE INDEX grants_by_seq ON grants (shard, seq);

-- Receipts of a campaign that has left Redis.
CREATE INDEX grants_by_user ON grants (user_id, campaign);

CREATE TABLE transfer (
    id         TEXT PRIMARY KEY,
    kind       TEXT   NOT NULL CHECK (kind IN ('funding', 'grants', 'refund')),
    campaign   TEXT NOT NULL REFERENCES campaign (id),
    debit      TEXT NOT NULL REFERENCES account (id),
    credit     TEXT REFERENCES account (id), -- null for kind grants: the grants of the batch are the credits
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    grants     INTEGER NOT NULL CHECK (grants >= 0),
    batch      INTEGER NOT NULL, -- 0 if kind is not grants
    created_at INTEGER NOT NULL
) STRICT;

-- The audit and the refund read the transfers of one campaign.
CREATE INDEX transfer_by_campaign ON transfer (campaign, id);

CREATE TABLE refund (
    campaign   TEXT PRIMARY KEY REFERENCES campaign (id),
    transfer   TEXT NOT NULL REFERENCES transfer (id),
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    packets    INTEGER NOT NULL CHECK (packets >= 0),
    shard      INTEGER NOT NULL, -- shard and seq of the close that the refund is based on; seq 0: Redis had lost the campaign
    close_seq  INTEGER NOT NULL,
    decided_by TEXT    NOT NULL, -- without a close who decided, and why; else empty
    why        TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- What came, and in the has_ columns what the ledger had at that time (has is 0 if it had nothing).
CREATE TABLE quarantine (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    reason         TEXT    NOT NULL,
    campaign       TEXT NOT NULL,
    packet         INTEGER  NOT NULL,
    user_id        TEXT NOT NULL,
    amount         INTEGER  NOT NULL,
    shard          INTEGER NOT NULL,
    seq            INTEGER  NOT NULL,
    epoch          INTEGER  NOT NULL,
    request_id     TEXT    NOT NULL,
    granted_at     INTEGER  NOT NULL,
    entry_id       TEXT    NOT NULL,
    has            INTEGER NOT NULL CHECK (has IN (0, 1)),
    has_user_id    TEXT    NOT NULL,
    has_amount     INTEGER  NOT NULL,
    has_shard      INTEGER NOT NULL,
    has_seq        INTEGER  NOT NULL,
    has_epoch      INTEGER  NOT NULL,
    has_request_id TEXT    NOT NULL,
    has_granted_at INTEGER  NOT NULL,
    created_at    INTEGER  NOT NULL,
    batch          INTEGER NOT NULL, -- of the transaction that wrote it
    resolved_at    INTEGER  NOT NULL DEFAULT 0, -- 0: open
    resolved_by    TEXT    NOT NULL DEFAULT '',
    resolution     TEXT    NOT NULL DEFAULT '',
    UNIQUE (campaign, packet, shard, seq, user_id, amount)
) STRICT;

-- Whether a person has decided about a grant of the campaign.
CREATE INDEX quarantine_decided ON quarantine (campaign, resolved_at);

-- What `hongbao balance` books: credits that its clients ask for over HTTP. Each is a transfer from its client's fund to its account. These
-- tables stand beside the campaigns' ones and share no row with them, so that the conservation of each holds by itself.

CREATE TABLE credit_token (
    hash       TEXT    NOT NULL PRIMARY KEY, -- the SHA-256; the token itself is nowhere
    client     TEXT    NOT NULL,
    scopes     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER NOT NULL DEFAULT 0 -- 0: valid
) STRICT;

-- Where a client's credits in a currency come from: what was put into it, and what was credited of that.
CREATE TABLE credit_fund (
    client   TEXT    NOT NULL,
    currency TEXT    NOT NULL,
    funded   INTEGER NOT NULL,
    credited INTEGER NOT NULL,
    credits  INTEGER NOT NULL,
    PRIMARY KEY (client, currency),
    -- The last guard: no client credits more than it was funded with.
    CONSTRAINT credit_fund_covers CHECK (credited >= 0 AND credited <= funded AND funded <= 9007199254740991)
) STRICT, WITHOUT ROWID;

-- What a person put into a fund. Rows never change.
CREATE TABLE credit_funding (
    client     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    currency   TEXT    NOT NULL,
    amount     INTEGER NOT NULL CHECK (amount >= 1),
    decided_by TEXT    NOT NULL,
    why        TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (client, id)
) STRICT;

CREATE TABLE credit_account (
    id       TEXT    NOT NULL,
    currency TEXT    NOT NULL,
    balance  INTEGER NOT NULL,
    credits  INTEGER NOT NULL, -- how many, and the line number of the last one
    PRIMARY KEY (id, currency),
    CONSTRAINT credit_account_in_range CHECK (balance >= 0 AND balance <= 9007199254740991)
) STRICT, WITHOUT ROWID;

-- Rows never change, but that the transaction that inserts one also gives it its line number.
CREATE TABLE credit (
    client          TEXT    NOT NULL,
    reference       TEXT    NOT NULL,
    idempotency_key TEXT    NOT NULL, -- kept permanently: no retention to run out
    payload_hash    TEXT    NOT NULL, -- SHA-256 of what the key stands for
    account         TEXT    NOT NULL,
    currency        TEXT    NOT NULL,
    line_no         INTEGER, -- 1, 2, 3, ... in the statement of account and currency, under the lock of its row of credit_account
    amount          INTEGER NOT NULL CHECK (amount >= 1),
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (client, reference),
    UNIQUE (client, idempotency_key),
    CONSTRAINT credit_statement UNIQUE (account, currency, line_no)
) STRICT;

-- Codes of coupons: one for each packet of a campaign that has them. Rows never change. A code is a secret.
CREATE TABLE code (
    campaign TEXT    NOT NULL,
    packet   INTEGER NOT NULL CHECK (packet >= 1),
    code     TEXT    NOT NULL,
    PRIMARY KEY (campaign, packet),
    UNIQUE (campaign, code)
) STRICT, WITHOUT ROWID;

-- Credits that may have been asked for at a remote balance system: a row is there before the first request, and until the grant is recorded,
-- or certainly nothing was booked. Until its owner's time is over only he asks; batch is his call.
CREATE TABLE pending (
    campaign   TEXT    NOT NULL,
    packet     INTEGER NOT NULL CHECK (packet >= 1),
    user_id    TEXT    NOT NULL,
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    shard      INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    request_id TEXT    NOT NULL,
    granted_at INTEGER NOT NULL,
    owner      TEXT    NOT NULL,
    batch      INTEGER NOT NULL,
    since      INTEGER NOT NULL, -- the first request can't be older; by this database's clock
    asked_at   INTEGER NOT NULL, -- when its owner began last, by the same clock
    PRIMARY KEY (campaign, packet)
) STRICT, WITHOUT ROWID;

-- Whose ledger this is: one row, written when the deployment is founded.
CREATE TABLE deployment (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    id         TEXT    NOT NULL,
    key_prefix TEXT    NOT NULL,
    shards     INTEGER NOT NULL CHECK (shards >= 1),
    founding   TEXT    NOT NULL CHECK (founding <> '') -- Redis has the same: it tells this ledger from others with the same id
) STRICT;

-- What the ledger knows of each shard in Redis.
CREATE TABLE shard (
    shard INTEGER PRIMARY KEY,
    epoch INTEGER  NOT NULL CHECK (epoch >= 0), -- 0: not founded in Redis yet
    token TEXT    NOT NULL                     -- of the Redis server for which the shard was opened last
) STRICT;

CREATE INDEX quarantine_by_seq ON quarantine (shard, seq);

-- What the grants of a refunded and audited campaign come to: the audit does not read them again. See settlement/seal.go.
CREATE TABLE seal (
    campaign   TEXT PRIMARY KEY REFERENCES campaign (id),
    grants     INTEGER NOT NULL,
    amount     INTEGER NOT NULL,
    users      BLOB    NOT NULL, -- what each group of users was paid
    seqs       BLOB    NOT NULL, -- of the grants, by shard
    created_at INTEGER NOT NULL
) STRICT;

-- Campaigns that the ledger will never have, by a person's word: their grants go to quarantine.
CREATE TABLE disowned (
    campaign    TEXT PRIMARY KEY,
    disowned_by TEXT    NOT NULL,
    why         TEXT    NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;

-- Losses of Redis that a person accepted: the shard was to go on in this epoch all the same. Rows never change.
CREATE TABLE accepted_loss (
    shard       INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    accepted_by TEXT    NOT NULL,
    why         TEXT    NOT NULL,
    lost        TEXT    NOT NULL, -- what Redis, the ledger, the topic and callers knew by then
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (shard, epoch)
) STRICT;
