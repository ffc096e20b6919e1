-- The guard of Leasehold's locks, for PostgreSQL 13 and later. Run it once in each database whose rows are written under
-- locks, as the owner of these rows. It may be run again. Grant SELECT, INSERT and UPDATE on leasehold_guards to each role
-- that calls leasehold_guard.
--
-- A transaction that writes under a lock calls, before its first write:
--
--     SELECT leasehold_guard('user.update/7', 42, interval '12 seconds');
--
-- with the name of the resource that the lock protects, the fence of the lock, and the time until the session is lost.
-- Call it in the transaction itself: ROLLBACK TO SAVEPOINT takes back what was called after the savepoint.

CREATE TABLE IF NOT EXISTS leasehold_guards (
  resource text PRIMARY KEY CHECK (resource <> '' AND octet_length(resource) <= 4096),
  fence bigint NOT NULL CHECK (fence > 0),
  commit_before timestamptz NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE leasehold_guards IS
  'The newest fence of each resource. A deleted row lets former holders of its lock write again.';

-- Locks the row of the resource until the end of the transaction. Refuses a fence that is older than the newest one with
-- the SQLSTATE LH001, and a session that is lost already with LH002.
CREATE OR REPLACE FUNCTION leasehold_guard(resource text, fence bigint, remaining interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF remaining <= interval '0' THEN
    RAISE EXCEPTION 'the session of the lock is lost' USING ERRCODE = 'LH002', HINT = 'Acquire the lock again.';
  END IF;
  -- The row is written even if nothing in it changes: a transaction whose snapshot is older than this write then fails with
  -- a serialization failure, instead of working on rows that it can't see.
  INSERT INTO leasehold_guards AS guard (resource, fence, commit_before)
    VALUES (leasehold_guard.resource, leasehold_guard.fence, clock_timestamp() + leasehold_guard.remaining)
    ON CONFLICT ON CONSTRAINT leasehold_guards_pkey
    DO UPDATE SET fence = excluded.fence, commit_before = excluded.commit_before
    WHERE guard.fence <= excluded.fence;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the fence of the lock has passed' USING ERRCODE = 'LH001',
      HINT = 'Another holder has written under a newer fence. Acquire the lock again.';
  END IF;
END
$$;

-- Refuses a COMMIT after the time until which the newest call of the transaction allowed it. SET CONSTRAINTS can make this
-- check early, so the order of fences does not rest on it: it rests on the row's lock.
CREATE OR REPLACE FUNCTION leasehold_guard_check_time() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM leasehold_guards WHERE resource = NEW.resource AND commit_before > clock_timestamp();
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the transaction outlived the session of its lock' USING ERRCODE = 'LH002',
      HINT = 'Acquire the lock again, and repeat the transaction.';
  END IF;
  RETURN NULL;
END
$$;

-- The functions find the table in the schema of this installation, whatever the caller's search path, and never in the
-- caller's temporary tables. The trigger is created once: without it for a moment, a late COMMIT would pass.
DO $$
BEGIN
  EXECUTE format('ALTER FUNCTION leasehold_guard(text, bigint, interval) SET search_path = %I, pg_temp', current_schema());
  EXECUTE format('ALTER FUNCTION leasehold_guard_check_time() SET search_path = %I, pg_temp', current_schema());
  IF NOT EXISTS (
    SELECT FROM pg_trigger WHERE tgname = 'leasehold_guard_check_time' AND tgrelid = 'leasehold_guards'::regclass
  ) THEN
    CREATE CONSTRAINT TRIGGER leasehold_guard_check_time
      AFTER INSERT OR UPDATE ON leasehold_guards DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION leasehold_guard_check_time();
  END IF;
END
$$;
