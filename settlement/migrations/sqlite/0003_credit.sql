-- What `hongbao balance` books: credits that other systems ask for over HTTP. These tables stand beside the campaigns' ones and
-- share no row with them, so that the conservation of each holds by itself. Rows of credit never change.

CREATE TABLE credit_account (
    id       TEXT NOT NULL,
    currency TEXT NOT NULL,
    balance  INTEGER NOT NULL,
    credits  INTEGER NOT NULL,
    PRIMARY KEY (id, currency),
    CONSTRAINT credit_account_in_range CHECK (balance >= 0 AND balance <= 9007199254740991)
) STRICT, WITHOUT ROWID;

CREATE TABLE credit (
    reference       TEXT PRIMARY KEY,
    idempotency_key TEXT NOT NULL UNIQUE, -- kept for ever: no retention to run out
    payload_hash    TEXT NOT NULL, -- SHA-256 of what the key stands for
    account         TEXT NOT NULL,
    currency        TEXT NOT NULL,
    amount          INTEGER NOT NULL CHECK (amount >= 1),
    created_at      INTEGER NOT NULL
) STRICT;

CREATE INDEX credit_statement ON credit (account, created_at, reference);
