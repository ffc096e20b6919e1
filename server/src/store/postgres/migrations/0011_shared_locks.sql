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
