-- The guard of Leasehold's locks, for PostgreSQL 13 and later. Run it in one transaction (psql --single-transaction), once
-- in each database whose rows are written under locks, as the owner of these rows. It may be run again, also on a database
-- that has the former version without slots. Grant SELECT, INSERT and UPDATE on leasehold_guards and leasehold_guard_slots
-- to each role that calls leasehold_guard. If the file is run again, the owner of leasehold_guards and the roles that may
-- update it get these rights on leasehold_guard_slots.
--
-- A transaction that writes under a lock calls, before its first write:
--
--     SELECT leasehold_guard('user.update/7', 42, interval '12 seconds');
--
-- with the name of the resource that the lock protects, the fence of the lock, and the time until the session is lost.
-- The holder of a slot of a shared lock adds the number of the slot, from 1 to 256. The number 0 means that the lock is
-- held alone, as without a number:
--
--     SELECT leasehold_guard('api/export', 43, interval '12 seconds', 2);
--
-- Call it in the transaction itself: ROLLBACK TO SAVEPOINT takes back what was called after the savepoint.

CREATE TABLE IF NOT EXISTS leasehold_guards (
  resource text PRIMARY KEY CHECK (resource <> '' AND octet_length(resource) <= 4096),
  fence bigint NOT NULL CHECK (fence > 0),
  commit_before timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS leasehold_guard_slots (
  resource text,
  slot integer CHECK (slot BETWEEN 0 AND 256),
  fence bigint NOT NULL CHECK (fence > 0),
  commit_before timestamptz NOT NULL,
  PRIMARY KEY (resource, slot)
) WITH (fillfactor = 50);

COMMENT ON TABLE leasehold_guards IS
  'The newest fence of each resource. A deleted row lets former holders of its lock write again.';
COMMENT ON TABLE leasehold_guard_slots IS
  'The newest fence of each slot of a shared lock; in slot 0 that of its holders alone. A deleted row lets former holders write again.';

-- The functions of this file read rows by the index only. A serializable transaction that has read a whole table would fail
-- beside other guarded transactions, and PostgreSQL prefers to read small tables as a whole.

-- Refuses a COMMIT after the time until which the newest call of the transaction allowed it. SET CONSTRAINTS can make this
-- check early, so the order of fences does not rest on it: it rests on the row's lock.
CREATE OR REPLACE FUNCTION leasehold_guard_check_time() RETURNS trigger
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
  PERFORM FROM leasehold_guards WHERE resource = NEW.resource AND commit_before > clock_timestamp();
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the transaction outlived the session of its lock' USING ERRCODE = 'LH002',
      HINT = 'Acquire the lock again, and repeat the transaction.';
  END IF;
  RETURN NULL;
END
$$;

-- Refuses such a COMMIT of the holder of a slot.
CREATE OR REPLACE FUNCTION leasehold_guard_check_slot_time() RETURNS trigger
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
  PERFORM FROM leasehold_guard_slots WHERE resource = NEW.resource AND slot = NEW.slot AND commit_before > clock_timestamp();
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the transaction outlived the session of its lock' USING ERRCODE = 'LH002',
      HINT = 'Acquire the lock again, and repeat the transaction.';
  END IF;
  RETURN NULL;
END
$$;

-- Each trigger is created once: without it for a moment, a late COMMIT would pass. The rights on the second table come
-- before the functions that need them.
DO $$
DECLARE
  writer text;
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_trigger WHERE tgname = 'leasehold_guard_check_time' AND tgrelid = 'leasehold_guards'::regclass
  ) THEN
    CREATE CONSTRAINT TRIGGER leasehold_guard_check_time
      AFTER INSERT OR UPDATE ON leasehold_guards DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION leasehold_guard_check_time();
  END IF;
  IF NOT EXISTS (
    SELECT FROM pg_trigger WHERE tgname = 'leasehold_guard_check_slot_time' AND tgrelid = 'leasehold_guard_slots'::regclass
  ) THEN
    CREATE CONSTRAINT TRIGGER leasehold_guard_check_slot_time
      AFTER INSERT OR UPDATE ON leasehold_guard_slots DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION leasehold_guard_check_slot_time();
  END IF;
  FOR writer IN
    SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
      FROM pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner)))
      WHERE oid = 'leasehold_guards'::regclass AND privilege_type = 'UPDATE'
  LOOP
    EXECUTE format('GRANT SELECT, INSERT, UPDATE ON leasehold_guard_slots TO %s', writer);
  END LOOP;
END
$$;

-- Locks rows of the resource until the end of the transaction. Refuses a fence that is older than the newest one of a
-- holder that excludes this one with the SQLSTATE LH001, and a session that is lost already with LH002.
--
--   caller                   row of leasehold_guards  row of slot 0       row of its slot
--   a slot                                            shared              written
--   a slot, for the first    written                  created, shared     created
--   the lock alone           written                  written if present  all slots locked and compared
--
-- Rows are locked from the left to the right, and none is shared first and written then. So transactions with a call each
-- can't end in a deadlock. A first use does not write slot 0: it would wait for the transactions of all slots in use.
--
-- Rows are written even if nothing in them changes: a transaction whose snapshot is older than the write of a holder that
-- it excludes then fails with a serialization failure, instead of working on rows that it can't see. A new row is not in
-- such a snapshot, so the first use of a slot writes the row of leasehold_guards too.
CREATE OR REPLACE FUNCTION leasehold_guard(resource text, fence bigint, remaining interval, slot integer) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
  deadline CONSTANT timestamptz := clock_timestamp() + remaining;
  newest bigint;
BEGIN
  IF remaining <= interval '0' THEN
    RAISE EXCEPTION 'the session of the lock is lost' USING ERRCODE = 'LH002', HINT = 'Acquire the lock again.';
  END IF;
  IF slot = 0 THEN
    INSERT INTO leasehold_guards AS guard (resource, fence, commit_before)
      VALUES (leasehold_guard.resource, leasehold_guard.fence, deadline)
      ON CONFLICT ON CONSTRAINT leasehold_guards_pkey
      DO UPDATE SET fence = greatest(guard.fence, excluded.fence), commit_before = excluded.commit_before
      RETURNING guard.fence INTO newest;
    UPDATE leasehold_guard_slots AS guard SET fence = greatest(guard.fence, newest)
      WHERE guard.resource = leasehold_guard.resource AND guard.slot = 0;
    -- The rows are locked before they are compared: a condition on the fence would skip those that are newer than the
    -- snapshot.
    SELECT greatest(newest, max(locked.fence)) INTO newest FROM (
      SELECT guard.fence FROM leasehold_guard_slots AS guard WHERE guard.resource = leasehold_guard.resource FOR SHARE
    ) AS locked;
  ELSE
    PERFORM FROM leasehold_guard_slots AS guard JOIN leasehold_guard_slots AS alone USING (resource)
      WHERE guard.resource = leasehold_guard.resource AND guard.slot = leasehold_guard.slot AND alone.slot = 0;
    IF NOT FOUND THEN
      -- A resource without a row has the least fence, which no fence is older than. The time is checked in the slot's row.
      INSERT INTO leasehold_guards AS guard (resource, fence, commit_before)
        VALUES (leasehold_guard.resource, 1, 'infinity')
        ON CONFLICT ON CONSTRAINT leasehold_guards_pkey DO UPDATE SET commit_before = excluded.commit_before
        RETURNING guard.fence INTO newest;
      INSERT INTO leasehold_guard_slots (resource, slot, fence, commit_before)
        VALUES (leasehold_guard.resource, 0, newest, 'infinity') ON CONFLICT DO NOTHING;
    END IF;
    SELECT guard.fence INTO newest FROM leasehold_guard_slots AS guard
      WHERE guard.resource = leasehold_guard.resource AND guard.slot = 0 FOR SHARE;
    INSERT INTO leasehold_guard_slots AS guard (resource, slot, fence, commit_before)
      VALUES (leasehold_guard.resource, leasehold_guard.slot, leasehold_guard.fence, deadline)
      ON CONFLICT ON CONSTRAINT leasehold_guard_slots_pkey
      DO UPDATE SET fence = greatest(guard.fence, excluded.fence), commit_before = excluded.commit_before
      RETURNING greatest(newest, guard.fence) INTO newest;
  END IF;
  -- The exception takes back what this call has written.
  IF newest > fence THEN
    RAISE EXCEPTION 'the fence of the lock has passed' USING ERRCODE = 'LH001',
      HINT = 'Another holder has written under a newer fence. Acquire the lock again.';
  END IF;
END
$$;

-- Guards a transaction of a holder that has the lock alone.
CREATE OR REPLACE FUNCTION leasehold_guard(resource text, fence bigint, remaining interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM leasehold_guard(resource, fence, remaining, 0);
END
$$;

-- The functions find the tables in the schema of this installation, whatever the caller's search path, and never in the
-- caller's temporary tables.
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY[
    'leasehold_guard(text, bigint, interval)', 'leasehold_guard(text, bigint, interval, integer)',
    'leasehold_guard_check_time()', 'leasehold_guard_check_slot_time()'
  ] LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', name, current_schema());
  END LOOP;
END
$$;
