-- What `hongbao balance` books: credits that other systems ask for over HTTP. These tables stand beside the campaigns' ones and
-- share no row with them, so that the conservation of each holds by itself. Rows of credit never change.

CREATE TABLE credit_account (
    id       varchar(255) NOT NULL,
    currency varchar(255) NOT NULL,
    balance  bigint       NOT NULL,
    credits  bigint       NOT NULL,
    PRIMARY KEY (id, currency),
    CONSTRAINT credit_account_in_range CHECK (balance >= 0 AND balance <= 9007199254740991)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE credit (
    reference       varchar(255) NOT NULL PRIMARY KEY,
    idempotency_key varchar(255) NOT NULL,
    payload_hash    varchar(255) NOT NULL, -- SHA-256 of what the key stands for
    account         varchar(255) NOT NULL,
    currency        varchar(255) NOT NULL,
    amount          bigint       NOT NULL CHECK (amount >= 1),
    created_at      bigint       NOT NULL,
    CONSTRAINT credit_once UNIQUE (idempotency_key), -- kept for ever: no retention to run out
    KEY credit_statement (account, created_at, reference)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
