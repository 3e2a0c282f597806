-- lowest: 12
-- Work that people and programs started at a server, and that goes on after the answer. Its owner is a process, which
-- says at each heartbeat that it is alive. Times are of this database's clock.
CREATE TABLE job (
    id         varchar(255) NOT NULL PRIMARY KEY, -- drawn by its owner
    name       varchar(255) NOT NULL,
    claim      varchar(255) UNIQUE, -- the name while it runs, then NULL: one job of a name runs at a time
    order_hash varchar(255) NOT NULL, -- SHA-256 of its other parameters
    what       longtext     NOT NULL, -- a sentence of the console, as JSON
    started_by varchar(255) NOT NULL, -- the id of an API key
    campaign   varchar(255) NOT NULL, -- empty if it is about none
    stopper    varchar(255) NOT NULL, -- the action that a caller must be allowed in order to stop it; empty: nobody can
    owner      varchar(255) NOT NULL,
    began_at   bigint       NOT NULL,
    seen_at    bigint       NOT NULL, -- the owner's last heartbeat
    step       varchar(255) NOT NULL,
    done       bigint       NOT NULL,
    parts      bigint       NOT NULL, -- 0: it counts none
    stop_by    varchar(255) NOT NULL, -- the id of the API key that asked it to stop
    ended_at   bigint       NOT NULL, -- 0: it runs
    lost       bigint       NOT NULL, -- 1: it ended with its process
    error      longtext     NOT NULL,
    result     longtext     NOT NULL -- as JSON; empty: none, or too long
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX job_by_time ON job (began_at, id);
