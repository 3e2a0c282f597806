-- lowest: 12
-- Work that people and programs started at a server, and that goes on after the answer. Its owner is a process, which
-- says at each heartbeat that it is alive. Times are of this database's clock.
CREATE TABLE job (
    id         text COLLATE "C" PRIMARY KEY, -- drawn by its owner
    name       text COLLATE "C" NOT NULL,
    claim      text COLLATE "C" UNIQUE, -- the name while it runs, then NULL: one job of a name runs at a time
    order_hash text             NOT NULL, -- SHA-256 of its other parameters
    what       text             NOT NULL, -- a sentence of the console, as JSON
    started_by text             NOT NULL, -- the id of an API key
    campaign   text COLLATE "C" NOT NULL, -- empty if it is about none
    stopper    text             NOT NULL, -- the action that a caller must be allowed in order to stop it; empty: nobody can
    owner      text COLLATE "C" NOT NULL,
    began_at   bigint           NOT NULL,
    seen_at    bigint           NOT NULL, -- the owner's last heartbeat
    step       text             NOT NULL,
    done       bigint           NOT NULL,
    parts      bigint           NOT NULL, -- 0: it counts none
    stop_by    text             NOT NULL, -- the id of the API key that asked it to stop
    ended_at   bigint           NOT NULL, -- 0: it runs
    lost       bigint           NOT NULL, -- 1: it ended with its process
    error      text             NOT NULL,
    result     text             NOT NULL -- as JSON; empty: none, or too long
);

CREATE INDEX job_by_time ON job (began_at, id);
