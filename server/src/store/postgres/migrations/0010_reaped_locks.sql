-- Version 10 of the tables: locks of reaped namespaces, whose holder's death needs a cleanup.
--
-- A server of version 9 can't read a lock that waits for its cleanup or is held by its cleaner: both
-- have states of their own. So it can't grant the lock on. It takes no note of a death itself, so all
-- servers must be of version 10 before a namespace is reaped.
ALTER TABLE locks
    ADD COLUMN most_attempts integer CHECK (most_attempts > 0),
    ADD COLUMN obituary_fence bigint,
    ADD COLUMN obituary_end smallint CHECK (obituary_end BETWEEN 1 AND 7),
    ADD COLUMN obituary_ended_at timestamptz,
    ADD COLUMN obituary_attempts integer CHECK (obituary_attempts >= 0),
    ADD CHECK (num_nulls(obituary_fence, obituary_end, obituary_ended_at, obituary_attempts) IN (0, 4)),
    ADD CHECK (obituary_fence IS NULL OR obituary_attempts <= most_attempts);

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
    ADD CHECK (state BETWEEN 1 AND 6),
    ADD CHECK (state <> 1 OR waiting = 0),
    ADD CHECK ((state IN (1, 4)) = (fence IS NULL)),
    ADD CHECK ((state IN (2, 5)) = (ask_uuid IS NOT NULL) AND (state IN (2, 5)) = (session_uuid IS NOT NULL)
        AND (state IN (2, 5)) = (granted_at IS NOT NULL)),
    ADD CHECK ((state IN (3, 6)) = (silence_micros IS NOT NULL));

-- The condition is on a column that an acquire and a release do not change.
CREATE INDEX locks_obituaries ON locks (namespace, key) WHERE obituary_fence IS NOT NULL;

COMMENT ON INDEX locks_obituaries IS 'The locks whose cleanup is due';
COMMENT ON COLUMN locks.state IS
    '1 free; 2 held by ask_uuid; 3 withheld: taken from its holder, and not granted again before the holder''s time is over; '
    '4 orphaned: waits for a cleanup; 5 held by a cleaner; 6 withheld, taken from a cleaner or before a cleanup';
COMMENT ON COLUMN locks.most_attempts IS
    'The most cleanups that are begun after a holder of the lock has died; NULL if the lock is not reaped';
COMMENT ON COLUMN locks.obituary_fence IS
    'The fence of the grant that ended without a release and whose cleanup is due; NULL in the states 1, 2 and 3';
COMMENT ON COLUMN locks.obituary_end IS 'Why that grant ended, as in last_end';
COMMENT ON COLUMN locks.obituary_ended_at IS 'When that grant ended';
COMMENT ON COLUMN locks.obituary_attempts IS
    'The number of cleanups that were begun; with most_attempts, the lock is set aside for an operator';

CREATE TYPE new_obituary AS (
    namespace text, key text, most_attempts integer, fence bigint, end_number smallint, ended_at timestamptz, attempts integer
);

COMMENT ON TYPE new_obituary IS
    'The columns of a row of locks that a reaped lock has in addition; a negative fence stands for a new one';

CREATE FUNCTION save_reaped_locks(
    at_server bigint, moved uuid[], tells boolean, forced_sessions uuid[], forced_fences bigint[],
    drawn integer, opened new_session[], changed_sessions new_session[], forgotten_sessions uuid[], made new_lock[],
    changed_locks new_lock[], forgotten_namespaces text[], forgotten_keys text[], asked new_ask[], changed_asks new_ask[],
    ended_asks uuid[], queued new_turn[], left_turns new_turn[], reaped new_obituary[]
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    fences bigint[];
BEGIN
    fences := ARRAY(SELECT save_locks(at_server, moved, tells, forced_sessions, forced_fences, drawn, opened,
        changed_sessions, forgotten_sessions, made, changed_locks, forgotten_namespaces, forgotten_keys, asked,
        changed_asks, ended_asks, queued, left_turns));
    UPDATE locks l SET most_attempts = n.most_attempts,
        obituary_fence = CASE WHEN n.fence < 0 THEN fences[-n.fence] ELSE n.fence END,
        obituary_end = n.end_number, obituary_ended_at = n.ended_at, obituary_attempts = n.attempts
    FROM unnest(reaped) AS n WHERE l.namespace = n.namespace AND l.key = n.key;
    RETURN QUERY SELECT unnest(fences);
END $$;

COMMENT ON FUNCTION save_reaped_locks IS 'Does the same as save_locks, and writes the obituaries of the changed locks';

CREATE FUNCTION try_save_reaped_locks(
    at_server bigint, moved uuid[], tells boolean, forced_sessions uuid[], forced_fences bigint[],
    drawn integer, opened new_session[], changed_sessions new_session[], forgotten_sessions uuid[], made new_lock[],
    changed_locks new_lock[], forgotten_namespaces text[], forgotten_keys text[], asked new_ask[], changed_asks new_ask[],
    ended_asks uuid[], queued new_turn[], left_turns new_turn[], reaped new_obituary[]
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT save_reaped_locks(at_server, moved, tells, forced_sessions, forced_fences, drawn, opened,
        changed_sessions, forgotten_sessions, made, changed_locks, forgotten_namespaces, forgotten_keys, asked,
        changed_asks, ended_asks, queued, left_turns, reaped);
EXCEPTION
    -- The changes of this block have been undone, so the COMMIT need not wait for the disk.
    WHEN serialization_failure OR deadlock_detected THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN QUERY SELECT -1::bigint;
    WHEN lock_not_available THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN QUERY SELECT -2::bigint;
END $$;

COMMENT ON FUNCTION try_save_reaped_locks IS
    'Does the same as save_reaped_locks, but returns one row and changes nothing if another transaction was first: -1, or -2 '
    'if it waited too long for a lock';
