-- lowest: 1
-- Who may do what by API, and who did what. Secrets are nowhere: only their SHA-256 is.

CREATE TABLE api_key (
    id         TEXT NOT NULL PRIMARY KEY,
    role       TEXT NOT NULL,
    campaigns  TEXT NOT NULL, -- ids or prefix*, with spaces between them; empty: all, and the whole deployment
    hash       TEXT NOT NULL, -- the SHA-256 of the secret
    old_hash   TEXT NOT NULL DEFAULT '', -- of the secret before the last rotation, good until old_until
    old_until  INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL, -- 0: never
    revoked_at INTEGER NOT NULL DEFAULT 0, -- 0: not revoked
    note       TEXT NOT NULL
) STRICT;

-- Who did what. Rows never change.
CREATE TABLE journal (
    id         TEXT NOT NULL PRIMARY KEY, -- drawn by who writes it: the same entry sent again changes nothing
    at         INTEGER NOT NULL,
    who        TEXT NOT NULL, -- key:ID, or cli:USER@HOST
    action     TEXT NOT NULL,
    campaign   TEXT NOT NULL, -- empty if it is about none
    sink       TEXT NOT NULL, -- empty if it is about none
    outcome    TEXT NOT NULL,
    request_id TEXT NOT NULL,
    details    TEXT NOT NULL -- a JSON object
) STRICT;

CREATE INDEX journal_by_time ON journal (at, id);

CREATE INDEX journal_by_campaign ON journal (campaign, at, id);

CREATE INDEX journal_by_who ON journal (who, at, id);

-- What a caller asked for under an Idempotency-Key. The answer is written by the transaction of the effect.
CREATE TABLE idempotency (
    caller          TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    body_hash       TEXT NOT NULL, -- SHA-256 of what the key stands for
    claim           TEXT NOT NULL, -- drawn by the call that works on it
    claimed_at      INTEGER NOT NULL, -- by this database's clock
    answer          TEXT NOT NULL, -- empty: not there yet
    PRIMARY KEY (caller, idempotency_key)
) STRICT;

CREATE INDEX idempotency_by_time ON idempotency (claimed_at);

-- Sessions of the console. The id of a session is in its browser only.
CREATE TABLE console_session (
    hash       TEXT NOT NULL PRIMARY KEY, -- the SHA-256 of the id
    key_id     TEXT NOT NULL REFERENCES api_key (id),
    secret_hash TEXT NOT NULL, -- of the secret that began it: it ends with that
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX console_session_by_key ON console_session (key_id, created_at);
