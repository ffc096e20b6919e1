-- The tables of locks that the statements in `lock-update.sql` and `lock-insert.sql` need. `held_locks` has a row for each
-- lock that is held. `locks` has one for each lock of a client, with room for the next versions of a row on its page, so
-- that no index is written.
CREATE SEQUENCE fences;
CREATE TABLE locks (
    key    text   PRIMARY KEY,
    holder bigint,
    fence  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO locks (key) SELECT 'bench/' || client FROM generate_series(0, 1023) AS client;
CREATE TABLE held_locks (
    key    text   PRIMARY KEY,
    holder bigint NOT NULL,
    fence  bigint NOT NULL
);
