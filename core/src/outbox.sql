-- The outbox of Leasehold's queues, for PostgreSQL 13 and later. Run it in one transaction (psql --single-transaction), in
-- the first schema of the search path, as a role that may create in it. Roles that are not trusted must not create there. It
-- may be run again. It needs no extension and no superuser.
--
-- A transaction that writes rows submits the work on them itself. The request exists exactly if the transaction commits:
--
--     SELECT leasehold_submit('sheets.refresh', '7', convert_to('{"sheet": 7}', 'UTF8'));
--
-- A worker settles what it has taken in the transaction that writes its results:
--
--     SELECT leasehold_complete('0198c1f0-...', 'sheets.refresh', '7', 42);
--
-- with its session, the queue, the key and the fence of the batch. Call either function after the writes that it tells of: its
-- place in the order is where it is called. Grant EXECUTE on these functions to the roles that call them. They need no rights
-- on the tables.
--
-- The work is done exactly once with the guard (leasehold guard) and the ids of the batch's requests:
--
--     SELECT leasehold_guard('sheets.refresh/7', 42, interval '12 seconds');
--     SELECT leasehold_done('sheets.refresh', '7', ARRAY['0198...', '0199...']::uuid[]);   -- those that are done already
--     ... the work of the others ...
--     SELECT leasehold_complete('0198c1f0-...', 'sheets.refresh', '7', 42, ARRAY['0198...', '0199...']::uuid[]);
--
-- A worker may die after its COMMIT, before a relay has settled its batch. The next worker then gets the requests again. The
-- guard has it wait for the transaction of the first one, or refuses that. So it finds the done-marks, or does the work itself.
--
-- A relay hands the rows on, and holds no transaction open meanwhile. The server has one (`[[relays]]`). Each call is a
-- transaction of its own:
--
--     SELECT * FROM leasehold_outbox_hold('0198...', NULL);      -- every few seconds: one relay works, others wait
--     SELECT * FROM leasehold_outbox_begin();                  -- a batch of committed transactions; null if there is none
--     SELECT * FROM leasehold_outbox_read(7, 1000, 4194304);   -- its next rows, in order
--     SELECT leasehold_outbox_acknowledge(7, 90210, 90210);    -- after the server has them; true after the last rows
--     SELECT leasehold_outbox_rotate(8388608);                 -- now and then
--
-- A request that the server refuses for good would hold up all others. So leasehold_outbox_refuse sets its row aside, in the
-- transaction of the acknowledgement. The rows are in leasehold_outbox_refused. SELECT leasehold_outbox_retry(90210) submits
-- one again, DELETE drops it.
--
-- The order. A batch is the transactions that committed between two snapshots, so a late commit is in a later batch: it is
-- neither skipped nor waited for. Within a batch, transactions are ordered by the last number that each has drawn from the
-- sequence, and the rows of a transaction by their numbers. If transaction B began after the COMMIT of A, or its row waited
-- for a lock that A held until its COMMIT, then B draws a number after A has drawn its last, so B comes later. Transaction
-- ids do not give this order: B may have got its id first, and waited for A then. Numbers of a transaction's first rows do
-- not either: they may be drawn before the wait. Such an A is also visible in each snapshot that has B. So B is never in an
-- earlier batch.
--
-- The sequence hands out each number when it is drawn (CACHE 1), and a transaction gets its id before its first number. A
-- relay reads the last number, then gets an id itself, then takes the snapshot. So transactions above this id have larger
-- numbers than the one that was read. Those below it may have drawn smaller ones and commit late. The snapshot lists only
-- some of them: it ends with the newest id whose transaction had ended. The relay looks up the rows of all others by their
-- ids.

-- The functions run with the rights of their owner. PostgreSQL may prefer another role's function in the schema to its own, if
-- the types of its arguments fit better (CVE-2018-1058). Before version 15, all roles may create in the schema `public`.
DO $$
BEGIN
  IF EXISTS (
    SELECT FROM pg_namespace, aclexplode(nspacl)
      WHERE oid = quote_ident(current_schema())::regnamespace AND grantee = 0 AND privilege_type = 'CREATE'
  ) THEN
    RAISE EXCEPTION 'all roles may create objects in the schema `%`', current_schema()
      USING ERRCODE = 'insufficient_privilege',
      HINT = 'Revoke CREATE on the schema from PUBLIC, or install the outbox in another schema, the first of the search path.';
  END IF;
END
$$;

CREATE SEQUENCE IF NOT EXISTS leasehold_outbox_number AS bigint CACHE 1;

-- Two partitions take turns. One is written; the other is emptied by TRUNCATE once all of it is relayed. Nothing is updated
-- or deleted row by row, so nothing needs a vacuum.
CREATE TABLE IF NOT EXISTS leasehold_outbox (
  part smallint NOT NULL,
  transaction_id xid8 NOT NULL,
  number bigint NOT NULL,
  written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  operation text NOT NULL,
  queue text NOT NULL,
  key text NOT NULL,
  request_id uuid,
  kind text,
  priority integer,
  due_at timestamptz,
  max_attempts integer,
  body bytea,
  session_id uuid,
  fence bigint,
  retry interval
) PARTITION BY LIST (part);
ALTER TABLE leasehold_outbox ADD COLUMN IF NOT EXISTS requests uuid[];
CREATE TABLE IF NOT EXISTS leasehold_outbox_1 PARTITION OF leasehold_outbox FOR VALUES IN (1);
CREATE TABLE IF NOT EXISTS leasehold_outbox_2 PARTITION OF leasehold_outbox FOR VALUES IN (2);
CREATE INDEX IF NOT EXISTS leasehold_outbox_numbers ON leasehold_outbox (number);
CREATE INDEX IF NOT EXISTS leasehold_outbox_transactions ON leasehold_outbox (transaction_id, number);
CREATE INDEX IF NOT EXISTS leasehold_outbox_completes ON leasehold_outbox (queue, key, transaction_id)
  WHERE operation = 'complete';
-- Most bodies are small, and compression would cost the user's transaction more time than it saves.
ALTER TABLE leasehold_outbox ALTER body SET STORAGE EXTERNAL;

-- The partition that is written. Its own table, because each write reads it: the relay's row changes with each batch.
CREATE TABLE IF NOT EXISTS leasehold_outbox_part (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  part smallint NOT NULL CHECK (part IN (1, 2))
);

CREATE TABLE IF NOT EXISTS leasehold_outbox_relay (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  epoch integer NOT NULL,
  system_identifier bigint NOT NULL,
  batch bigint NOT NULL,
  relayed pg_snapshot NOT NULL,
  relayed_number bigint NOT NULL,
  relayed_bound xid8 NOT NULL,
  target pg_snapshot,
  target_number bigint NOT NULL DEFAULT 0,
  target_bound xid8 NOT NULL DEFAULT '1',
  last_number bigint NOT NULL DEFAULT 0,
  place bigint NOT NULL DEFAULT 0,
  number bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- The relay that works. It changes `beats` every few seconds. Another relay takes its place after it has seen the same number
-- for some time, by its own clock: no clock is compared with another one's. Two relays at once do no harm.
CREATE TABLE IF NOT EXISTS leasehold_outbox_holder (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  relay uuid,
  beats bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

CREATE TABLE IF NOT EXISTS leasehold_outbox_refused (
  number bigint PRIMARY KEY,
  refused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  reason text NOT NULL,
  written_at timestamptz NOT NULL,
  queue text NOT NULL,
  key text NOT NULL,
  request_id uuid NOT NULL,
  kind text NOT NULL,
  priority integer NOT NULL,
  due_at timestamptz NOT NULL,
  max_attempts integer NOT NULL,
  body bytea NOT NULL
);

-- The requests that transactions have done, and whose settle was refused, since the session had ended. The outbox has the
-- marks of settles that are not relayed. So this table has few rows.
CREATE TABLE IF NOT EXISTS leasehold_outbox_done (
  request_id uuid PRIMARY KEY,
  marked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON SEQUENCE leasehold_outbox_number IS 'The order in which rows of the outbox were written.';
COMMENT ON TABLE leasehold_outbox IS
  'Requests and settles of Leasehold''s queues that transactions have written, until a relay has handed them on.';
COMMENT ON COLUMN leasehold_outbox.part IS 'The partition: 1 or 2, which take turns.';
COMMENT ON COLUMN leasehold_outbox.transaction_id IS 'The top-level transaction that wrote the row.';
COMMENT ON COLUMN leasehold_outbox.requests IS 'The requests that the transaction has done.';
COMMENT ON COLUMN leasehold_outbox.due_at IS 'The time before which the request is not taken.';
COMMENT ON TABLE leasehold_outbox_part IS 'The partition of leasehold_outbox that is written.';
COMMENT ON TABLE leasehold_outbox_relay IS 'How far leasehold_outbox is relayed. Do not change it.';
COMMENT ON COLUMN leasehold_outbox_relay.epoch IS 'Grows if the rows came to another cluster, whose transaction ids differ.';
COMMENT ON COLUMN leasehold_outbox_relay.system_identifier IS 'The cluster whose transaction ids the snapshots have.';
COMMENT ON COLUMN leasehold_outbox_relay.batch IS 'The number of the batch that is under way, or of the next one.';
COMMENT ON COLUMN leasehold_outbox_relay.relayed IS 'The transactions of this snapshot are relayed.';
COMMENT ON COLUMN leasehold_outbox_relay.relayed_number IS
  'The number that was drawn last, shortly before the snapshot.';
COMMENT ON COLUMN leasehold_outbox_relay.relayed_bound IS
  'A transaction id that was given out after this number, and before the snapshot.';
COMMENT ON COLUMN leasehold_outbox_relay.target IS
  'The transactions of the batch are in this snapshot; null if none is under way.';
COMMENT ON COLUMN leasehold_outbox_relay.target_number IS 'The same as relayed_number, for the snapshot `target`.';
COMMENT ON COLUMN leasehold_outbox_relay.target_bound IS 'The same as relayed_bound, for the snapshot `target`.';
COMMENT ON COLUMN leasehold_outbox_relay.last_number IS 'No transaction of the batch has a larger number.';
COMMENT ON COLUMN leasehold_outbox_relay.place IS 'The last number of the transaction whose row was acknowledged last.';
COMMENT ON COLUMN leasehold_outbox_relay.number IS 'The number of the row that was acknowledged last.';
COMMENT ON TABLE leasehold_outbox_holder IS 'The relay that works, while others wait.';
COMMENT ON COLUMN leasehold_outbox_holder.relay IS 'Null if the relay has stopped.';
COMMENT ON COLUMN leasehold_outbox_holder.beats IS 'Grows for as long as the relay works.';
COMMENT ON TABLE leasehold_outbox_done IS
  'Requests that are done and that a worker may get once more. The relay forgets them.';
COMMENT ON TABLE leasehold_outbox_refused IS
  'Requests that the server has refused for good. leasehold_outbox_retry submits one again.';
COMMENT ON COLUMN leasehold_outbox_refused.number IS 'The number that the row had in leasehold_outbox.';

-- Adds the rows of a new outbox, and returns the partition that is written. A database that is loaded from a dump of the schema
-- alone has no rows, so the functions add them when they find none.
CREATE OR REPLACE FUNCTION leasehold_outbox_start() RETURNS smallint
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO leasehold_outbox_part (part) VALUES (1) ON CONFLICT DO NOTHING;
  INSERT INTO leasehold_outbox_holder DEFAULT VALUES ON CONFLICT DO NOTHING;
  -- The snapshot before the first transaction: all that is committed is still to be relayed.
  INSERT INTO leasehold_outbox_relay (epoch, system_identifier, batch, relayed, relayed_number, relayed_bound)
    SELECT 1, system_identifier, 1, '1:1:', 0, '1' FROM pg_control_system() ON CONFLICT DO NOTHING;
  RETURN (SELECT part FROM leasehold_outbox_part);
END
$$;

DO $$ BEGIN PERFORM leasehold_outbox_start(); END $$;

-- Returns the name of a field that the server would refuse; null if there is none. The outbox refuses it at once, since the
-- transaction can't be taken back later. A CHECK of the table would write the row's values into the error.
CREATE OR REPLACE FUNCTION leasehold_outbox_refused_field(added leasehold_outbox) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN (octet_length(added.queue) <= 255
      AND added.queue ~ '^[^./\x01-\x1f\x7f-\x9f]+([.][^./\x01-\x1f\x7f-\x9f]+)*$') IS NOT true THEN 'queue'
    WHEN (octet_length(added.key) <= 512 AND added.key ~ '^[^\x01-\x1f\x7f-\x9f]+$') IS NOT true THEN 'key'
    WHEN added.operation = 'submit' THEN CASE
      WHEN added.request_id IS NULL THEN 'id'
      WHEN (added.kind IN ('create', 'update')) IS NOT true THEN 'kind'
      WHEN (added.priority BETWEEN 0 AND 9) IS NOT true THEN 'priority'
      WHEN (added.due_at <= added.written_at + interval '365 days') IS NOT true THEN 'delay'
      WHEN (added.max_attempts BETWEEN 1 AND 1000) IS NOT true THEN 'max_attempts'
      WHEN (octet_length(added.body) <= 65536) IS NOT true THEN 'body'
    END
    WHEN added.session_id IS NULL THEN 'session_id'
    WHEN (added.fence > 0) IS NOT true THEN 'fence'
    WHEN array_ndims(added.requests) > 1 OR cardinality(added.requests) > 100 THEN 'requests'
    WHEN array_position(added.requests, NULL) IS NOT NULL THEN 'requests'
    WHEN (added.retry BETWEEN interval '0' AND interval '365 days') IS false THEN 'retry'
  END
$$;

-- Writes a row. The transaction gets its id before the number is drawn.
CREATE OR REPLACE FUNCTION leasehold_outbox_add(added leasehold_outbox) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  transaction_id CONSTANT xid8 := pg_current_xact_id();
  refused CONSTANT text := leasehold_outbox_refused_field(added);
BEGIN
  IF refused IS NOT NULL THEN
    RAISE EXCEPTION '`%` is missing, malformed or exceeds its limit', refused USING ERRCODE = 'invalid_parameter_value',
      HINT = 'The limits are those of the queues.';
  ELSIF getdatabaseencoding() = 'SQL_ASCII' THEN
    -- Such a database takes any bytes. A relay could not read them, so they raise an error here.
    PERFORM convert_from(textsend(added.queue || added.key), 'UTF8');
  END IF;
  INSERT INTO leasehold_outbox VALUES (
    coalesce((SELECT current.part FROM leasehold_outbox_part AS current), leasehold_outbox_start()), transaction_id,
    nextval('leasehold_outbox_number'::regclass),
    added.written_at, added.operation, added.queue, added.key, added.request_id, added.kind, added.priority, added.due_at,
    added.max_attempts, added.body, added.session_id, added.fence, added.retry, added.requests
  );
END
$$;

-- Submits a request as part of the transaction, and returns its id. A delay counts from this call.
-- A new id is a UUIDv7: the milliseconds since 1970 in 48 bits (RFC 9562, section 5.7), then the rest of a random id, whose
-- version 4 becomes 7. So a store finds requests of one time side by side, and forgets them together.
CREATE OR REPLACE FUNCTION leasehold_submit(
  queue text, key text, body bytea DEFAULT '', kind text DEFAULT 'update', priority integer DEFAULT 0,
  delay interval DEFAULT '0', max_attempts integer DEFAULT 25,
  id uuid DEFAULT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING
    substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  added leasehold_outbox;
BEGIN
  added.written_at := clock_timestamp();
  added.operation := 'submit';
  added.queue := queue;
  added.key := key;
  added.request_id := id;
  added.kind := kind;
  added.priority := priority;
  added.due_at := added.written_at + greatest(delay, interval '0');
  added.max_attempts := max_attempts;
  added.body := body;
  PERFORM leasehold_outbox_add(added);
  RETURN id;
END
$$;

-- Functions of a former version have other arguments or results, so they can't be replaced. The one that relays call is renamed
-- until the new one has its rights.
DO $$
DECLARE
  settle CONSTANT regprocedure := to_regprocedure(
    format('%I.leasehold_outbox_settle(text, uuid, text, text, bigint, interval)', current_schema()));
BEGIN
  IF settle IS NOT NULL THEN
    EXECUTE format('DROP FUNCTION %s', settle);
    EXECUTE format('ALTER FUNCTION %I.leasehold_outbox_read(bigint, integer, integer) RENAME TO leasehold_outbox_former_read',
      current_schema());
  END IF;
END
$$;

-- Writes the settle of what a worker has taken.
CREATE OR REPLACE FUNCTION leasehold_outbox_settle(
  operation text, session_id uuid, queue text, key text, fence bigint, retry interval, requests uuid[]
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  added leasehold_outbox;
BEGIN
  added.written_at := clock_timestamp();
  added.operation := operation;
  added.queue := queue;
  added.key := key;
  added.session_id := session_id;
  added.fence := fence;
  added.retry := retry;
  added.requests := requests;
  PERFORM leasehold_outbox_add(added);
END
$$;

-- Completes what a worker has taken, as part of the transaction.
CREATE OR REPLACE FUNCTION leasehold_complete(session_id uuid, queue text, key text, fence bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
  SELECT leasehold_outbox_settle('complete', session_id, queue, key, fence, NULL, NULL)
$$;

-- Completes it, and leaves done-marks of its requests, for the worker that may get them after this one.
CREATE OR REPLACE FUNCTION leasehold_complete(session_id uuid, queue text, key text, fence bigint, requests uuid[])
RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
  SELECT leasehold_outbox_settle('complete', session_id, queue, key, fence, NULL, requests)
$$;

-- Fails it, to be tried again after the time; without one the time doubles with each attempt.
CREATE OR REPLACE FUNCTION leasehold_fail(session_id uuid, queue text, key text, fence bigint, retry interval DEFAULT NULL)
RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
  SELECT leasehold_outbox_settle('fail', session_id, queue, key, fence, retry, NULL)
$$;

-- Gives it back; the attempt does not count.
CREATE OR REPLACE FUNCTION leasehold_give_back(session_id uuid, queue text, key text, fence bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
  SELECT leasehold_outbox_settle('give_back', session_id, queue, key, fence, NULL, NULL)
$$;

-- The number that was drawn last.
CREATE OR REPLACE FUNCTION leasehold_outbox_drawn() RETURNS bigint
LANGUAGE sql SECURITY DEFINER AS $$
  SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM leasehold_outbox_number
$$;

-- Begins a new epoch, in which all rows are relayed again. A dump that is restored, or a new cluster after pg_upgrade, has
-- other transaction ids than those in the rows: with them a new row could pass for relayed. So all committed rows become
-- those of this transaction, which commits after the snapshot that then counts as relayed. Rows that are written meanwhile
-- have ids of this cluster and are not in the snapshot either.
CREATE OR REPLACE FUNCTION leasehold_outbox_begin_epoch(cluster bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  own CONSTANT xid8 := pg_current_xact_id();
BEGIN
  -- A snapshot does not list its own transaction as under way, so it is added. Both UPDATEs have the statement's snapshot.
  WITH present AS (SELECT pg_current_snapshot() AS snapshot), under_way AS (
    SELECT string_agg(id::text, ',' ORDER BY id) AS ids, max(id::text::numeric) + 1 AS after FROM (
      SELECT pg_snapshot_xip(snapshot) AS id FROM present UNION SELECT own
    ) AS ids
  ), moved AS (
    UPDATE leasehold_outbox SET transaction_id = own
  )
  UPDATE leasehold_outbox_relay SET
    epoch = epoch + 1, system_identifier = cluster, batch = batch + 1, target = NULL, relayed_number = 0, relayed_bound = own,
    relayed = format('%s:%s:%s', split_part(ids, ',', 1), greatest(after, pg_snapshot_xmax(snapshot)::text::numeric), ids)
      ::pg_snapshot
    FROM present, under_way;
END
$$;

-- Returns the transactions of a batch that may have drawn all their numbers before the former snapshot, each with its last
-- number: those that were under way when it was taken. The snapshot lists some, the others are below the bound.
CREATE OR REPLACE FUNCTION leasehold_outbox_late(relay leasehold_outbox_relay) RETURNS TABLE (id xid8, last bigint)
LANGUAGE sql SECURITY DEFINER SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
  WITH RECURSIVE above(id) AS (
    (SELECT transaction_id FROM leasehold_outbox
      WHERE transaction_id >= pg_snapshot_xmax(relay.relayed) AND transaction_id < relay.relayed_bound
      ORDER BY transaction_id LIMIT 1)
    UNION ALL
    SELECT (SELECT transaction_id FROM leasehold_outbox
      WHERE transaction_id > above.id AND transaction_id < relay.relayed_bound ORDER BY transaction_id LIMIT 1)
      FROM above WHERE above.id IS NOT NULL
  )
  SELECT under_way.id, newest.number FROM (
    SELECT pg_snapshot_xip(relay.relayed) AS id UNION ALL SELECT above.id FROM above
  ) AS under_way CROSS JOIN LATERAL (
    SELECT number FROM leasehold_outbox WHERE transaction_id = under_way.id ORDER BY number DESC LIMIT 1
  ) AS newest WHERE pg_visible_in_snapshot(under_way.id, relay.target) AND newest.number <= relay.relayed_number
$$;

-- True if transactions have committed since the last batch, or if many numbers were drawn: without a batch, each call would
-- read the rows of these numbers again, which no transaction has committed.
CREATE OR REPLACE FUNCTION leasehold_outbox_has_news(relay leasehold_outbox_relay) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
  relay.target := pg_current_snapshot();
  RETURN leasehold_outbox_drawn() >= relay.relayed_number + 10000 OR EXISTS (
    SELECT FROM leasehold_outbox AS added WHERE added.number > relay.relayed_number
      AND pg_visible_in_snapshot(added.transaction_id, relay.target)
      AND NOT pg_visible_in_snapshot(added.transaction_id, relay.relayed)
  ) OR EXISTS (SELECT FROM leasehold_outbox_late(relay));
END
$$;

-- Refuses isolation levels in which a statement does not see what has committed before it.
CREATE OR REPLACE FUNCTION leasehold_outbox_check_isolation() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'this call needs the isolation level `read committed`' USING ERRCODE = 'invalid_transaction_state';
  END IF;
END
$$;

-- Begins a batch, or returns the one that is under way. Both results are null if nothing is to be relayed; such a call writes
-- nothing. If the call begins an epoch, it returns the epoch without a batch.
CREATE OR REPLACE FUNCTION leasehold_outbox_begin(OUT batch bigint, OUT epoch integer)
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  cluster CONSTANT bigint := (SELECT control.system_identifier FROM pg_control_system() AS control);
  drawn CONSTANT bigint := leasehold_outbox_drawn();
  relay leasehold_outbox_relay;
  bound xid8;
BEGIN
  PERFORM leasehold_outbox_check_isolation();
  IF NOT EXISTS (SELECT FROM leasehold_outbox_relay) THEN
    PERFORM leasehold_outbox_start();
  END IF;
  SELECT * INTO STRICT relay FROM leasehold_outbox_relay;
  IF relay.system_identifier = cluster AND relay.target IS NULL AND NOT leasehold_outbox_has_news(relay) THEN
    RETURN;
  END IF;
  -- The number was read above, and the snapshot is that of the UPDATE below.
  bound := pg_current_xact_id();
  SELECT * INTO STRICT relay FROM leasehold_outbox_relay FOR UPDATE;
  IF relay.system_identifier <> cluster THEN
    PERFORM leasehold_outbox_begin_epoch(cluster);
    -- The next call sees the moved rows as committed.
    epoch := relay.epoch + 1;
    RETURN;
  ELSIF relay.target IS NULL THEN
    UPDATE leasehold_outbox_relay SET
      target = pg_current_snapshot(), target_number = drawn, target_bound = bound, last_number = leasehold_outbox_drawn(),
      place = 0, number = 0;
  END IF;
  -- The rows of a batch must survive a crash, also if they were committed with synchronous_commit = off. The COMMIT of this call
  -- writes the log up to here.
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  batch := relay.batch;
  epoch := relay.epoch;
END
$$;

-- Reads the next rows of a batch, at least one and at most these numbers of rows and of bytes in bodies. A row of the
-- operation `pass` has nothing to relay: it is only acknowledged, after many numbers without a transaction's last row.
CREATE OR REPLACE FUNCTION leasehold_outbox_read(batch bigint, max_rows integer, max_bytes integer)
RETURNS TABLE (
  place bigint, number bigint, operation text, queue text, key text, request_id uuid, kind text, priority integer,
  delay interval, max_attempts integer, body bytea, session_id uuid, fence bigint, retry interval, written_at timestamptz,
  requests uuid[]
)
LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  relay leasehold_outbox_relay;
  ended record;
  added leasehold_outbox;
  read_rows integer := 0;
  read_bytes bigint := 0;
BEGIN
  SELECT * INTO relay FROM leasehold_outbox_relay AS found WHERE found.batch = leasehold_outbox_read.batch;
  IF relay.target IS NULL THEN
    RAISE EXCEPTION 'the batch is not under way' USING ERRCODE = 'LH003', HINT = 'Begin the next batch.';
  END IF;
  -- The transactions of the batch in order, each with its last number.
  FOR ended IN
    SELECT late.id, late.last FROM leasehold_outbox_late(relay) AS late WHERE late.last >= relay.place
    UNION ALL
    SELECT walked.transaction_id, walked.number FROM (
      SELECT passed.transaction_id, passed.number FROM leasehold_outbox AS passed
        WHERE passed.number > relay.relayed_number AND passed.number BETWEEN relay.place AND relay.last_number
        ORDER BY passed.number LIMIT 5000
    ) AS walked
      WHERE pg_visible_in_snapshot(walked.transaction_id, relay.target)
        AND NOT pg_visible_in_snapshot(walked.transaction_id, relay.relayed)
        AND NOT EXISTS (
          SELECT FROM leasehold_outbox AS later
            WHERE later.transaction_id = walked.transaction_id AND later.number > walked.number
        )
    ORDER BY 2
  LOOP
    FOR added IN
      SELECT * FROM leasehold_outbox AS present
        WHERE present.transaction_id = ended.id AND (ended.last > relay.place OR present.number > relay.number)
        ORDER BY present.number LIMIT max_rows - read_rows
    LOOP
      read_bytes := read_bytes + coalesce(octet_length(added.body), 0);
      IF read_rows > 0 AND read_bytes > max_bytes THEN
        RETURN;
      END IF;
      read_rows := read_rows + 1;
      RETURN QUERY SELECT ended.last, added.number, added.operation, added.queue, added.key, added.request_id, added.kind,
        added.priority, greatest(added.due_at - clock_timestamp(), interval '0'), added.max_attempts, added.body,
        added.session_id, added.fence, added.retry, added.written_at, added.requests;
    END LOOP;
    IF read_rows >= max_rows THEN
      RETURN;
    END IF;
  END LOOP;
  IF read_rows = 0 THEN
    RETURN QUERY SELECT passed.number, passed.number, 'pass', NULL::text, NULL::text, NULL::uuid, NULL::text, NULL::integer,
      NULL::interval, NULL::integer, NULL::bytea, NULL::uuid, NULL::bigint, NULL::interval, passed.written_at,
      NULL::uuid[] FROM leasehold_outbox AS passed
      WHERE passed.number > relay.relayed_number AND passed.number BETWEEN relay.place AND relay.last_number
      ORDER BY passed.number OFFSET 4999 LIMIT 1;
  END IF;
END
$$;

-- Notes that all rows of the batch up to this one are relayed; place and number are those of the row. True if it was the
-- last, so that the batch is done. The call may be repeated. A relay that was overtaken by another may acknowledge what it has
-- delivered. It changes nothing if the other one has acknowledged as much, or has finished the batch.
CREATE OR REPLACE FUNCTION leasehold_outbox_acknowledge(batch bigint, place bigint, number bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  relay leasehold_outbox_relay;
BEGIN
  SELECT * INTO STRICT relay FROM leasehold_outbox_relay FOR UPDATE;
  IF relay.batch <> leasehold_outbox_acknowledge.batch OR relay.target IS NULL THEN
    RETURN true;
  END IF;
  IF (leasehold_outbox_acknowledge.place, leasehold_outbox_acknowledge.number) > (relay.place, relay.number) THEN
    UPDATE leasehold_outbox_relay AS present
      SET place = leasehold_outbox_acknowledge.place, number = leasehold_outbox_acknowledge.number;
  END IF;
  IF EXISTS (SELECT FROM leasehold_outbox_read(relay.batch, 1, 1)) THEN
    RETURN false;
  END IF;
  UPDATE leasehold_outbox_relay AS present SET
    batch = present.batch + 1, relayed = present.target, relayed_number = present.target_number,
    relayed_bound = present.target_bound, target = NULL, place = 0, number = 0;
  RETURN true;
END
$$;

-- Makes a relay, which has an id of its own, the one that works. It may be that already, and says so every few seconds. It
-- takes the place of one that has stopped, and of one whose `beats` it has seen unchanged for long: it names their number. A
-- relay that has to wait gets false, and the number.
CREATE OR REPLACE FUNCTION leasehold_outbox_hold(relay uuid, seen bigint, OUT holds boolean, OUT beats bigint)
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  present leasehold_outbox_holder;
BEGIN
  IF NOT EXISTS (SELECT FROM leasehold_outbox_holder) THEN
    PERFORM leasehold_outbox_start();
  END IF;
  SELECT * INTO STRICT present FROM leasehold_outbox_holder;
  holds := false;
  beats := present.beats;
  -- A relay that waits writes nothing.
  IF present.relay IS NULL OR present.relay = leasehold_outbox_hold.relay OR present.beats = seen THEN
    UPDATE leasehold_outbox_holder AS holder SET relay = leasehold_outbox_hold.relay, beats = holder.beats + 1
      WHERE holder.relay IS NULL OR holder.relay = leasehold_outbox_hold.relay OR holder.beats = seen;
    holds := FOUND;
  END IF;
END
$$;

-- Says that a relay stops, so that another takes its place at once.
CREATE OR REPLACE FUNCTION leasehold_outbox_release(relay uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
  UPDATE leasehold_outbox_holder AS holder SET relay = NULL WHERE holder.relay = leasehold_outbox_release.relay
$$;

-- Sets aside a row that the server has refused for good. The caller acknowledges it in the same transaction. A settle is not
-- kept: it is refused if the batch has come back already, or is another worker's. Its done-marks are.
CREATE OR REPLACE FUNCTION leasehold_outbox_refuse(batch bigint, place bigint, number bigint, reason text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off SET jit = off AS $$
DECLARE
  relay leasehold_outbox_relay;
BEGIN
  SELECT * INTO STRICT relay FROM leasehold_outbox_relay FOR UPDATE;
  -- The row may be acknowledged already: by a repeated call, or by a relay that has overtaken this one.
  IF relay.batch = leasehold_outbox_refuse.batch AND relay.target IS NOT NULL
    AND (leasehold_outbox_refuse.place, leasehold_outbox_refuse.number) > (relay.place, relay.number)
  THEN
    INSERT INTO leasehold_outbox_refused
      SELECT added.number, clock_timestamp(), leasehold_outbox_refuse.reason, added.written_at, added.queue, added.key,
          added.request_id, added.kind, added.priority, added.due_at, added.max_attempts, added.body
        FROM leasehold_outbox AS added
        WHERE added.number = leasehold_outbox_refuse.number AND added.operation = 'submit'
      ON CONFLICT DO NOTHING;
    INSERT INTO leasehold_outbox_done (request_id)
      SELECT DISTINCT unnest(added.requests) FROM leasehold_outbox AS added
        WHERE added.number = leasehold_outbox_refuse.number AND added.operation = 'complete'
      ON CONFLICT DO NOTHING;
  END IF;
END
$$;

-- Returns those of the requests that a transaction has done. The caller has called leasehold_guard before. The lock keeps
-- rotation from emptying a partition until the transaction ends: TRUNCATE hides its rows from older snapshots as well.
CREATE OR REPLACE FUNCTION leasehold_done(queue text, key text, requests uuid[]) RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off SET jit = off AS $$
DECLARE
  since xid8;
BEGIN
  PERFORM leasehold_outbox_check_isolation();
  LOCK TABLE leasehold_outbox IN ACCESS SHARE MODE;
  -- Rows that are relayed are settled, or in leasehold_outbox_done. Ids of another cluster can't be compared.
  SELECT CASE WHEN control.system_identifier = relay.system_identifier THEN pg_snapshot_xmin(relay.relayed) ELSE '0' END
    INTO STRICT since FROM leasehold_outbox_relay AS relay, pg_control_system() AS control;
  RETURN ARRAY(
    SELECT marked.id FROM (
      SELECT unnest(added.requests) AS id FROM leasehold_outbox AS added
        WHERE added.operation = 'complete' AND added.queue = leasehold_done.queue AND added.key = leasehold_done.key
          AND added.transaction_id >= since
      UNION
      SELECT request_id FROM leasehold_outbox_done WHERE request_id = ANY (leasehold_done.requests)
    ) AS marked WHERE marked.id = ANY (leasehold_done.requests)
  );
END
$$;

-- Returns requests with done-marks in the order of their ids.
CREATE OR REPLACE FUNCTION leasehold_outbox_marks(after uuid, max_rows integer) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER AS $$
  SELECT request_id FROM leasehold_outbox_done WHERE request_id > after ORDER BY request_id LIMIT max_rows
$$;

-- Forgets done-marks. A relay does so once the server has the requests as complete, or has forgotten them.
CREATE OR REPLACE FUNCTION leasehold_outbox_forget(requests uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
  DELETE FROM leasehold_outbox_done WHERE request_id = ANY (requests)
$$;

-- Submits a refused request again, as part of the transaction. False if there is none with this number.
CREATE OR REPLACE FUNCTION leasehold_outbox_retry(number bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  refused leasehold_outbox_refused;
BEGIN
  DELETE FROM leasehold_outbox_refused AS present WHERE present.number = leasehold_outbox_retry.number
    RETURNING * INTO refused;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM leasehold_submit(refused.queue, refused.key, refused.body, refused.kind, refused.priority,
    refused.due_at - clock_timestamp(), refused.max_attempts, refused.request_id);
  RETURN true;
END
$$;

-- The number of refused requests, up to 10,000.
CREATE OR REPLACE FUNCTION leasehold_outbox_refusals() RETURNS bigint
LANGUAGE sql SECURITY DEFINER AS $$
  SELECT count(*) FROM (SELECT FROM leasehold_outbox_refused LIMIT 10000) AS counted
$$;

-- True if a row of the partition is not relayed.
CREATE OR REPLACE FUNCTION leasehold_outbox_is_needed(part smallint) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET enable_seqscan = off SET jit = off AS $$
  SELECT EXISTS (
    SELECT FROM leasehold_outbox AS added, leasehold_outbox_relay AS relay
      WHERE added.part = leasehold_outbox_is_needed.part AND added.transaction_id >= pg_snapshot_xmin(relay.relayed)
        AND NOT pg_visible_in_snapshot(added.transaction_id, relay.relayed)
  )
$$;

-- Empties the partition that is not written, if all of it is relayed, and returns `emptied`. If it is empty, and the other
-- one has this size in bytes, the partitions change places: `switched`. Otherwise, or while a transaction has locked the
-- partition, the result is null.
--
-- A transaction with an older snapshot may write into the partition after the switch. It keeps its lock on the partition
-- until it ends, and its rows are read from there, so nothing depends on the switch but the size.
CREATE OR REPLACE FUNCTION leasehold_outbox_rotate(min_bytes bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  written CONSTANT smallint := (SELECT current.part FROM leasehold_outbox_part AS current FOR UPDATE);
  other CONSTANT smallint := 3 - written;
BEGIN
  PERFORM leasehold_outbox_check_isolation();
  IF pg_relation_size(format('leasehold_outbox_%s', other)::regclass) = 0 THEN
    -- A large body is in the table's TOAST, which only `pg_table_size` counts.
    IF pg_relation_size(format('leasehold_outbox_%s', written)::regclass) = 0
      OR pg_table_size(format('leasehold_outbox_%s', written)::regclass) < min_bytes THEN
      RETURN NULL;
    END IF;
    UPDATE leasehold_outbox_part SET part = other;
    RETURN 'switched';
  END IF;
  IF leasehold_outbox_is_needed(other) THEN
    RETURN NULL;
  END IF;
  BEGIN
    EXECUTE format('LOCK TABLE leasehold_outbox_%s IN ACCESS EXCLUSIVE MODE NOWAIT', other);
  EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
  END;
  -- No transaction has written rows that this one can't see: each would have the lock.
  IF leasehold_outbox_is_needed(other) THEN
    RETURN NULL;
  END IF;
  EXECUTE format('TRUNCATE leasehold_outbox_%s', other);
  RETURN 'emptied';
END
$$;

-- The functions find the tables in the schema of this installation, whatever the caller's search path, and never in the
-- caller's temporary tables. They run with the rights of the owner, so PUBLIC may not call them. A right that was granted
-- before stays. A new function of a known name gets the rights that roles have on the one with other arguments or results.
DO $$
DECLARE
  former CONSTANT regprocedure :=
    to_regprocedure(format('%I.leasehold_outbox_former_read(bigint, integer, integer)', current_schema()));
  found record;
  granted record;
BEGIN
  FOR found IN
    SELECT oid::regprocedure AS name, proname, proacl IS NULL AS is_new FROM pg_proc
      WHERE pronamespace = quote_ident(current_schema())::regnamespace
        AND proname ~ ('^leasehold_(submit|complete|done|fail|give_back|outbox_(start|refused_field|add|settle|drawn|begin_epoch'
          || '|late|has_news|check_isolation|begin|read|acknowledge|hold|release|refuse|retry|refusals|marks|forget|is_needed|rotate))$')
  LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', found.name, current_schema());
    IF found.is_new THEN
      EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', found.name);
      FOR granted IN
        SELECT DISTINCT CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END AS role,
            CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option
          FROM pg_proc, aclexplode(proacl)
          WHERE pronamespace = quote_ident(current_schema())::regnamespace AND oid <> found.name AND grantee <> proowner
            AND proname IN (found.proname, replace(found.proname, '_outbox_', '_outbox_former_'))
      LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s%s', found.name, granted.role, granted.option);
      END LOOP;
    END IF;
  END LOOP;
  IF former IS NOT NULL THEN
    EXECUTE format('DROP FUNCTION %s', former);
  END IF;
END
$$;
