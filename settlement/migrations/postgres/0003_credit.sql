-- What `hongbao balance` books: credits that other systems ask for over HTTP. These tables stand beside the campaigns' ones and
-- share no row with them, so that the conservation of each holds by itself. Rows of credit never change.

CREATE TABLE credit_account (
    id       text COLLATE "C" NOT NULL,
    currency text COLLATE "C" NOT NULL,
    balance  bigint NOT NULL,
    credits  bigint NOT NULL,
    PRIMARY KEY (id, currency),
    CONSTRAINT credit_account_in_range CHECK (balance >= 0 AND balance <= 9007199254740991)
);

CREATE TABLE credit (
    reference       text COLLATE "C" PRIMARY KEY,
    idempotency_key text COLLATE "C" NOT NULL UNIQUE, -- kept for ever: no retention to run out
    payload_hash    text   NOT NULL, -- SHA-256 of what the key stands for
    account         text COLLATE "C" NOT NULL,
    currency        text COLLATE "C" NOT NULL,
    amount          bigint NOT NULL CHECK (amount >= 1),
    created_at      bigint NOT NULL
);

CREATE INDEX credit_statement ON credit (account, created_at, reference);
