-- Version 11 of the tables: locks that asks share, and asks whose caller holds other locks. Each slot of such a lock has a row of its own, whose
-- key is that of the lock, the character U+001F and the number of the slot.
--
-- A server of version 10 can't read the row of a divided lock, nor a key with that character, and
-- changes neither. So all servers must be of version 11 before an ask shares a lock.
ALTER TABLE locks
    ADD COLUMN share smallint CHECK (share BETWEEN 0 AND 256),
    ADD COLUMN slots bytea CHECK (length(slots) = 32),
    ADD CHECK ((share IS NULL) = (slots IS NULL));
ALTER TABLE lock_asks
    ADD COLUMN share smallint CHECK (share BETWEEN 0 AND 256),
    ADD COLUMN held uuid[] CHECK (cardinality(held) BETWEEN 1 AND 80);

-- The constraints of the state have names that the database chose.
DO $$
DECLARE
    former name;
BEGIN
    FOR former IN
        SELECT c.conname FROM pg_constraint c
        WHERE c.conrelid = 'locks'::regclass AND c.contype = 'c' AND pg_get_constraintdef(c.oid) ~ '\mstate\M'
    LOOP
        EXECUTE format('ALTER TABLE locks DROP CONSTRAINT %I', former);
    END LOOP;
END $$;

ALTER TABLE locks
    ADD CHECK (state BETWEEN 1 AND 7),
    ADD CHECK (state <> 1 OR waiting = 0),
    ADD CHECK ((state IN (1, 4, 7)) = (fence IS NULL)),
    ADD CHECK ((state IN (2, 5)) = (ask_uuid IS NOT NULL) AND (state IN (2, 5)) = (session_uuid IS NOT NULL)
        AND (state IN (2, 5)) = (granted_at IS NOT NULL)),
    ADD CHECK ((state IN (3, 6)) = (silence_micros IS NOT NULL));

COMMENT ON COLUMN locks.key IS
    'The key of the lock within its namespace; for a slot of a shared lock followed by U+001F and three digits, the number of '
    'the slot';
COMMENT ON COLUMN locks.state IS
    '1 free; 2 held by ask_uuid; 3 withheld: taken from its holder, and not granted again before the holder''s time is over; '
    '4 orphaned: waits for a cleanup; 5 held by a cleaner; 6 withheld, taken from a cleaner or before a cleanup; '
    '7 divided: slots of the lock are taken, each with a row of its own';
COMMENT ON COLUMN locks.share IS 'In state 7, how asks share the lock: 0 as readers do, else the number of permits; otherwise NULL';
COMMENT ON COLUMN locks.slots IS
    'In state 7, the taken slots: four numbers of 64 bits in big-endian order, in which the lowest bit of the first one is slot 1';
COMMENT ON COLUMN lock_asks.key IS 'The key of the lock, or of the slot that the ask holds';
COMMENT ON COLUMN lock_asks.share IS
    'How the ask shares its lock: 0 as readers do, else the number of permits; NULL if it wants the lock alone';
COMMENT ON COLUMN lock_asks.held IS
    'The asks under which the caller holds locks while it waits for this one, or asks for others together with it; NULL if none';

CREATE TYPE new_division AS (namespace text, key text, share smallint, slots bytea);
CREATE TYPE new_share AS (uuid uuid, share smallint, held uuid[]);

COMMENT ON TYPE new_division IS 'The columns of a row of locks that a divided lock has in addition';
COMMENT ON TYPE new_share IS
    'The columns of a row of lock_asks that an ask has in addition which shares its lock, or whose caller holds others';

CREATE FUNCTION save_shared_locks(
    at_server bigint, moved uuid[], tells boolean, forced_sessions uuid[], forced_fences bigint[],
    drawn integer, opened new_session[], changed_sessions new_session[], forgotten_sessions uuid[], made new_lock[],
    changed_locks new_lock[], forgotten_namespaces text[], forgotten_keys text[], asked new_ask[], changed_asks new_ask[],
    ended_asks uuid[], queued new_turn[], left_turns new_turn[], reaped new_obituary[], divided new_division[],
    sharing new_share[]
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    fences bigint[];
BEGIN
    fences := ARRAY(SELECT save_reaped_locks(at_server, moved, tells, forced_sessions, forced_fences, drawn, opened,
        changed_sessions, forgotten_sessions, made, changed_locks, forgotten_namespaces, forgotten_keys, asked,
        changed_asks, ended_asks, queued, left_turns, reaped));
    UPDATE locks l SET share = n.share, slots = n.slots
    FROM unnest(divided) AS n WHERE l.namespace = n.namespace AND l.key = n.key;
    UPDATE lock_asks a SET share = n.share, held = n.held FROM unnest(sharing) AS n WHERE a.uuid = n.uuid;
    RETURN QUERY SELECT unnest(fences);
END $$;

COMMENT ON FUNCTION save_shared_locks IS
    'Does the same as save_reaped_locks, and writes how locks are divided and how asks share them';

CREATE FUNCTION try_save_shared_locks(
    at_server bigint, moved uuid[], tells boolean, forced_sessions uuid[], forced_fences bigint[],
    drawn integer, opened new_session[], changed_sessions new_session[], forgotten_sessions uuid[], made new_lock[],
    changed_locks new_lock[], forgotten_namespaces text[], forgotten_keys text[], asked new_ask[], changed_asks new_ask[],
    ended_asks uuid[], queued new_turn[], left_turns new_turn[], reaped new_obituary[], divided new_division[],
    sharing new_share[]
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT save_shared_locks(at_server, moved, tells, forced_sessions, forced_fences, drawn, opened,
        changed_sessions, forgotten_sessions, made, changed_locks, forgotten_namespaces, forgotten_keys, asked,
        changed_asks, ended_asks, queued, left_turns, reaped, divided, sharing);
EXCEPTION
    -- The changes of this block have been undone, so the COMMIT need not wait for the disk.
    WHEN serialization_failure OR deadlock_detected THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN QUERY SELECT -1::bigint;
    WHEN lock_not_available THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN QUERY SELECT -2::bigint;
END $$;

COMMENT ON FUNCTION try_save_shared_locks IS
    'Does the same as save_shared_locks, but returns one row and changes nothing if another transaction was first: -1, or -2 '
    'if it waited too long for a lock';

-- Most groups acquire and release locks whose rows the server has read or written before. Such a group
-- assumes these rows, and this function compares them where it writes them. So the group needs no read.
CREATE TYPE seen_session AS (uuid uuid, opened_at timestamptz, renewals bigint, asks integer, more integer);
CREATE TYPE seen_lock AS (
    namespace text, key text, state smallint, waiting integer, served_turn bigint, last_turn bigint, fence bigint, ask_uuid uuid,
    last_fence bigint, last_ask_uuid uuid
);

COMMENT ON TYPE seen_session IS
    'A live row of lock_sessions as a server has seen it, and the number of asks that it adds; NULL if it adds and ends none';
COMMENT ON TYPE seen_lock IS
    'The columns of a row of locks as a server has seen it, which differ for every content of a lock in the states 1 and 2';

CREATE FUNCTION try_swap_locks(
    at_server bigint, speculative_lock bigint, drawn integer, most_asks integer, changed_sessions seen_session[],
    seen_sessions seen_session[], former_locks seen_lock[], changed_locks new_lock[], seen_locks seen_lock[], asked new_ask[],
    sharing new_share[], changed_asks new_ask[], ended_asks uuid[], absent_asks uuid[], queued new_turn[], left_turns new_turn[]
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    fences  bigint[];
    written bigint;
BEGIN
    PERFORM begin_speculative_group(speculative_lock);
    BEGIN
        -- The server has learnt of the last grant of each lock before it sent this statement, or else the
        -- comparison fails. So these fences are larger, although they are drawn before the rows are locked.
        IF drawn > 0 THEN
            SELECT array_agg(n.fence) INTO fences FROM (SELECT nextval('lease_fences') AS fence FROM generate_series(1, drawn)) n;
        END IF;
        -- INVARIANT: the server sends sessions and locks sorted by their primary keys. All transactions
        -- lock them in this order.
        IF cardinality(changed_sessions) > 0 THEN
            UPDATE lock_sessions s SET asks = s.asks + n.more
            FROM unnest(changed_sessions) AS n
            WHERE s.uuid = n.uuid AND s.opened_at = n.opened_at AND s.renewals = n.renewals AND s.ended IS NULL
                AND s.asks + n.more BETWEEN 0 AND most_asks;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(changed_sessions));
        END IF;
        IF cardinality(changed_locks) > 0 THEN
            UPDATE locks l SET state = n.state, waiting = n.waiting, served_turn = n.served_turn, last_turn = n.last_turn,
                fence = CASE WHEN n.fence < 0 THEN fences[-n.fence] ELSE n.fence END, ask_uuid = n.ask_uuid,
                session_uuid = n.session_uuid, granted_at = n.granted_at, silence_micros = n.silence_micros,
                last_fence = n.last_fence, last_ask_uuid = n.last_ask_uuid, last_session_uuid = n.last_session_uuid,
                last_granted_at = n.last_granted_at, last_end = n.last_end, last_value = n.last_value,
                last_ended_at = n.last_ended_at, updated_at = n.updated_at,
                updated_hour = floor(extract(epoch FROM n.updated_at) / 3600)
            FROM unnest(former_locks, changed_locks) AS n (
                seen_namespace, seen_key, seen_state, seen_waiting, seen_served_turn, seen_last_turn, seen_fence, seen_ask_uuid,
                seen_last_fence, seen_last_ask_uuid, namespace, key, state, waiting, served_turn, last_turn, fence, ask_uuid,
                session_uuid, granted_at, silence_micros, last_fence, last_ask_uuid, last_session_uuid, last_granted_at, last_end,
                last_value, last_ended_at, updated_at
            )
            WHERE l.namespace = n.namespace AND l.key = n.key AND n.seen_key = n.key AND n.seen_namespace = n.namespace
                AND l.state = n.seen_state AND l.waiting = n.seen_waiting AND l.served_turn = n.seen_served_turn
                AND l.last_turn = n.seen_last_turn AND l.fence IS NOT DISTINCT FROM n.seen_fence
                AND l.ask_uuid IS NOT DISTINCT FROM n.seen_ask_uuid AND l.last_fence IS NOT DISTINCT FROM n.seen_last_fence
                AND l.last_ask_uuid IS NOT DISTINCT FROM n.seen_last_ask_uuid;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(changed_locks));
        END IF;
        IF cardinality(ended_asks) > 0 THEN
            DELETE FROM lock_asks a USING unnest(ended_asks) AS n (u) WHERE a.uuid = n.u;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(ended_asks));
        END IF;
        IF cardinality(asked) > 0 THEN
            INSERT INTO lock_asks (uuid, session_uuid, namespace, key, asked_at, turn, fence, attendant)
            SELECT n.uuid, n.session_uuid, n.namespace, n.key, n.asked_at, n.turn,
                CASE WHEN n.fence < 0 THEN fences[-n.fence] ELSE n.fence END, at_server
            FROM unnest(asked) AS n;
        END IF;
        IF cardinality(sharing) > 0 THEN
            UPDATE lock_asks a SET share = n.share, held = n.held FROM unnest(sharing) AS n WHERE a.uuid = n.uuid;
        END IF;
        IF cardinality(changed_asks) > 0 THEN
            UPDATE lock_asks a SET turn = n.turn, fence = CASE WHEN n.fence < 0 THEN fences[-n.fence] ELSE n.fence END
            FROM unnest(changed_asks) AS n WHERE a.uuid = n.uuid;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(changed_asks));
        END IF;
        IF cardinality(left_turns) > 0 THEN
            DELETE FROM lock_turns t USING unnest(left_turns) AS n
            WHERE t.namespace = n.namespace AND t.key = n.key AND t.number = n.number;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(left_turns));
        END IF;
        IF cardinality(queued) > 0 THEN
            INSERT INTO lock_turns (namespace, key, number, ask_uuid) SELECT * FROM unnest(queued);
        END IF;
        -- A command that changes nothing was decided on rows that the group may leave as they are. They are
        -- compared last and in one snapshot. At this moment the rows that the group changes are locked, and
        -- were as they were assumed. So all assumed rows had their values at one time.
        IF cardinality(seen_sessions) + cardinality(seen_locks) + cardinality(absent_asks) > 0 THEN
            SELECT count(*) INTO written FROM (
                SELECT FROM unnest(seen_sessions) AS n JOIN lock_sessions s ON s.uuid = n.uuid
                WHERE s.opened_at = n.opened_at AND s.renewals = n.renewals AND s.asks = n.asks AND s.ended IS NULL
                UNION ALL SELECT FROM unnest(seen_locks) AS n JOIN locks l ON l.namespace = n.namespace AND l.key = n.key
                WHERE l.state = n.state AND l.waiting = n.waiting AND l.served_turn = n.served_turn AND l.last_turn = n.last_turn
                    AND l.fence IS NOT DISTINCT FROM n.fence AND l.ask_uuid IS NOT DISTINCT FROM n.ask_uuid
                    AND l.last_fence IS NOT DISTINCT FROM n.last_fence AND l.last_ask_uuid IS NOT DISTINCT FROM n.last_ask_uuid
                UNION ALL SELECT FROM unnest(absent_asks) AS n (u) WHERE NOT EXISTS (SELECT FROM lock_asks a WHERE a.uuid = n.u)
            ) seen;
            PERFORM expect_rows(written, cardinality(seen_sessions) + cardinality(seen_locks) + cardinality(absent_asks));
        END IF;
        RETURN QUERY SELECT unnest(fences);
    EXCEPTION
        -- The changes have been undone, so the COMMIT need not wait for the disk. The DETAIL of a violated
        -- constraint shows the row, and keys of locks must not appear in the log.
        WHEN unique_violation OR serialization_failure OR deadlock_detected THEN
            PERFORM set_config('synchronous_commit', 'off', true);
            RETURN QUERY SELECT -1::bigint;
        WHEN lock_not_available THEN
            PERFORM set_config('synchronous_commit', 'off', true);
            RETURN QUERY SELECT -2::bigint;
        WHEN integrity_constraint_violation THEN
            RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
    END;
END $$;

COMMENT ON FUNCTION try_swap_locks IS
    'Writes the changes of a group to lock_sessions, locks, lock_asks and lock_turns, if the rows are as the server has seen '
    'them. Compares also the rows that the group leaves as they are. Draws this number of fences, puts them in the place of '
    'negative ones and returns them. It is a transaction of its own. If a row differs, it changes nothing and returns one row: '
    '-1, or -2 if it waited too long for a lock';
