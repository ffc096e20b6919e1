-- Version 8 of the tables: the server that watches a session, so that several servers serve locks.
--
-- The home of a session is the server that wrote its last counted renewal. Only the home answers
-- renewals from memory, and only the home proposes the session's end. A write at another server
-- moves the session there, and leaves a row of news for the former home.
ALTER TABLE lock_sessions ADD COLUMN home bigint NOT NULL DEFAULT 0;
ALTER TABLE lock_asks ADD COLUMN attendant bigint, ADD COLUMN is_abandoned boolean NOT NULL DEFAULT false;

CREATE INDEX lock_sessions_home ON lock_sessions (home, uuid) WHERE ended IS NULL;

COMMENT ON INDEX lock_sessions_home IS 'The live sessions of one server, which another server adopts if the server is gone';
COMMENT ON COLUMN lock_sessions.home IS
    'The server that watches the session, in lock_servers; 0 for none';
COMMENT ON COLUMN lock_asks.attendant IS
    'The server whose call attends to the ask, if it is not the server that wrote the row';
COMMENT ON COLUMN lock_asks.is_abandoned IS
    'True if the ask is about to leave, because no call attended to it for long: no call may tell its grant any more';

CREATE TABLE lock_servers (
    id         bigint  PRIMARY KEY,
    beats      bigint  NOT NULL,
    is_stopped boolean NOT NULL DEFAULT false
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

COMMENT ON TABLE lock_servers IS 'The servers that watch sessions: each adds to its beats once a second';
COMMENT ON COLUMN lock_servers.id IS 'A random number, which a server chooses at its start';
COMMENT ON COLUMN lock_servers.beats IS
    'How often the server has vouched for its sessions. If others see no change for long, they adopt its sessions';
COMMENT ON COLUMN lock_servers.is_stopped IS 'True if the server has stopped, so that others may adopt its sessions at once';

CREATE TABLE lock_news (
    server       bigint  NOT NULL,
    session_uuid uuid    NOT NULL,
    renewals     bigint  NOT NULL,
    has_ended    boolean NOT NULL,
    fence        bigint
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE INDEX lock_news_server ON lock_news (server);

COMMENT ON INDEX lock_news_server IS 'The news of one server, which it reads and deletes once a second';
COMMENT ON TABLE lock_news IS 'Changes of sessions that another server than their home has written, for the home';
COMMENT ON COLUMN lock_news.server IS 'The server that was the home of the session';
COMMENT ON COLUMN lock_news.session_uuid IS 'The session that has changed';
COMMENT ON COLUMN lock_news.renewals IS 'The number of the session''s written renewals after the change';
COMMENT ON COLUMN lock_news.has_ended IS 'True if the session has ended';
COMMENT ON COLUMN lock_news.fence IS 'The fence of a grant that an operator took from the session; NULL for other changes';

CREATE TABLE lock_forced (
    session_uuid uuid   NOT NULL REFERENCES lock_sessions ON DELETE CASCADE,
    fence        bigint NOT NULL,
    PRIMARY KEY (session_uuid, fence)
);

COMMENT ON TABLE lock_forced IS
    'The grants that an operator took from a session, which each home of the session tells with its renewals';
COMMENT ON COLUMN lock_forced.session_uuid IS 'The session that held the lock, in lock_sessions';
COMMENT ON COLUMN lock_forced.fence IS 'The fence of the grant';

-- A session that moves or ends leaves news for its former home. The transaction is at REPEATABLE
-- READ, and write_locks updates the row of each such session. So the former home that is read here is
-- the one that the session has at the COMMIT, or the transaction fails.
CREATE FUNCTION save_locks(
    at_server bigint, moved uuid[], tells boolean, forced_sessions uuid[], forced_fences bigint[],
    drawn integer, opened new_session[], changed_sessions new_session[], forgotten_sessions uuid[], made new_lock[],
    changed_locks new_lock[], forgotten_namespaces text[], forgotten_keys text[], asked new_ask[], changed_asks new_ask[],
    ended_asks uuid[], queued new_turn[], left_turns new_turn[]
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    fences bigint[];
BEGIN
    IF tells THEN
        INSERT INTO lock_news (server, session_uuid, renewals, has_ended)
        SELECT s.home, s.uuid, n.renewals, n.ended IS NOT NULL
        FROM unnest(changed_sessions) AS n JOIN lock_sessions s ON s.uuid = n.uuid
        WHERE s.home <> at_server AND (n.renewals <> s.renewals OR n.ended IS NOT NULL);
    END IF;
    fences := ARRAY(SELECT write_locks(drawn, opened, changed_sessions, forgotten_sessions, made, changed_locks,
        forgotten_namespaces, forgotten_keys, asked, changed_asks, ended_asks, queued, left_turns));
    IF cardinality(forced_sessions) > 0 THEN
        forced_fences := ARRAY(
            SELECT CASE WHEN n.f < 0 THEN fences[-n.f] ELSE n.f END
            FROM unnest(forced_fences) WITH ORDINALITY AS n (f, place) ORDER BY n.place
        );
        INSERT INTO lock_forced (session_uuid, fence) SELECT * FROM unnest(forced_sessions, forced_fences)
        ON CONFLICT DO NOTHING;
        INSERT INTO lock_news (server, session_uuid, renewals, has_ended, fence)
        SELECT s.home, s.uuid, s.renewals, false, n.f
        FROM unnest(forced_sessions, forced_fences) AS n (u, f) JOIN lock_sessions s ON s.uuid = n.u
        WHERE s.home <> at_server;
    END IF;
    IF cardinality(moved) > 0 THEN
        UPDATE lock_sessions s SET home = at_server FROM unnest(moved) AS n (u)
        WHERE s.uuid = n.u AND s.home <> at_server;
    END IF;
    RETURN QUERY SELECT unnest(fences);
END $$;

COMMENT ON FUNCTION save_locks IS
    'Does the same as write_locks, makes a server the home of the sessions that it opened or renewed, and leaves news for '
    'their former homes';

CREATE FUNCTION try_save_locks(
    at_server bigint, moved uuid[], tells boolean, forced_sessions uuid[], forced_fences bigint[],
    drawn integer, opened new_session[], changed_sessions new_session[], forgotten_sessions uuid[], made new_lock[],
    changed_locks new_lock[], forgotten_namespaces text[], forgotten_keys text[], asked new_ask[], changed_asks new_ask[],
    ended_asks uuid[], queued new_turn[], left_turns new_turn[]
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT save_locks(at_server, moved, tells, forced_sessions, forced_fences, drawn, opened,
        changed_sessions, forgotten_sessions, made, changed_locks, forgotten_namespaces, forgotten_keys, asked,
        changed_asks, ended_asks, queued, left_turns);
EXCEPTION
    -- The changes of this block have been undone, so the COMMIT need not wait for the disk.
    WHEN serialization_failure OR deadlock_detected THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN QUERY SELECT -1::bigint;
    WHEN lock_not_available THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN QUERY SELECT -2::bigint;
END $$;

COMMENT ON FUNCTION try_save_locks IS
    'Does the same as save_locks, but returns one row and changes nothing if another transaction was first: -1, or -2 if it '
    'waited too long for a lock';

-- The counted renewal keeps the former home from ending the session. Two servers may adopt from one
-- home at the same time: each takes the rows that the other has not locked.
CREATE FUNCTION adopt_sessions(at_server bigint, former bigint, most integer) RETURNS SETOF lock_sessions
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM commit_durably();
    RETURN QUERY WITH picked AS (
        SELECT s.uuid FROM lock_sessions s
        WHERE s.home = former AND s.ended IS NULL
        ORDER BY s.home, s.uuid LIMIT most FOR UPDATE SKIP LOCKED
    ), adopted AS (
        UPDATE lock_sessions s SET home = at_server, renewals = s.renewals + 1
        FROM picked WHERE s.uuid = picked.uuid RETURNING s.*
    ), told AS (
        INSERT INTO lock_news (server, session_uuid, renewals, has_ended)
        SELECT former, a.uuid, a.renewals, false FROM adopted a
    ) SELECT * FROM adopted;
END $$;

COMMENT ON FUNCTION adopt_sessions IS
    'Makes a server the home of sessions whose former home is gone, and returns them: at most `most`';
