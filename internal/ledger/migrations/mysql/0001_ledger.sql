-- lowest: 1
-- The ledger. Money is integers in minor units, times are unix milliseconds. Rows of grants and transfer never change.
-- The same tables as on PostgreSQL. Ids are compared byte by byte (utf8mb4_bin): "a" is not "A".
-- Each statement must fail when it runs a second time, or change nothing: DDL commits by itself on MySQL, and a worker
-- that was killed in the middle leaves the rest to the next (see mysql_migrate.go).

CREATE TABLE campaign (
    id         varchar(255)   NOT NULL PRIMARY KEY,
    spec       longtext       NOT NULL, -- the canonical JSON that plan_hash covers
    plan_hash  varchar(255)   NOT NULL,
    seed       varbinary(255) NOT NULL CHECK (length(seed) = 32), -- secret until it is revealed after the close
    kind       varchar(255)   NOT NULL,
    currency   varchar(255)   NOT NULL,
    packets    bigint         NOT NULL CHECK (packets >= 1),
    funded     bigint         NOT NULL CHECK (funded >= 0),
    granted    bigint         NOT NULL DEFAULT 0 CHECK (granted >= 0),
    grants     bigint         NOT NULL DEFAULT 0 CHECK (grants >= 0), -- how many packets granted is the sum of
    refunded   bigint         NOT NULL DEFAULT 0 CHECK (refunded >= 0),
    state      varchar(255)   NOT NULL CHECK (state IN ('funded', 'refunded')),
    created_at bigint         NOT NULL,
    revealed_at bigint        NOT NULL DEFAULT 0, -- 0: the seed is secret
    -- The last guard against over-issue: it holds whatever Redis or a worker believes.
    CONSTRAINT campaign_not_over_funded CHECK (granted + refunded <= funded),
    -- The guards of a refund: it leaves nothing, and no seed is published before it.
    CONSTRAINT campaign_refund_is_exact CHECK (state <> 'refunded' OR granted + refunded = funded),
    CONSTRAINT campaign_revealed_late CHECK (revealed_at = 0 OR state = 'refunded')
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A sponsor's account is where money comes in from outside: minus what it has funded so far, so it may be negative.
CREATE TABLE account (
    id       varchar(255) NOT NULL PRIMARY KEY,
    kind     varchar(255) NOT NULL CHECK (kind IN ('sponsor', 'pool', 'user')),
    currency varchar(255) NOT NULL,
    balance  bigint       NOT NULL,
    CONSTRAINT account_not_overdrawn CHECK (kind = 'sponsor' OR balance >= 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- No foreign key to campaign: it would cost one look-up a row, and the settler has looked the campaign up already.
-- The index on seq is not unique: after Redis went back in time a seq can come twice, for different packets.
CREATE TABLE grants (
    campaign   varchar(255) NOT NULL,
    packet     bigint       NOT NULL CHECK (packet >= 1),
    user_id    varchar(255) NOT NULL,
    amount     bigint       NOT NULL CHECK (amount >= 0),
    shard      integer      NOT NULL,
    seq        bigint       NOT NULL,
    epoch      bigint       NOT NULL,
    request_id varchar(255) NOT NULL,
    granted_at bigint       NOT NULL,
    batch      bigint       NOT NULL, -- the transfer that debited the pool for it
    PRIMARY KEY (campaign, packet),
    KEY grants_by_seq (shard, seq),
    KEY grants_by_user (user_id, campaign) -- receipts of a campaign that has left Redis
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE transfer (
    id         varchar(255) NOT NULL PRIMARY KEY,
    kind       varchar(255) NOT NULL CHECK (kind IN ('funding', 'grants', 'refund')),
    campaign   varchar(255) NOT NULL,
    debit      varchar(255) NOT NULL,
    credit     varchar(255), -- null for kind grants: the grants of the batch are the credits
    amount     bigint       NOT NULL CHECK (amount >= 0),
    grants     bigint       NOT NULL CHECK (grants >= 0),
    batch      bigint       NOT NULL, -- 0 if kind is not grants
    created_at bigint       NOT NULL,
    CONSTRAINT transfer_campaign FOREIGN KEY (campaign) REFERENCES campaign (id),
    CONSTRAINT transfer_debit FOREIGN KEY (debit) REFERENCES account (id),
    CONSTRAINT transfer_credit FOREIGN KEY (credit) REFERENCES account (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE refund (
    campaign   varchar(255) NOT NULL PRIMARY KEY,
    transfer   varchar(255) NOT NULL,
    amount     bigint       NOT NULL CHECK (amount >= 0),
    packets    bigint       NOT NULL CHECK (packets >= 0),
    shard      integer      NOT NULL, -- shard and seq of the close that the refund is based on; seq 0: Redis had lost the campaign
    close_seq  bigint       NOT NULL,
    decided_by varchar(1024) NOT NULL, -- without a close who decided, and why; else empty
    why        varchar(1024) NOT NULL,
    created_at bigint       NOT NULL,
    CONSTRAINT refund_campaign FOREIGN KEY (campaign) REFERENCES campaign (id),
    CONSTRAINT refund_transfer FOREIGN KEY (transfer) REFERENCES transfer (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What came, and in the has_ columns what the ledger had at that time (has is 0 if it had nothing).
CREATE TABLE quarantine (
    id             bigint       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    reason         varchar(255) NOT NULL,
    campaign       varchar(255) NOT NULL,
    packet         bigint       NOT NULL,
    user_id        varchar(255) NOT NULL,
    amount         bigint       NOT NULL,
    shard          integer      NOT NULL,
    seq            bigint       NOT NULL,
    epoch          bigint       NOT NULL,
    request_id     varchar(255) NOT NULL,
    granted_at     bigint       NOT NULL,
    entry_id       varchar(255) NOT NULL,
    has            integer      NOT NULL CHECK (has IN (0, 1)),
    has_user_id    varchar(255) NOT NULL,
    has_amount     bigint       NOT NULL,
    has_shard      integer      NOT NULL,
    has_seq        bigint       NOT NULL,
    has_epoch      bigint       NOT NULL,
    has_request_id varchar(255) NOT NULL,
    has_granted_at bigint       NOT NULL,
    created_at    bigint       NOT NULL,
    batch          bigint       NOT NULL, -- of the transaction that wrote it
    resolved_at    bigint       NOT NULL DEFAULT 0, -- 0: open
    resolved_by    varchar(255) NOT NULL DEFAULT '',
    resolution     varchar(4000) NOT NULL DEFAULT '',
    CONSTRAINT quarantine_once UNIQUE (campaign, packet, shard, seq, user_id, amount)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Whether a person has decided about a grant of the campaign.
CREATE INDEX quarantine_decided ON quarantine (campaign, resolved_at);

-- What `hongbao balance` books: credits that its clients ask for over HTTP. Each is a transfer from its client's fund to its account. These
-- tables stand beside the campaigns' ones and share no row with them, so that the conservation of each holds by itself.

CREATE TABLE credit_token (
    hash       varchar(255) NOT NULL PRIMARY KEY, -- the SHA-256; the token itself is nowhere
    client     varchar(255) NOT NULL,
    scopes     varchar(255) NOT NULL,
    created_at bigint       NOT NULL,
    revoked_at bigint NOT NULL DEFAULT 0 -- 0: valid
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Where a client's credits in a currency come from: what was put into it, and what was credited of that.
CREATE TABLE credit_fund (
    client   varchar(255) NOT NULL,
    currency varchar(255) NOT NULL,
    funded   bigint       NOT NULL,
    credited bigint       NOT NULL,
    credits  bigint       NOT NULL,
    PRIMARY KEY (client, currency),
    -- The last guard: no client credits more than it was funded with.
    CONSTRAINT credit_fund_covers CHECK (credited >= 0 AND credited <= funded AND funded <= 9007199254740991)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What a person put into a fund. Rows never change.
CREATE TABLE credit_funding (
    client     varchar(255)  NOT NULL,
    id         varchar(255)  NOT NULL,
    currency   varchar(255)  NOT NULL,
    amount     bigint        NOT NULL CHECK (amount >= 1),
    decided_by varchar(255)  NOT NULL,
    why        varchar(1000) NOT NULL,
    created_at bigint        NOT NULL,
    PRIMARY KEY (client, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE credit_account (
    id       varchar(255) NOT NULL,
    currency varchar(255) NOT NULL,
    balance  bigint       NOT NULL,
    credits  bigint       NOT NULL, -- how many, and the line number of the last one
    PRIMARY KEY (id, currency),
    CONSTRAINT credit_account_in_range CHECK (balance >= 0 AND balance <= 9007199254740991)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Rows never change, but that the transaction that inserts one also gives it its line number.
CREATE TABLE credit (
    client          varchar(255) NOT NULL,
    reference       varchar(255) NOT NULL,
    idempotency_key varchar(255) NOT NULL, -- kept permanently: no retention to run out
    payload_hash    varchar(255) NOT NULL, -- SHA-256 of what the key stands for
    account         varchar(255) NOT NULL,
    currency        varchar(255) NOT NULL,
    line_no         bigint, -- 1, 2, 3, ... in the statement of account and currency, under the lock of its row of credit_account
    amount          bigint       NOT NULL CHECK (amount >= 1),
    created_at      bigint       NOT NULL,
    PRIMARY KEY (client, reference),
    CONSTRAINT credit_once UNIQUE (client, idempotency_key),
    CONSTRAINT credit_statement UNIQUE (account, currency, line_no)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Codes of coupons: one for each packet of a campaign that has them. Rows never change. A code is a secret.
CREATE TABLE code (
    campaign varchar(255) NOT NULL,
    packet   bigint       NOT NULL CHECK (packet >= 1),
    code     varchar(255) NOT NULL,
    PRIMARY KEY (campaign, packet),
    UNIQUE KEY code_once (campaign, code)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Credits that may have been asked for at a remote balance system: a row is there before the first request, and until the grant is recorded,
-- or certainly nothing was booked. Until its owner's time is over only he asks; batch is his call.
CREATE TABLE pending (
    campaign   varchar(255) NOT NULL,
    packet     bigint       NOT NULL CHECK (packet >= 1),
    user_id    varchar(255) NOT NULL,
    amount     bigint       NOT NULL CHECK (amount >= 0),
    shard      integer      NOT NULL,
    seq        bigint       NOT NULL,
    epoch      bigint       NOT NULL,
    request_id varchar(255) NOT NULL,
    granted_at bigint       NOT NULL,
    owner      varchar(255) NOT NULL,
    batch      bigint       NOT NULL,
    since      bigint       NOT NULL, -- the first request can't be older; by this database's clock
    asked_at   bigint NOT NULL, -- when its owner began last, by the same clock
    PRIMARY KEY (campaign, packet)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Whose ledger this is: one row, written when the deployment is founded.
CREATE TABLE deployment (
    one        integer NOT NULL PRIMARY KEY CHECK (one = 1),
    id         varchar(255)    NOT NULL,
    key_prefix varchar(255)    NOT NULL,
    shards     integer NOT NULL CHECK (shards >= 1),
    founding   varchar(255)    NOT NULL CHECK (founding <> '') -- Redis has the same: it tells this ledger from others with the same id
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What the ledger knows of each shard in Redis.
CREATE TABLE shard (
    shard integer NOT NULL PRIMARY KEY,
    epoch bigint  NOT NULL CHECK (epoch >= 0), -- 0: not founded in Redis yet
    token varchar(255)    NOT NULL                     -- of the Redis server for which the shard was opened last
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX quarantine_by_seq ON quarantine (shard, seq);

-- What the grants of a refunded and audited campaign come to: the audit does not read them again. See settlement/seal.go.
CREATE TABLE seal (
    campaign   varchar(255) NOT NULL PRIMARY KEY,
    grants     bigint       NOT NULL,
    amount     bigint       NOT NULL,
    users      longblob     NOT NULL, -- what each group of users was paid
    seqs       longblob     NOT NULL, -- of the grants, by shard
    created_at bigint       NOT NULL,
    CONSTRAINT seal_campaign FOREIGN KEY (campaign) REFERENCES campaign (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Campaigns that the ledger will never have, by a person's word: their grants go to quarantine.
CREATE TABLE disowned (
    campaign    varchar(255) NOT NULL PRIMARY KEY,
    disowned_by varchar(1024) NOT NULL,
    why         varchar(1024) NOT NULL,
    created_at  bigint        NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Losses of Redis that a person accepted: the shard was to go on in this epoch all the same. Rows never change.
CREATE TABLE accepted_loss (
    shard       integer       NOT NULL,
    epoch       bigint        NOT NULL,
    accepted_by varchar(1024) NOT NULL,
    why         varchar(1024) NOT NULL,
    lost        longtext      NOT NULL, -- what Redis, the ledger, the topic and callers knew by then
    created_at  bigint        NOT NULL,
    PRIMARY KEY (shard, epoch)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
