-- lowest: 12
-- The whole ledger: the baseline, after which migrations begin. Numbers below its own belong to builds that were never
-- released.
--
-- Money is integers in minor units, times are unix milliseconds. Ids are compared byte by byte (COLLATE "C"): the
-- order must not depend on the server's locale.

-- The deployment.

-- Whose ledger this is: one row, written when the deployment is founded.
CREATE TABLE deployment (
    one        integer PRIMARY KEY CHECK (one = 1),
    id         text    NOT NULL,
    key_prefix text    NOT NULL,
    shards     integer NOT NULL CHECK (shards >= 1),
    founding   text    NOT NULL CHECK (founding <> '') -- Redis has it, too: other ledgers may have the same id
);

-- What the ledger knows of each shard in Redis.
CREATE TABLE shard (
    shard integer PRIMARY KEY,
    epoch bigint  NOT NULL CHECK (epoch >= 0), -- 0: not founded in Redis yet
    token text    NOT NULL -- of the Redis server for which the shard was opened last
);

-- Epochs in which a shard went on although Redis had lost the end of the one before. Nothing that an older epoch has
-- above the floor counts from then on.
CREATE TABLE fence (
    shard     integer NOT NULL,
    epoch     bigint  NOT NULL, -- in which the shard goes on
    floor     bigint  NOT NULL CHECK (floor >= 0), -- the last seq that Redis had
    token     text    NOT NULL, -- of the Redis server for which the shard goes on
    fenced_at bigint  NOT NULL,
    opened_at bigint, -- null: it may not be open yet
    note      text    NOT NULL, -- what the opening restored
    PRIMARY KEY (shard, epoch)
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

-- The last decision to pause, resume or limit something. Redis has it first, and gets it back from here when it has
-- lost it.
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

-- Campaigns and their packets.

CREATE TABLE campaign (
    id          text COLLATE "C" PRIMARY KEY,
    spec        text   NOT NULL, -- the canonical JSON that plan_hash covers
    plan_hash   text   NOT NULL,
    seed        bytea  NOT NULL CHECK (length(seed) = 32), -- secret until it is revealed after the close
    kind        text   NOT NULL,
    currency    text   NOT NULL,
    packets     bigint NOT NULL CHECK (packets >= 1),
    funded      bigint NOT NULL CHECK (funded >= 0),
    granted     bigint NOT NULL DEFAULT 0 CHECK (granted >= 0),
    grants      bigint NOT NULL DEFAULT 0 CHECK (grants >= 0), -- how many packets granted is the sum of
    refunded    bigint NOT NULL DEFAULT 0 CHECK (refunded >= 0),
    state       text   NOT NULL CHECK (state IN ('funded', 'refunded')),
    created_at  bigint NOT NULL,
    loading_at  bigint NOT NULL DEFAULT 0, -- when its loading began; 0: not yet, so it may be cancelled
    closing_at  bigint NOT NULL DEFAULT 0, -- not 0: it may be closed in Redis, so nothing is added any more
    revealed_at bigint NOT NULL DEFAULT 0, -- 0: the seed is secret
    -- The last guard against over-issue: it holds whatever Redis or a worker believes.
    CONSTRAINT campaign_not_over_funded CHECK (granted + refunded <= funded),
    -- The guards of a refund: it leaves nothing, and no seed is published before it.
    CONSTRAINT campaign_refund_is_exact CHECK (state <> 'refunded' OR granted + refunded = funded),
    CONSTRAINT campaign_revealed_late CHECK (revealed_at = 0 OR state = 'refunded')
);

-- A generation of packets that was added to a campaign; the packets of its specification are generation 1. The packets
-- and the money are in the campaign's row as well. But for state and dealt_at rows never change.
CREATE TABLE generation (
    campaign     text COLLATE "C" NOT NULL REFERENCES campaign (id),
    generation   integer          NOT NULL CHECK (generation BETWEEN 2 AND 64),
    order_id     text COLLATE "C" NOT NULL, -- chosen by who ordered it: the same again changes nothing
    expected     bigint           NOT NULL CHECK (expected >= 0), -- what the campaign was funded with before
    first_packet bigint           NOT NULL CHECK (first_packet >= 2),
    packets      bigint           NOT NULL CHECK (packets >= 1),
    total        bigint           NOT NULL CHECK (total >= 0),
    split        text             NOT NULL, -- JSON, as in the specification
    seed         bytea            NOT NULL CHECK (length(seed) = 32), -- secret, as the campaign's
    plan_hash    text             NOT NULL,
    state        text             NOT NULL CHECK (state IN ('announced', 'dealt')),
    decided_by   text             NOT NULL,
    why          text             NOT NULL,
    created_at   bigint           NOT NULL,
    dealt_at     bigint           NOT NULL DEFAULT 0, -- 0: not all of its packets are in Redis yet
    PRIMARY KEY (campaign, generation),
    UNIQUE (campaign, order_id),
    UNIQUE (campaign, first_packet),
    CONSTRAINT generation_dealt CHECK ((state = 'dealt') = (dealt_at > 0))
);

-- Workers look for those that are not dealt.
CREATE INDEX generation_by_state ON generation (state);

-- Codes of coupons: one for each packet of a campaign that has them. Rows never change. A code is a secret.
CREATE TABLE code (
    campaign text COLLATE "C" NOT NULL,
    packet   bigint           NOT NULL CHECK (packet >= 1),
    code     text COLLATE "C" NOT NULL,
    PRIMARY KEY (campaign, packet),
    UNIQUE (campaign, code)
);

-- Campaigns that the ledger will never have, by a person's word: their grants go to quarantine.
CREATE TABLE disowned (
    campaign    text COLLATE "C" PRIMARY KEY,
    disowned_by text   NOT NULL,
    why         text   NOT NULL,
    created_at  bigint NOT NULL
);

-- Money.

-- A sponsor's account is where money comes in from outside: minus what it has funded so far, so it may be negative.
CREATE TABLE account (
    id       text COLLATE "C" PRIMARY KEY,
    kind     text   NOT NULL CHECK (kind IN ('sponsor', 'pool', 'user')),
    currency text   NOT NULL,
    balance  bigint NOT NULL,
    -- The part of a user's balance that grants of sealed campaigns have paid. Audits get only the accounts whose
    -- balance differs from it.
    base     bigint NOT NULL DEFAULT 0,
    CONSTRAINT account_not_overdrawn CHECK (kind = 'sponsor' OR balance >= 0)
);

-- Rows never change.
CREATE TABLE transfer (
    id         text COLLATE "C" PRIMARY KEY,
    kind       text   NOT NULL CHECK (kind IN ('funding', 'grants', 'refund')),
    campaign   text COLLATE "C" NOT NULL REFERENCES campaign (id),
    debit      text COLLATE "C" NOT NULL REFERENCES account (id),
    credit     text COLLATE "C" REFERENCES account (id), -- null if kind is grants: the batch's grants are the credits
    amount     bigint NOT NULL CHECK (amount >= 0),
    grants     bigint NOT NULL CHECK (grants >= 0),
    batch      bigint NOT NULL, -- 0 if kind is not grants
    created_at bigint NOT NULL
);

-- The audit and the refund read the transfers of one campaign.
CREATE INDEX transfer_by_campaign ON transfer (campaign, id);

-- Rows never change. No foreign key to campaign: it would cost one look-up a row, and the settler has looked the
-- campaign up already.
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

-- Receipts of a campaign that has left Redis. They are looked up within a campaign, so the index begins with it. New
-- grants then touch the few pages of the campaigns that run, however many grants there are, and a database that
-- spreads its tables can spread it with them.
CREATE INDEX grants_by_campaign_user ON grants (campaign, user_id);

-- Credits that may have been asked for at a remote balance system: a row is there before the first request, and until
-- the grant is recorded, or certainly nothing was booked. Until its owner's time is over only the owner asks.
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
    batch      bigint  NOT NULL, -- the owner's call
    since      bigint  NOT NULL, -- the first request can't be older; by this database's clock
    asked_at   bigint  NOT NULL, -- when its owner began last, by the same clock
    PRIMARY KEY (campaign, packet)
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
    created_at     bigint  NOT NULL,
    batch          bigint  NOT NULL, -- of the transaction that wrote it
    resolved_at    bigint  NOT NULL DEFAULT 0, -- 0: open
    resolved_by    text    NOT NULL DEFAULT '',
    resolution     text    NOT NULL DEFAULT '',
    UNIQUE (campaign, packet, shard, seq, user_id, amount)
);

CREATE INDEX quarantine_by_seq ON quarantine (shard, seq);

-- Whether a person has decided about a grant of the campaign.
CREATE INDEX quarantine_decided ON quarantine (campaign, resolved_at);

CREATE TABLE refund (
    campaign   text COLLATE "C" PRIMARY KEY REFERENCES campaign (id),
    transfer   text COLLATE "C" NOT NULL REFERENCES transfer (id),
    amount     bigint  NOT NULL CHECK (amount >= 0),
    packets    bigint  NOT NULL CHECK (packets >= 0),
    shard      integer NOT NULL, -- shard and seq of the close on the campaign's first shard
    close_seq  bigint  NOT NULL, -- 0: Redis had lost something of the campaign there
    decided_by text    NOT NULL, -- without a close who decided, and why; else empty
    why        text    NOT NULL,
    created_at bigint  NOT NULL
);

-- A refund of a campaign on several shards is based on a close of each. That of the first stands in refund itself.
CREATE TABLE refund_close (
    campaign  text COLLATE "C" NOT NULL REFERENCES refund (campaign),
    place     integer NOT NULL CHECK (place > 0), -- 1 is the campaign's second shard
    shard     integer NOT NULL,
    close_seq bigint  NOT NULL, -- 0: Redis had lost something of the campaign there
    PRIMARY KEY (campaign, place)
);

CREATE INDEX refund_close_by_seq ON refund_close (shard, close_seq);

-- Audits and archives.

-- What the grants of a refunded and audited campaign come to: the audit does not read them again. See seal.go.
CREATE TABLE seal (
    campaign   text COLLATE "C" PRIMARY KEY REFERENCES campaign (id),
    grants     bigint NOT NULL,
    amount     bigint NOT NULL,
    users      bytea  NOT NULL, -- what each group of users was paid
    seqs       bytea  NOT NULL, -- of the grants, by shard; seal_seqs has what follows
    based      bigint NOT NULL DEFAULT 0, -- account.base has the grants to this packet; the highest bigint: all
    created_at bigint NOT NULL
);

-- What follows the column seqs of table seal, if the seqs of a campaign take more than one statement.
CREATE TABLE seal_seqs (
    campaign text COLLATE "C" NOT NULL,
    part     integer NOT NULL,
    seqs     bytea   NOT NULL,
    PRIMARY KEY (campaign, part)
);

-- Where the next audit begins to read a partition of the topic. Each record before next_offset was judged. Each record
-- before first_offset also belongs to a sealed campaign. The last record identifies the topic.
CREATE TABLE topic_base (
    topic        text COLLATE "C" NOT NULL,
    part         integer NOT NULL,
    first_offset bigint  NOT NULL,
    next_offset  bigint  NOT NULL,
    last_offset  bigint  NOT NULL,
    last_event   text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, part)
);

-- A difference that the audit shows as acknowledged and does not count until a time.
CREATE TABLE acknowledged (
    difference text COLLATE "C" PRIMARY KEY, -- SHA-256 of kind to detail
    kind       text   NOT NULL,
    place      text   NOT NULL,
    campaign   text   NOT NULL, -- empty if it is about none
    packet     bigint NOT NULL, -- 0 if it is about none
    event      text   NOT NULL, -- empty if it is about none
    detail     text   NOT NULL,
    decided_by text   NOT NULL,
    why        text   NOT NULL,
    until_at   bigint NOT NULL,
    created_at bigint NOT NULL
);

-- Verified files with the grants of sealed campaigns; the ledger still has the grants.
CREATE TABLE archive_copy (
    campaign   text COLLATE "C" NOT NULL PRIMARY KEY,
    file       text COLLATE "C" NOT NULL, -- its name, without the folder
    sha256     text COLLATE "C" NOT NULL,
    grants     bigint NOT NULL CHECK (grants >= 0),
    amount     bigint NOT NULL CHECK (amount >= 0),
    written_at bigint NOT NULL
);

-- Sealed campaigns whose grants stand in a file; they are deleted here.
CREATE TABLE archive (
    campaign    text COLLATE "C" NOT NULL PRIMARY KEY,
    file        text COLLATE "C" NOT NULL, -- its name, without the folder
    sha256      text COLLATE "C" NOT NULL,
    grants      bigint NOT NULL CHECK (grants >= 0),
    amount      bigint NOT NULL CHECK (amount >= 0),
    archived_at bigint NOT NULL,
    deleted_at  bigint NOT NULL -- 0: some grants may be there still
);

-- The last seq of a shard that an archived campaign had: the ledger has seen it.
CREATE TABLE archive_shard (
    campaign text COLLATE "C" NOT NULL,
    shard    integer NOT NULL,
    last_seq bigint  NOT NULL,
    PRIMARY KEY (campaign, shard)
);

CREATE INDEX archive_shard_by_shard ON archive_shard (shard, last_seq);

-- Who may do what by API, and who did what. Secrets are nowhere: only their SHA-256 is.

CREATE TABLE api_key (
    id            text COLLATE "C" PRIMARY KEY,
    role          text   NOT NULL,
    campaigns     text   NOT NULL, -- ids or prefix*, by spaces; empty: all, and the whole deployment
    sponsors      text   NOT NULL DEFAULT '', -- whose money it may spend, by spaces; empty: any
    largest_total bigint NOT NULL DEFAULT 0, -- of one campaign that it funds, with its top-ups; 0: any
    client        text   NOT NULL DEFAULT '', -- of `hongbao balance`, to which it belongs; empty: none
    hash          text   NOT NULL, -- the SHA-256 of the secret
    old_hash      text   NOT NULL DEFAULT '', -- of the secret before the last rotation, good until old_until
    old_until     bigint NOT NULL DEFAULT 0,
    created_at    bigint NOT NULL,
    expires_at    bigint NOT NULL, -- 0: never
    revoked_at    bigint NOT NULL DEFAULT 0, -- 0: not revoked
    note          text   NOT NULL
);

-- Sessions of the console. The id of a session is in its browser only.
CREATE TABLE console_session (
    hash        text COLLATE "C" PRIMARY KEY, -- the SHA-256 of the id
    key_id      text COLLATE "C" NOT NULL REFERENCES api_key (id),
    secret_hash text   NOT NULL, -- of the secret that began it: it ends with that
    created_at  bigint NOT NULL,
    expires_at  bigint NOT NULL
);

CREATE INDEX console_session_by_key ON console_session (key_id, created_at);

-- What a caller asked for under an Idempotency-Key. The answer is written by the transaction of the effect.
CREATE TABLE idempotency (
    caller          text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    body_hash       text   NOT NULL, -- SHA-256 of what the key stands for
    claim           text   NOT NULL, -- drawn by the call that works on it
    claimed_at      bigint NOT NULL, -- by this database's clock
    answer          text   NOT NULL, -- empty: not there yet
    PRIMARY KEY (caller, idempotency_key)
);

CREATE INDEX idempotency_by_time ON idempotency (claimed_at);

-- Who did what. Rows never change.
CREATE TABLE journal (
    id         text COLLATE "C" PRIMARY KEY, -- drawn by who writes it: the same entry sent again changes nothing
    at         bigint NOT NULL,
    who        text COLLATE "C" NOT NULL, -- key:ID, or cli:USER@HOST
    action     text   NOT NULL,
    campaign   text COLLATE "C" NOT NULL, -- empty if it is about none
    sink       text   NOT NULL, -- empty if it is about none
    outcome    text   NOT NULL,
    request_id text   NOT NULL,
    details    text   NOT NULL -- a JSON object
);

CREATE INDEX journal_by_time ON journal (at, id);

CREATE INDEX journal_by_campaign ON journal (campaign, at, id);

CREATE INDEX journal_by_who ON journal (who, at, id);

-- What `hongbao balance` books: credits that its clients ask for over HTTP. Each is a transfer from its client's fund
-- to its account. These tables stand beside the campaigns' ones and share no row with them, so that the conservation
-- of each holds by itself.

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
    -- 1, 2, 3, ... in the statement of account and currency, under the lock of its row of credit_account
    line_no         bigint,
    amount          bigint           NOT NULL CHECK (amount >= 1),
    created_at      bigint           NOT NULL,
    PRIMARY KEY (client, reference),
    UNIQUE (client, idempotency_key),
    CONSTRAINT credit_statement UNIQUE (account, currency, line_no)
);
