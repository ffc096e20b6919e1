-- Version 7 of the tables: sessions, locks, asks and turns.
--
-- Each acquire and each release updates the row of its lock and of its session. So any two writers
-- of a lock, or of a session, conflict on that row. The fill factors leave room for such an update
-- to stay on its page, and no index has a column that it changes, with one exception that changes
-- once an hour (HOT, https://www.postgresql.org/docs/15/storage-hot.html).
CREATE TABLE lock_sessions (
    uuid            uuid        PRIMARY KEY,
    principal       text        NOT NULL COLLATE "C",
    duration_micros bigint      NOT NULL CHECK (duration_micros > 0),
    grace_micros    bigint      NOT NULL CHECK (grace_micros > 0),
    opened_at       timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    renewals        bigint      NOT NULL,
    asks            integer     NOT NULL CHECK (asks >= 0),
    ended           smallint    CHECK (ended BETWEEN 1 AND 3),
    CHECK (ended IS NULL OR asks = 0)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE INDEX lock_sessions_live ON lock_sessions (uuid) WHERE ended IS NULL;
CREATE INDEX lock_sessions_ended ON lock_sessions (updated_at, uuid) WHERE ended IS NOT NULL;

COMMENT ON INDEX lock_sessions_live IS 'The live sessions, which a server that starts observes';
COMMENT ON INDEX lock_sessions_ended IS 'The order in which ended sessions are forgotten';
COMMENT ON TABLE lock_sessions IS
    'The sessions of services: one keepalive of a process for all locks that it holds or waits for';
COMMENT ON COLUMN lock_sessions.uuid IS 'The id of the session, which the service chose';
COMMENT ON COLUMN lock_sessions.principal IS 'The name of the service, from its certificate; no other service can use the session';
COMMENT ON COLUMN lock_sessions.duration_micros IS
    'The microseconds after a renewal for which the service may work under its locks';
COMMENT ON COLUMN lock_sessions.grace_micros IS
    'The microseconds after that until a server ends the session, counted by a server that is awake and sees no renewal';
COMMENT ON COLUMN lock_sessions.opened_at IS 'When the session was opened';
COMMENT ON COLUMN lock_sessions.updated_at IS
    'When the session ended; while it is live, when its last renewal was written, which most renewals are not';
COMMENT ON COLUMN lock_sessions.renewals IS
    'The number of written renewals: a server that saw fewer of them can''t end the session';
COMMENT ON COLUMN lock_sessions.asks IS 'The number of rows that the session has in lock_asks';
COMMENT ON COLUMN lock_sessions.ended IS
    'NULL while the session is live; 1 closed by its service, 2 expired by its silence, 3 evicted by an operator';

CREATE TABLE locks (
    namespace         text        NOT NULL COLLATE "C",
    key               text        NOT NULL COLLATE "C",
    state             smallint    NOT NULL CHECK (state BETWEEN 1 AND 3),
    waiting           integer     NOT NULL CHECK (waiting >= 0),
    served_turn       bigint      NOT NULL,
    last_turn         bigint      NOT NULL CHECK (last_turn >= served_turn),
    fence             bigint,
    ask_uuid          uuid,
    session_uuid      uuid,
    granted_at        timestamptz,
    silence_micros    bigint,
    last_fence        bigint,
    last_ask_uuid     uuid,
    last_session_uuid uuid,
    last_granted_at   timestamptz,
    last_end          smallint    CHECK (last_end BETWEEN 1 AND 7),
    last_value        bytea,
    last_ended_at     timestamptz,
    updated_at        timestamptz NOT NULL,
    updated_hour      integer     NOT NULL,
    PRIMARY KEY (namespace, key),
    CHECK (state <> 1 OR waiting = 0),
    CHECK ((state = 1) = (fence IS NULL)),
    CHECK ((state = 2) = (ask_uuid IS NOT NULL) AND (state = 2) = (session_uuid IS NOT NULL)
        AND (state = 2) = (granted_at IS NOT NULL)),
    CHECK ((state = 3) = (silence_micros IS NOT NULL)),
    CHECK (num_nulls(last_fence, last_ask_uuid, last_session_uuid, last_granted_at, last_end, last_value, last_ended_at) IN (0, 7))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE INDEX locks_withheld ON locks (namespace, key) WHERE silence_micros IS NOT NULL;
-- The oldest free locks are found hour by hour. An index of updated_at would change with every
-- acquire and every release.
CREATE INDEX locks_hour ON locks (updated_hour);

COMMENT ON INDEX locks_withheld IS 'The withheld locks, which a server that starts observes';
COMMENT ON INDEX locks_hour IS 'The order in which free locks are forgotten, by the hour';
COMMENT ON TABLE locks IS 'The locks that are held, withheld or were held lately; a lock without a row is free';
COMMENT ON COLUMN locks.namespace IS 'The parts of the lock''s namespace, joined by dots';
COMMENT ON COLUMN locks.key IS 'The key of the lock within its namespace';
COMMENT ON COLUMN locks.state IS
    '1 free; 2 held by ask_uuid; 3 withheld: taken from its holder, and not granted again before the holder''s time is over';
COMMENT ON COLUMN locks.waiting IS 'The number of rows that the lock has in lock_turns; a free lock has none';
COMMENT ON COLUMN locks.served_turn IS 'The turn that was served last; 0 before the first';
COMMENT ON COLUMN locks.last_turn IS 'The turn of the newest ask that waited; 0 before the first';
COMMENT ON COLUMN locks.fence IS
    'The fence of the grant, from the sequence lease_fences; in state 3 that of the grant that was taken away. Whatever the '
    'holder writes to can refuse smaller fences';
COMMENT ON COLUMN locks.ask_uuid IS 'The ask that holds the lock, in lock_asks; NULL unless held';
COMMENT ON COLUMN locks.session_uuid IS 'The session of ask_uuid; NULL unless held';
COMMENT ON COLUMN locks.granted_at IS 'When the lock was granted; NULL unless held';
COMMENT ON COLUMN locks.silence_micros IS
    'The microseconds for which a server must observe the lock as withheld before it is granted again; NULL unless withheld';
COMMENT ON COLUMN locks.last_fence IS
    'The fence of the grant that ended last. This grant is kept so that a repeated release gets a true answer; NULL before the '
    'first end';
COMMENT ON COLUMN locks.last_ask_uuid IS 'The ask of the grant that ended last';
COMMENT ON COLUMN locks.last_session_uuid IS 'The session of the grant that ended last';
COMMENT ON COLUMN locks.last_granted_at IS 'When the grant that ended last was made';
COMMENT ON COLUMN locks.last_end IS
    'Why that grant ended: 1 released as succeeded, 2 released as failed, 3 the caller left before it learnt of the grant, '
    '4 the session was closed, 5 the session expired, 6 the session was evicted, 7 an operator took the lock';
COMMENT ON COLUMN locks.last_value IS 'The value that the holder gave with its release; empty if it gave none';
COMMENT ON COLUMN locks.last_ended_at IS 'When the grant that ended last ended';
COMMENT ON COLUMN locks.updated_at IS 'When the state last changed';
COMMENT ON COLUMN locks.updated_hour IS 'The hour of updated_at, counted from 1970';

CREATE TABLE lock_asks (
    uuid         uuid        PRIMARY KEY,
    session_uuid uuid        NOT NULL,
    namespace    text        NOT NULL COLLATE "C",
    key          text        NOT NULL COLLATE "C",
    asked_at     timestamptz NOT NULL,
    turn         bigint,
    fence        bigint,
    CHECK ((turn IS NULL) <> (fence IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE INDEX lock_asks_session ON lock_asks (session_uuid);

COMMENT ON INDEX lock_asks_session IS 'The asks of a session, which end with it';
COMMENT ON TABLE lock_asks IS 'The acquires that wait for their lock or hold it; a release deletes the row';
COMMENT ON COLUMN lock_asks.uuid IS 'The id of the ask, which the service chose, so that a repeated acquire is recognised';
COMMENT ON COLUMN lock_asks.session_uuid IS 'The session that asks, in lock_sessions';
COMMENT ON COLUMN lock_asks.namespace IS 'The namespace of the lock';
COMMENT ON COLUMN lock_asks.key IS 'The key of the lock';
COMMENT ON COLUMN lock_asks.asked_at IS 'When the acquire arrived';
COMMENT ON COLUMN lock_asks.turn IS 'The ask''s number in lock_turns; NULL if it holds the lock';
COMMENT ON COLUMN lock_asks.fence IS 'The fence under which the ask holds the lock; NULL while it waits';

CREATE TABLE lock_turns (
    namespace text   NOT NULL COLLATE "C",
    key       text   NOT NULL COLLATE "C",
    number    bigint NOT NULL,
    ask_uuid  uuid   NOT NULL,
    PRIMARY KEY (namespace, key, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

COMMENT ON TABLE lock_turns IS 'The queues of locks: one row for each ask that waits';
COMMENT ON COLUMN lock_turns.namespace IS 'The namespace of the lock';
COMMENT ON COLUMN lock_turns.key IS 'The key of the lock';
COMMENT ON COLUMN lock_turns.number IS 'The place in the queue: the lock goes to the smallest number first';
COMMENT ON COLUMN lock_turns.ask_uuid IS 'The ask that waits, in lock_asks';

COMMENT ON SEQUENCE lease_fences IS 'The fences of leases and of grants of locks, each larger than all before it';

-- The rows as servers send them. A negative fence stands for a new one: -1 for the first fence that
-- the group gives out, -2 for the second, and so on.
CREATE TYPE new_session AS (
    uuid uuid, principal text, duration_micros bigint, grace_micros bigint, opened_at timestamptz, updated_at timestamptz,
    renewals bigint, asks integer, ended smallint
);
CREATE TYPE new_lock AS (
    namespace text, key text, state smallint, waiting integer, served_turn bigint, last_turn bigint, fence bigint,
    ask_uuid uuid, session_uuid uuid, granted_at timestamptz, silence_micros bigint, last_fence bigint, last_ask_uuid uuid,
    last_session_uuid uuid, last_granted_at timestamptz, last_end smallint, last_value bytea, last_ended_at timestamptz,
    updated_at timestamptz
);
CREATE TYPE new_ask AS (
    uuid uuid, session_uuid uuid, namespace text, key text, asked_at timestamptz, turn bigint, fence bigint
);
CREATE TYPE new_turn AS (namespace text, key text, number bigint, ask_uuid uuid);

COMMENT ON TYPE new_session IS 'A row of lock_sessions, as a server writes it';
COMMENT ON TYPE new_lock IS 'A row of locks, as a server writes it; a negative fence stands for a new one';
COMMENT ON TYPE new_ask IS 'A row of lock_asks, as a server writes it; a negative fence stands for a new one';
COMMENT ON TYPE new_turn IS 'A row of lock_turns, as a server writes it';

CREATE FUNCTION read_sessions(uuids uuid[]) RETURNS SETOF lock_sessions LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM unnest(uuids) AS n (u) JOIN lock_sessions s ON s.uuid = n.u;
END $$;

COMMENT ON FUNCTION read_sessions IS 'The sessions of these ids';

CREATE FUNCTION read_locks(namespaces text[], keys text[]) RETURNS SETOF locks LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT l.* FROM unnest(namespaces, keys) AS n (n, k) JOIN locks l ON l.namespace = n.n AND l.key = n.k;
END $$;

COMMENT ON FUNCTION read_locks IS 'The locks of these namespaces and keys';

-- A release needs the holder of its lock and the first asks that wait. They are read together with
-- the lock, so that the server need not ask a second time.
CREATE FUNCTION read_turns(namespaces text[], keys text[], limits integer[]) RETURNS SETOF lock_turns LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT t.* FROM unnest(namespaces, keys, limits) AS n (n, k, most)
        JOIN locks l ON l.namespace = n.n AND l.key = n.k AND l.waiting > 0
        CROSS JOIN LATERAL (
            SELECT * FROM lock_turns t
            WHERE t.namespace = l.namespace AND t.key = l.key AND t.number > l.served_turn
            ORDER BY t.namespace, t.key, t.number LIMIT n.most
        ) t;
END $$;

COMMENT ON FUNCTION read_turns IS 'The first turns of these locks, at most `limits` of each';

CREATE FUNCTION read_asks(uuids uuid[], sessions uuid[], namespaces text[], keys text[], limits integer[])
RETURNS SETOF lock_asks LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT a.* FROM unnest(uuids) AS n (u) JOIN lock_asks a ON a.uuid = n.u;
    RETURN QUERY SELECT a.* FROM unnest(sessions) AS n (s) JOIN lock_asks a ON a.session_uuid = n.s;
    RETURN QUERY SELECT a.* FROM unnest(namespaces, keys) AS n (n, k)
        JOIN locks l ON l.namespace = n.n AND l.key = n.k JOIN lock_asks a ON a.uuid = l.ask_uuid;
    RETURN QUERY SELECT a.* FROM read_turns(namespaces, keys, limits) t JOIN lock_asks a ON a.uuid = t.ask_uuid;
END $$;

COMMENT ON FUNCTION read_asks IS
    'The asks of these ids and of these sessions, and those that hold these locks or wait at their first turns';

CREATE FUNCTION write_locks(
    drawn integer, opened new_session[], changed_sessions new_session[], forgotten_sessions uuid[], made new_lock[],
    changed_locks new_lock[], forgotten_namespaces text[], forgotten_keys text[], asked new_ask[], changed_asks new_ask[],
    ended_asks uuid[], queued new_turn[], left_turns new_turn[]
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    fences  bigint[];
    written bigint;
BEGIN
    -- INVARIANT: all transactions lock sessions, then locks, each in the order of their keys. Asks
    -- and turns change only together with the row of their lock.
    PERFORM FROM (
        SELECT FROM lock_sessions s JOIN (
            SELECT n.uuid FROM unnest(changed_sessions) AS n UNION ALL SELECT unnest(forgotten_sessions)
        ) n ON s.uuid = n.uuid ORDER BY s.uuid FOR UPDATE OF s
    ) locked;
    GET DIAGNOSTICS written = ROW_COUNT;
    PERFORM expect_rows(written, cardinality(changed_sessions) + cardinality(forgotten_sessions));
    PERFORM FROM (
        SELECT FROM locks l JOIN (
            SELECT n.namespace, n.key FROM unnest(changed_locks) AS n
            UNION ALL SELECT * FROM unnest(forgotten_namespaces, forgotten_keys)
        ) n ON l.namespace = n.namespace AND l.key = n.key ORDER BY l.namespace, l.key FOR UPDATE OF l
    ) locked;
    GET DIAGNOSTICS written = ROW_COUNT;
    PERFORM expect_rows(written, cardinality(changed_locks) + cardinality(forgotten_keys));
    -- A fence is drawn while the row of its lock is locked. So the next grant of the lock draws a
    -- larger one.
    SELECT array_agg(n.fence) INTO fences FROM (SELECT nextval('lease_fences') AS fence FROM generate_series(1, drawn)) n;

    INSERT INTO lock_sessions (uuid, principal, duration_micros, grace_micros, opened_at, updated_at, renewals, asks, ended)
    SELECT * FROM unnest(opened);
    UPDATE lock_sessions s SET principal = n.principal, duration_micros = n.duration_micros, grace_micros = n.grace_micros,
        opened_at = n.opened_at, updated_at = n.updated_at, renewals = n.renewals, asks = n.asks, ended = n.ended
    FROM unnest(changed_sessions) AS n WHERE s.uuid = n.uuid;
    DELETE FROM lock_sessions s USING unnest(forgotten_sessions) AS n (u) WHERE s.uuid = n.u;

    INSERT INTO locks (namespace, key, state, waiting, served_turn, last_turn, fence, ask_uuid, session_uuid, granted_at,
        silence_micros, last_fence, last_ask_uuid, last_session_uuid, last_granted_at, last_end, last_value, last_ended_at,
        updated_at, updated_hour)
    SELECT n.namespace, n.key, n.state, n.waiting, n.served_turn, n.last_turn,
        CASE WHEN n.fence < 0 THEN fences[-n.fence] ELSE n.fence END, n.ask_uuid, n.session_uuid, n.granted_at,
        n.silence_micros, CASE WHEN n.last_fence < 0 THEN fences[-n.last_fence] ELSE n.last_fence END, n.last_ask_uuid,
        n.last_session_uuid, n.last_granted_at, n.last_end, n.last_value, n.last_ended_at, n.updated_at,
        floor(extract(epoch FROM n.updated_at) / 3600)
    FROM unnest(made) AS n;
    UPDATE locks l SET state = n.state, waiting = n.waiting, served_turn = n.served_turn, last_turn = n.last_turn,
        fence = CASE WHEN n.fence < 0 THEN fences[-n.fence] ELSE n.fence END, ask_uuid = n.ask_uuid,
        session_uuid = n.session_uuid, granted_at = n.granted_at, silence_micros = n.silence_micros,
        last_fence = CASE WHEN n.last_fence < 0 THEN fences[-n.last_fence] ELSE n.last_fence END,
        last_ask_uuid = n.last_ask_uuid, last_session_uuid = n.last_session_uuid, last_granted_at = n.last_granted_at,
        last_end = n.last_end, last_value = n.last_value, last_ended_at = n.last_ended_at, updated_at = n.updated_at,
        updated_hour = floor(extract(epoch FROM n.updated_at) / 3600)
    FROM unnest(changed_locks) AS n WHERE l.namespace = n.namespace AND l.key = n.key;
    DELETE FROM locks l USING unnest(forgotten_namespaces, forgotten_keys) AS n (n, k) WHERE l.namespace = n.n AND l.key = n.k;

    DELETE FROM lock_asks a USING unnest(ended_asks) AS n (u) WHERE a.uuid = n.u;
    GET DIAGNOSTICS written = ROW_COUNT;
    PERFORM expect_rows(written, cardinality(ended_asks));
    INSERT INTO lock_asks (uuid, session_uuid, namespace, key, asked_at, turn, fence)
    SELECT n.uuid, n.session_uuid, n.namespace, n.key, n.asked_at, n.turn,
        CASE WHEN n.fence < 0 THEN fences[-n.fence] ELSE n.fence END
    FROM unnest(asked) AS n;
    UPDATE lock_asks a SET session_uuid = n.session_uuid, namespace = n.namespace, key = n.key, asked_at = n.asked_at,
        turn = n.turn, fence = CASE WHEN n.fence < 0 THEN fences[-n.fence] ELSE n.fence END
    FROM unnest(changed_asks) AS n WHERE a.uuid = n.uuid;
    GET DIAGNOSTICS written = ROW_COUNT;
    PERFORM expect_rows(written, cardinality(changed_asks));
    DELETE FROM lock_turns t USING unnest(left_turns) AS n
    WHERE t.namespace = n.namespace AND t.key = n.key AND t.number = n.number;
    GET DIAGNOSTICS written = ROW_COUNT;
    PERFORM expect_rows(written, cardinality(left_turns));
    INSERT INTO lock_turns (namespace, key, number, ask_uuid) SELECT * FROM unnest(queued);
    RETURN QUERY SELECT unnest(fences);
EXCEPTION
    -- The DETAIL of a violated constraint shows the row, and the database logs it. Keys of locks
    -- must not appear in the log.
    WHEN unique_violation THEN
        RAISE serialization_failure USING MESSAGE = 'another transaction was first';
    WHEN integrity_constraint_violation THEN
        RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END $$;

COMMENT ON FUNCTION write_locks IS
    'Writes the changes of a group to lock_sessions, locks, lock_asks and lock_turns: new rows, changed rows and the keys of '
    'rows to delete. Draws this number of fences, puts them in the place of negative ones and returns them. Fails with a '
    'serialization failure if another transaction was first';

-- Two servers that reach for one lock are a normal race. An error would be logged by the database,
-- so the race is reported in a row where nothing else has to be undone.
CREATE FUNCTION try_write_locks(
    drawn integer, opened new_session[], changed_sessions new_session[], forgotten_sessions uuid[], made new_lock[],
    changed_locks new_lock[], forgotten_namespaces text[], forgotten_keys text[], asked new_ask[], changed_asks new_ask[],
    ended_asks uuid[], queued new_turn[], left_turns new_turn[]
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT write_locks(drawn, opened, changed_sessions, forgotten_sessions, made, changed_locks,
        forgotten_namespaces, forgotten_keys, asked, changed_asks, ended_asks, queued, left_turns);
EXCEPTION
    -- The changes of this block have been undone, so the COMMIT need not wait for the disk.
    WHEN serialization_failure OR deadlock_detected THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN QUERY SELECT -1::bigint;
    WHEN lock_not_available THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN QUERY SELECT -2::bigint;
END $$;

COMMENT ON FUNCTION try_write_locks IS
    'Does the same as write_locks, but returns one row and changes nothing if another transaction was first: -1, or -2 if it '
    'waited too long for a lock';
