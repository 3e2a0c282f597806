-- lowest: 1
-- Who may do what by API, and who did what. Secrets are nowhere: only their SHA-256 is.

CREATE TABLE api_key (
    id         text COLLATE "C" PRIMARY KEY,
    role       text NOT NULL,
    campaigns  text NOT NULL, -- ids or prefix*, with spaces between them; empty: all, and the whole deployment
    hash       text NOT NULL, -- the SHA-256 of the secret
    old_hash   text NOT NULL DEFAULT '', -- of the secret before the last rotation, good until old_until
    old_until  bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL, -- 0: never
    revoked_at bigint NOT NULL DEFAULT 0, -- 0: not revoked
    note       text NOT NULL
);

-- Who did what. Rows never change.
CREATE TABLE journal (
    id         text COLLATE "C" PRIMARY KEY, -- drawn by who writes it: the same entry sent again changes nothing
    at         bigint NOT NULL,
    who        text COLLATE "C" NOT NULL, -- key:ID, or cli:USER@HOST
    action     text NOT NULL,
    campaign   text COLLATE "C" NOT NULL, -- empty if it is about none
    sink       text NOT NULL, -- empty if it is about none
    outcome    text NOT NULL,
    request_id text NOT NULL,
    details    text NOT NULL -- a JSON object
);

CREATE INDEX journal_by_time ON journal (at, id);

CREATE INDEX journal_by_campaign ON journal (campaign, at, id);

CREATE INDEX journal_by_who ON journal (who, at, id);

-- What a caller asked for under an Idempotency-Key. The answer is written by the transaction of the effect.
CREATE TABLE idempotency (
    caller          text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    body_hash       text NOT NULL, -- SHA-256 of what the key stands for
    claim           text NOT NULL, -- drawn by the call that works on it
    claimed_at      bigint NOT NULL, -- by this database's clock
    answer          text NOT NULL, -- empty: not there yet
    PRIMARY KEY (caller, idempotency_key)
);

CREATE INDEX idempotency_by_time ON idempotency (claimed_at);

-- Sessions of the console. The id of a session is in its browser only.
CREATE TABLE console_session (
    hash       text COLLATE "C" PRIMARY KEY, -- the SHA-256 of the id
    key_id     text COLLATE "C" NOT NULL REFERENCES api_key (id),
    secret_hash text NOT NULL, -- of the secret that began it: it ends with that
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
);

CREATE INDEX console_session_by_key ON console_session (key_id, created_at);
