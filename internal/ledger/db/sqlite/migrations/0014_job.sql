-- lowest: 12
-- Work that people and programs started at a server, and that goes on after the answer. Its owner is a process, which
-- says at each heartbeat that it is alive. Times are of this database's clock.
CREATE TABLE job (
    id         TEXT    PRIMARY KEY, -- drawn by its owner
    name       TEXT    NOT NULL,
    claim      TEXT    UNIQUE, -- the name while it runs, then NULL: one job of a name runs at a time
    order_hash TEXT    NOT NULL, -- SHA-256 of its other parameters
    what       TEXT    NOT NULL, -- a sentence of the console, as JSON
    started_by TEXT    NOT NULL, -- the id of an API key
    campaign   TEXT    NOT NULL, -- empty if it is about none
    stopper    TEXT    NOT NULL, -- the action that a caller must be allowed in order to stop it; empty: nobody can
    owner      TEXT    NOT NULL,
    began_at   INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL, -- the owner's last heartbeat
    step       TEXT    NOT NULL,
    done       INTEGER NOT NULL,
    parts      INTEGER NOT NULL, -- 0: it counts none
    stop_by    TEXT    NOT NULL, -- the id of the API key that asked it to stop
    ended_at   INTEGER NOT NULL, -- 0: it runs
    lost       INTEGER NOT NULL, -- 1: it ended with its process
    error      TEXT    NOT NULL,
    result     TEXT    NOT NULL -- as JSON; empty: none, or too long
) STRICT;

CREATE INDEX job_by_time ON job (began_at, id);
