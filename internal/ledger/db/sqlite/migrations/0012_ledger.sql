-- lowest: 12
-- The whole ledger: the baseline, after which migrations begin. Numbers below its own belong to builds that were never
-- released.
--
-- Money is integers in minor units, times are unix milliseconds. The same tables as on PostgreSQL; STRICT, so that an
-- overflow is an error and never becomes a float.

-- The deployment.

-- Whose ledger this is: one row, written when the deployment is founded.
CREATE TABLE deployment (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    id         TEXT    NOT NULL,
    key_prefix TEXT    NOT NULL,
    shards     INTEGER NOT NULL CHECK (shards >= 1),
    founding   TEXT    NOT NULL CHECK (founding <> '') -- Redis has it, too: other ledgers may have the same id
) STRICT;

-- What the ledger knows of each shard in Redis.
CREATE TABLE shard (
    shard INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL CHECK (epoch >= 0), -- 0: not founded in Redis yet
    token TEXT    NOT NULL -- of the Redis server for which the shard was opened last
) STRICT;

-- Epochs in which a shard went on although Redis had lost the end of the one before. Nothing that an older epoch has
-- above the floor counts from then on.
CREATE TABLE fence (
    shard     INTEGER NOT NULL,
    epoch     INTEGER NOT NULL, -- in which the shard goes on
    floor     INTEGER NOT NULL CHECK (floor >= 0), -- the last seq that Redis had
    token     TEXT    NOT NULL, -- of the Redis server for which the shard goes on
    fenced_at INTEGER NOT NULL,
    opened_at INTEGER, -- null: it may not be open yet
    note      TEXT    NOT NULL, -- what the opening restored
    PRIMARY KEY (shard, epoch)
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

-- The last decision to pause, resume or limit something. Redis has it first, and gets it back from here when it has
-- lost it.
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

-- Campaigns and their packets.

CREATE TABLE campaign (
    id          TEXT    PRIMARY KEY,
    spec        TEXT    NOT NULL, -- the canonical JSON that plan_hash covers
    plan_hash   TEXT    NOT NULL,
    seed        BLOB    NOT NULL CHECK (length(seed) = 32), -- secret until it is revealed after the close
    kind        TEXT    NOT NULL,
    currency    TEXT    NOT NULL,
    packets     INTEGER NOT NULL CHECK (packets >= 1),
    funded      INTEGER NOT NULL CHECK (funded >= 0),
    granted     INTEGER NOT NULL DEFAULT 0 CHECK (granted >= 0),
    grants      INTEGER NOT NULL DEFAULT 0 CHECK (grants >= 0), -- how many packets granted is the sum of
    refunded    INTEGER NOT NULL DEFAULT 0 CHECK (refunded >= 0),
    state       TEXT    NOT NULL CHECK (state IN ('funded', 'refunded')),
    created_at  INTEGER NOT NULL,
    loading_at  INTEGER NOT NULL DEFAULT 0, -- when its loading began; 0: not yet, so it may be cancelled
    closing_at  INTEGER NOT NULL DEFAULT 0, -- not 0: it may be closed in Redis, so nothing is added any more
    revealed_at INTEGER NOT NULL DEFAULT 0, -- 0: the seed is secret
    -- The last guard against over-issue: it holds whatever Redis or a worker believes.
    CONSTRAINT campaign_not_over_funded CHECK (granted + refunded <= funded),
    -- The guards of a refund: it leaves nothing, and no seed is published before it.
    CONSTRAINT campaign_refund_is_exact CHECK (state <> 'refunded' OR granted + refunded = funded),
    CONSTRAINT campaign_revealed_late CHECK (revealed_at = 0 OR state = 'refunded')
) STRICT;

-- A generation of packets that was added to a campaign; the packets of its specification are generation 1. The packets
-- and the money are in the campaign's row as well. But for state and dealt_at rows never change.
CREATE TABLE generation (
    campaign     TEXT    NOT NULL REFERENCES campaign (id),
    generation   INTEGER NOT NULL CHECK (generation BETWEEN 2 AND 64),
    order_id     TEXT    NOT NULL, -- chosen by who ordered it: the same again changes nothing
    expected     INTEGER NOT NULL CHECK (expected >= 0), -- what the campaign was funded with before
    first_packet INTEGER NOT NULL CHECK (first_packet >= 2),
    packets      INTEGER NOT NULL CHECK (packets >= 1),
    total        INTEGER NOT NULL CHECK (total >= 0),
    split        TEXT    NOT NULL, -- JSON, as in the specification
    seed         BLOB    NOT NULL CHECK (length(seed) = 32), -- secret, as the campaign's
    plan_hash    TEXT    NOT NULL,
    state        TEXT    NOT NULL CHECK (state IN ('announced', 'dealt')),
    decided_by   TEXT    NOT NULL,
    why          TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    dealt_at     INTEGER NOT NULL DEFAULT 0, -- 0: not all of its packets are in Redis yet
    PRIMARY KEY (campaign, generation),
    UNIQUE (campaign, order_id),
    UNIQUE (campaign, first_packet),
    CONSTRAINT generation_dealt CHECK ((state = 'dealt') = (dealt_at > 0))
) STRICT;

-- Workers look for those that are not dealt.
CREATE INDEX generation_by_state ON generation (state);

-- Codes of coupons: one for each packet of a campaign that has them. Rows never change. A code is a secret.
CREATE TABLE code (
    campaign TEXT    NOT NULL,
    packet   INTEGER NOT NULL CHECK (packet >= 1),
    code     TEXT    NOT NULL,
    PRIMARY KEY (campaign, packet),
    UNIQUE (campaign, code)
) STRICT, WITHOUT ROWID;

-- Campaigns that the ledger will never have, by a person's word: their grants go to quarantine.
CREATE TABLE disowned (
    campaign    TEXT    PRIMARY KEY,
    disowned_by TEXT    NOT NULL,
    why         TEXT    NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;

-- Money.

-- A sponsor's account is where money comes in from outside: minus what it has funded so far, so it may be negative.
CREATE TABLE account (
    id       TEXT    PRIMARY KEY,
    kind     TEXT    NOT NULL CHECK (kind IN ('sponsor', 'pool', 'user')),
    currency TEXT    NOT NULL,
    balance  INTEGER NOT NULL,
    -- The part of a user's balance that grants of sealed campaigns have paid. Audits get only the accounts whose
    -- balance differs from it.
    base     INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT account_not_overdrawn CHECK (kind = 'sponsor' OR balance >= 0)
) STRICT, WITHOUT ROWID;

-- Rows never change.
CREATE TABLE transfer (
    id         TEXT    PRIMARY KEY,
    kind       TEXT    NOT NULL CHECK (kind IN ('funding', 'grants', 'refund')),
    campaign   TEXT    NOT NULL REFERENCES campaign (id),
    debit      TEXT    NOT NULL REFERENCES account (id),
    credit     TEXT    REFERENCES account (id), -- null if kind is grants: the batch's grants are the credits
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    grants     INTEGER NOT NULL CHECK (grants >= 0),
    batch      INTEGER NOT NULL, -- 0 if kind is not grants
    created_at INTEGER NOT NULL
) STRICT;

-- The audit and the refund read the transfers of one campaign.
CREATE INDEX transfer_by_campaign ON transfer (campaign, id);

-- Rows never change. No foreign key to campaign: it would cost one look-up a row, and the settler has looked the
-- campaign up already.
CREATE TABLE grants (
    campaign   TEXT    NOT NULL,
    packet     INTEGER NOT NULL CHECK (packet >= 1),
    user_id    TEXT    NOT NULL,
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    shard      INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    request_id TEXT    NOT NULL,
    granted_at INTEGER NOT NULL,
    batch      INTEGER NOT NULL, -- the transfer that debited the pool for it
    PRIMARY KEY (campaign, packet)
) STRICT, WITHOUT ROWID;

-- Not unique: after Redis went back in time a seq can come twice, for different packets.
CREATE INDEX grants_by_seq ON grants (shard, seq);

-- Receipts of a campaign that has left Redis. They are looked up within a campaign, so the index begins with it. New
-- grants then touch the few pages of the campaigns that run, however many grants there are, and a database that
-- spreads its tables can spread it with them.
CREATE INDEX grants_by_campaign_user ON grants (campaign, user_id);

-- Credits that may have been asked for at a remote balance system: a row is there before the first request, and until
-- the grant is recorded, or certainly nothing was booked. Until its owner's time is over only the owner asks.
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
    batch      INTEGER NOT NULL, -- the owner's call
    since      INTEGER NOT NULL, -- the first request can't be older; by this database's clock
    asked_at   INTEGER NOT NULL, -- when its owner began last, by the same clock
    PRIMARY KEY (campaign, packet)
) STRICT, WITHOUT ROWID;

-- What came, and in the has_ columns what the ledger had at that time (has is 0 if it had nothing).
CREATE TABLE quarantine (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    reason         TEXT    NOT NULL,
    campaign       TEXT    NOT NULL,
    packet         INTEGER NOT NULL,
    user_id        TEXT    NOT NULL,
    amount         INTEGER NOT NULL,
    shard          INTEGER NOT NULL,
    seq            INTEGER NOT NULL,
    epoch          INTEGER NOT NULL,
    request_id     TEXT    NOT NULL,
    granted_at     INTEGER NOT NULL,
    entry_id       TEXT    NOT NULL,
    has            INTEGER NOT NULL CHECK (has IN (0, 1)),
    has_user_id    TEXT    NOT NULL,
    has_amount     INTEGER NOT NULL,
    has_shard      INTEGER NOT NULL,
    has_seq        INTEGER NOT NULL,
    has_epoch      INTEGER NOT NULL,
    has_request_id TEXT    NOT NULL,
    has_granted_at INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    batch          INTEGER NOT NULL, -- of the transaction that wrote it
    resolved_at    INTEGER NOT NULL DEFAULT 0, -- 0: open
    resolved_by    TEXT    NOT NULL DEFAULT '',
    resolution     TEXT    NOT NULL DEFAULT '',
    UNIQUE (campaign, packet, shard, seq, user_id, amount)
) STRICT;

CREATE INDEX quarantine_by_seq ON quarantine (shard, seq);

-- Whether a person has decided about a grant of the campaign.
CREATE INDEX quarantine_decided ON quarantine (campaign, resolved_at);

CREATE TABLE refund (
    campaign   TEXT    PRIMARY KEY REFERENCES campaign (id),
    transfer   TEXT    NOT NULL REFERENCES transfer (id),
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    packets    INTEGER NOT NULL CHECK (packets >= 0),
    shard      INTEGER NOT NULL, -- shard and seq of the close on the campaign's first shard
    close_seq  INTEGER NOT NULL, -- 0: Redis had lost something of the campaign there
    decided_by TEXT    NOT NULL, -- without a close who decided, and why; else empty
    why        TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- A refund of a campaign on several shards is based on a close of each. That of the first stands in refund itself.
CREATE TABLE refund_close (
    campaign  TEXT    NOT NULL REFERENCES refund (campaign),
    place     INTEGER NOT NULL CHECK (place > 0), -- 1 is the campaign's second shard
    shard     INTEGER NOT NULL,
    close_seq INTEGER NOT NULL, -- 0: Redis had lost something of the campaign there
    PRIMARY KEY (campaign, place)
) STRICT;

CREATE INDEX refund_close_by_seq ON refund_close (shard, close_seq);

-- Audits and archives.

-- What the grants of a refunded and audited campaign come to: the audit does not read them again. See seal.go.
CREATE TABLE seal (
    campaign   TEXT    PRIMARY KEY REFERENCES campaign (id),
    grants     INTEGER NOT NULL,
    amount     INTEGER NOT NULL,
    users      BLOB    NOT NULL, -- what each group of users was paid
    seqs       BLOB    NOT NULL, -- of the grants, by shard; seal_seqs has what follows
    based      INTEGER NOT NULL DEFAULT 0, -- account.base has the grants to this packet; the highest bigint: all
    created_at INTEGER NOT NULL
) STRICT;

-- What follows the column seqs of table seal, if the seqs of a campaign take more than one statement.
CREATE TABLE seal_seqs (
    campaign TEXT    NOT NULL,
    part     INTEGER NOT NULL,
    seqs     BLOB    NOT NULL,
    PRIMARY KEY (campaign, part)
) STRICT;

-- Where the next audit begins to read a partition of the topic. Each record before next_offset was judged. Each record
-- before first_offset also belongs to a sealed campaign. The last record identifies the topic.
CREATE TABLE topic_base (
    topic        TEXT    NOT NULL,
    part         INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    next_offset  INTEGER NOT NULL,
    last_offset  INTEGER NOT NULL,
    last_event   TEXT    NOT NULL,
    PRIMARY KEY (topic, part)
) STRICT;

-- A difference that the audit shows as acknowledged and does not count until a time.
CREATE TABLE acknowledged (
    difference TEXT    PRIMARY KEY, -- SHA-256 of kind to detail
    kind       TEXT    NOT NULL,
    place      TEXT    NOT NULL,
    campaign   TEXT    NOT NULL, -- empty if it is about none
    packet     INTEGER NOT NULL, -- 0 if it is about none
    event      TEXT    NOT NULL, -- empty if it is about none
    detail     TEXT    NOT NULL,
    decided_by TEXT    NOT NULL,
    why        TEXT    NOT NULL,
    until_at   INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- Verified files with the grants of sealed campaigns; the ledger still has the grants.
CREATE TABLE archive_copy (
    campaign   TEXT    NOT NULL PRIMARY KEY,
    file       TEXT    NOT NULL, -- its name, without the folder
    sha256     TEXT    NOT NULL,
    grants     INTEGER NOT NULL CHECK (grants >= 0),
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    written_at INTEGER NOT NULL
) STRICT;

-- Sealed campaigns whose grants stand in a file; they are deleted here.
CREATE TABLE archive (
    campaign    TEXT    NOT NULL PRIMARY KEY,
    file        TEXT    NOT NULL, -- its name, without the folder
    sha256      TEXT    NOT NULL,
    grants      INTEGER NOT NULL CHECK (grants >= 0),
    amount      INTEGER NOT NULL CHECK (amount >= 0),
    archived_at INTEGER NOT NULL,
    deleted_at  INTEGER NOT NULL -- 0: some grants may be there still
) STRICT;

-- The last seq of a shard that an archived campaign had: the ledger has seen it.
CREATE TABLE archive_shard (
    campaign TEXT    NOT NULL,
    shard    INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (campaign, shard)
) STRICT;

CREATE INDEX archive_shard_by_shard ON archive_shard (shard, last_seq);

-- Who may do what by API, and who did what. Secrets are nowhere: only their SHA-256 is.

CREATE TABLE api_key (
    id            TEXT    PRIMARY KEY,
    role          TEXT    NOT NULL,
    campaigns     TEXT    NOT NULL, -- ids or prefix*, by spaces; empty: all, and the whole deployment
    sponsors      TEXT    NOT NULL DEFAULT '', -- whose money it may spend, by spaces; empty: any
    largest_total INTEGER NOT NULL DEFAULT 0, -- of one campaign that it funds, with its top-ups; 0: any
    client        TEXT    NOT NULL DEFAULT '', -- of `hongbao balance`, to which it belongs; empty: none
    hash          TEXT    NOT NULL, -- the SHA-256 of the secret
    old_hash      TEXT    NOT NULL DEFAULT '', -- of the secret before the last rotation, good until old_until
    old_until     INTEGER NOT NULL DEFAULT 0,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL, -- 0: never
    revoked_at    INTEGER NOT NULL DEFAULT 0, -- 0: not revoked
    note          TEXT    NOT NULL
) STRICT;

-- Sessions of the console. The id of a session is in its browser only.
CREATE TABLE console_session (
    hash        TEXT    PRIMARY KEY, -- the SHA-256 of the id
    key_id      TEXT    NOT NULL REFERENCES api_key (id),
    secret_hash TEXT    NOT NULL, -- of the secret that began it: it ends with that
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT;

CREATE INDEX console_session_by_key ON console_session (key_id, created_at);

-- What a caller asked for under an Idempotency-Key. The answer is written by the transaction of the effect.
CREATE TABLE idempotency (
    caller          TEXT    NOT NULL,
    idempotency_key TEXT    NOT NULL,
    body_hash       TEXT    NOT NULL, -- SHA-256 of what the key stands for
    claim           TEXT    NOT NULL, -- drawn by the call that works on it
    claimed_at      INTEGER NOT NULL, -- by this database's clock
    answer          TEXT    NOT NULL, -- empty: not there yet
    PRIMARY KEY (caller, idempotency_key)
) STRICT;

CREATE INDEX idempotency_by_time ON idempotency (claimed_at);

-- Who did what. Rows never change.
CREATE TABLE journal (
    id         TEXT    PRIMARY KEY, -- drawn by who writes it: the same entry sent again changes nothing
    at         INTEGER NOT NULL,
    who        TEXT    NOT NULL, -- key:ID, or cli:USER@HOST
    action     TEXT    NOT NULL,
    campaign   TEXT    NOT NULL, -- empty if it is about none
    sink       TEXT    NOT NULL, -- empty if it is about none
    outcome    TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    details    TEXT    NOT NULL -- a JSON object
) STRICT;

CREATE INDEX journal_by_time ON journal (at, id);

CREATE INDEX journal_by_campaign ON journal (campaign, at, id);

CREATE INDEX journal_by_who ON journal (who, at, id);

-- What `hongbao balance` books: credits that its clients ask for over HTTP. Each is a transfer from its client's fund
-- to its account. These tables stand beside the campaigns' ones and share no row with them, so that the conservation
-- of each holds by itself.

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
    -- 1, 2, 3, ... in the statement of account and currency, under the lock of its row of credit_account
    line_no         INTEGER,
    amount          INTEGER NOT NULL CHECK (amount >= 1),
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (client, reference),
    UNIQUE (client, idempotency_key),
    CONSTRAINT credit_statement UNIQUE (account, currency, line_no)
) STRICT;
