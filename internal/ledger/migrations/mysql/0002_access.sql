-- lowest: 1
-- Who may do what by API, and who did what. Secrets are nowhere: only their SHA-256 is.

CREATE TABLE api_key (
    id         varchar(255) NOT NULL PRIMARY KEY,
    role       varchar(255) NOT NULL,
    campaigns  longtext NOT NULL, -- ids or prefix*, with spaces between them; empty: all, and the whole deployment
    hash       varchar(255) NOT NULL, -- the SHA-256 of the secret
    old_hash   varchar(255) NOT NULL DEFAULT '', -- of the secret before the last rotation, good until old_until
    old_until  bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL, -- 0: never
    revoked_at bigint NOT NULL DEFAULT 0, -- 0: not revoked
    note       varchar(255) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who did what. Rows never change.
CREATE TABLE journal (
    id         varchar(255) NOT NULL PRIMARY KEY, -- drawn by who writes it: the same entry sent again changes nothing
    at         bigint NOT NULL,
    who        varchar(255) NOT NULL, -- key:ID, or cli:USER@HOST
    action     varchar(255) NOT NULL,
    campaign   varchar(255) NOT NULL, -- empty if it is about none
    sink       varchar(255) NOT NULL, -- empty if it is about none
    outcome    varchar(255) NOT NULL,
    request_id varchar(255) NOT NULL,
    details    longtext NOT NULL -- a JSON object
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX journal_by_time ON journal (at, id);

CREATE INDEX journal_by_campaign ON journal (campaign, at, id);

CREATE INDEX journal_by_who ON journal (who, at, id);

-- What a caller asked for under an Idempotency-Key. The answer is written by the transaction of the effect.
CREATE TABLE idempotency (
    caller          varchar(255) NOT NULL,
    idempotency_key varchar(255) NOT NULL,
    body_hash       varchar(255) NOT NULL, -- SHA-256 of what the key stands for
    claim           varchar(255) NOT NULL, -- drawn by the call that works on it
    claimed_at      bigint NOT NULL, -- by this database's clock
    answer          longtext NOT NULL, -- empty: not there yet
    PRIMARY KEY (caller, idempotency_key)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX idempotency_by_time ON idempotency (claimed_at);

-- Sessions of the console. The id of a session is in its browser only.
CREATE TABLE console_session (
    hash       varchar(255) NOT NULL PRIMARY KEY, -- the SHA-256 of the id
    key_id     varchar(255) NOT NULL,
    secret_hash varchar(255) NOT NULL, -- of the secret that began it: it ends with that
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT console_session_key FOREIGN KEY (key_id) REFERENCES api_key (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX console_session_by_key ON console_session (key_id, created_at);
