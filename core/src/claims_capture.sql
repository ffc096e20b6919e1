-- The capture of claimed columns, for PostgreSQL 13 and later. Install the outbox and the capture of tables first (leasehold
-- outbox, leasehold capture). Run this in one transaction, in the schema of the outbox, as its owner, who must also own the
-- tables. It may be run again.
--
--     SELECT leasehold_capture_claims('users', ARRAY['id', 'username'], strict => false);
--
-- From then on each statement that changes one of these columns writes a row into the outbox, in its own transaction: also raw
-- SQL, COPY, cascades of foreign keys and TRUNCATE. A relay of the cell reads the row and verifies the claims of the changed
-- rows. An UPDATE that leaves the columns as they are writes nothing.
--
-- With strict => true, the COMMIT of a change is refused (SQLSTATE LH010) unless the code that begins claims has named the row
-- with its values. It appends lines to a setting of the transaction, which a rollback to a savepoint takes back:
--
--     SELECT set_config('leasehold.covered_claims', concat_ws(E'\n', nullif(current_setting('leasehold.covered_claims', true),
--       ''), '["public.users", [7], {"id": 7, "username": "alice"}]'), true);
--
-- A line has the table, the primary key, and the values after the transaction: null for each if the row is deleted. The values
-- are compared as they are spelled. SQL makes no canonical forms: these are the engine's.
--
-- Some changes are not seen: those of a session with session_replication_role = replica, of disabled triggers, and of
-- partitions that came later. A check lists such gaps: SELECT * FROM leasehold_claims_gaps();

CREATE TABLE IF NOT EXISTS leasehold_claims_captures (
  captured regclass PRIMARY KEY,
  columns text[] NOT NULL,
  is_strict boolean NOT NULL
);

COMMENT ON TABLE leasehold_claims_captures IS 'The tables whose claimed columns are captured.';
COMMENT ON COLUMN leasehold_claims_captures.is_strict IS 'True if changes without claims are refused.';

-- Makes the function that the triggers of a table call. Both halves of the text `[old],[new]` are equal if nothing changed: the
-- first complete array of the text is the old values.
CREATE OR REPLACE FUNCTION leasehold_claims_function(root regclass, key text[], columns text[], queue text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  name CONSTANT text := format('leasehold_claims_%s', nextval('leasehold_capture_number'::regclass));
  head CONSTANT text := format('{"table":%s,"key":%s,"columns":%s,"operation":',
    to_json(leasehold_capture_name(root)), to_json(key), to_json(columns));
  submit CONSTANT text := format('%L, %L', queue, leasehold_capture_name(root));
  changed CONSTANT text :=
    'SELECT key, changes FROM (%s OFFSET 0) AS changed_rows WHERE changes LIKE ''null,%%'' OR changes LIKE ''%%,null''
      OR left(changes, length(changes) / 2) <> right(changes, length(changes) / 2)';
  statements text[];
  present text[];
BEGIN
  IF octet_length(head) > 1400 THEN
    RAISE EXCEPTION 'the names of the columns have more than 1,400 bytes' USING ERRCODE = 'program_limit_exceeded',
      HINT = 'Choose fewer columns.';
  END IF;
  SELECT array_agg(leasehold_capture_statement(
      format('%s"%s"', head, operation), format(changed, leasehold_capture_rows(operation, root, key, columns, true)), true, NULL,
      submit
    ) ORDER BY turn), array_agg(format(changed, leasehold_capture_present(operation, root, key, columns)) ORDER BY turn)
    INTO statements, present FROM unnest(ARRAY['INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS operations(operation, turn);
  EXECUTE format(
    'CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER %s AS %L',
    name, leasehold_capture_settings(), format(
      '#variable_conflict use_column
      DECLARE
        piece text;
      BEGIN
        IF TG_OP = ''TRUNCATE'' THEN PERFORM leasehold_submit(%s, convert_to(%L, ''UTF8''), max_attempts => 1000);
        %s
        ELSIF TG_OP = ''INSERT'' THEN %s
        ELSIF TG_OP = ''UPDATE'' THEN %s
        ELSE %s
        END IF;
        RETURN NULL;
      END',
      submit, head || '"TRUNCATE","rows":[]}', leasehold_capture_late_branch(
        format('claims_%s', leasehold_capture_top(root)), head, '', present, submit),
      statements[1], statements[2], statements[3]));
  EXECUTE format('REVOKE ALL ON FUNCTION %I() FROM PUBLIC', name);
  RETURN name;
END
$$;

-- Makes the triggers of a table.
CREATE OR REPLACE FUNCTION leasehold_claims_triggers(member regclass, function_name text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  event record;
BEGIN
  FOR event IN
    SELECT * FROM (VALUES
      ('insert', 'REFERENCING NEW TABLE AS leasehold_new'),
      ('update', 'REFERENCING OLD TABLE AS leasehold_old NEW TABLE AS leasehold_new'),
      ('delete', 'REFERENCING OLD TABLE AS leasehold_old'),
      ('truncate', '')
    ) AS events(operation, tables)
  LOOP
    EXECUTE format('CREATE TRIGGER leasehold_claims_%s AFTER %1$s ON %s %s FOR EACH STATEMENT EXECUTE FUNCTION %I()',
      event.operation, member, event.tables, function_name);
  END LOOP;
END
$$;

-- Drops the triggers of a table, and the function that they call.
CREATE OR REPLACE FUNCTION leasehold_claims_drop(member regclass) RETURNS void
LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
  found regprocedure;
BEGIN
  FOR found IN
    SELECT DISTINCT tgfoid FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
      WHERE tgrelid = member AND tgname LIKE 'leasehold\_claims\_%' AND proname ~ '^leasehold_claims_[0-9]+$'
  LOOP
    EXECUTE format('DROP FUNCTION %s CASCADE', found);
  END LOOP;
END
$$;

-- Captures the claimed columns of a table, and of all its partitions and children. A repeated call replaces the former capture.
CREATE OR REPLACE FUNCTION leasehold_capture_claims(root regclass, columns text[], strict boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  primary_key CONSTANT text[] := leasehold_capture_key(root);
  queue CONSTANT text := CASE WHEN strict THEN 'leasehold.claims.strict' ELSE 'leasehold.claims' END;
  member regclass;
BEGIN
  IF columns = '{}' THEN
    RAISE EXCEPTION 'no column of `%` is named', root USING ERRCODE = 'invalid_parameter_value',
      HINT = 'The capture of claims needs at least one column.';
  END IF;
  PERFORM leasehold_capture_check(root, columns);
  FOR member IN SELECT * FROM leasehold_capture_tree(root) LOOP
    PERFORM leasehold_claims_drop(member);
    PERFORM leasehold_claims_triggers(member, leasehold_claims_function(root, primary_key, columns, queue));
  END LOOP;
  INSERT INTO leasehold_claims_captures AS present VALUES (root, columns, strict) ON CONFLICT (captured)
    DO UPDATE SET columns = excluded.columns, is_strict = excluded.is_strict;
END
$$;

-- Ends the capture of a table's claimed columns.
CREATE OR REPLACE FUNCTION leasehold_end_claims_capture(root regclass) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM leasehold_claims_drop(tree.member) FROM leasehold_capture_tree(root) AS tree(member);
  DELETE FROM leasehold_claims_captures WHERE captured = root;
END
$$;

-- Returns a table of which the transaction has changed claimed columns that nobody has named with their last values; null if
-- there is none. A change of a row that nobody has named may be taken back: the value before the transaction's first statement is
-- compared with that after the last. Rows whose values are too large to be in the outbox, and TRUNCATE, count as not named.
CREATE OR REPLACE FUNCTION leasehold_claims_uncovered(own xid8) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET jit = off AS $$
  WITH bodies AS MATERIALIZED (
    SELECT number, convert_from(body, 'UTF8')::jsonb AS body FROM leasehold_outbox
      WHERE transaction_id = own AND queue = 'leasehold.claims.strict'
  ), changed AS MATERIALIZED (
    SELECT number, body->>'table' AS name, body->'columns' AS columns, item
      FROM bodies, jsonb_array_elements(body->'rows') AS items(item)
  ), net AS (
    SELECT name, item->0 AS key, column_name, (array_agg(nullif(item->1->(place - 1)::integer, 'null') ORDER BY number))[1] AS former,
      (array_agg(nullif(item->2->(place - 1)::integer, 'null') ORDER BY number DESC))[1] AS latter
      FROM changed, jsonb_array_elements_text(columns) WITH ORDINALITY AS names(column_name, place)
      GROUP BY name, item->0, column_name
  ), lines AS MATERIALIZED (
    SELECT line::jsonb AS line, place
      FROM regexp_split_to_table(nullif(current_setting('leasehold.covered_claims', true), ''), E'\n')
        WITH ORDINALITY AS texts(line, place)
  ), covered AS (
    SELECT DISTINCT ON (line->>0, line->1, field.key) line->>0 AS name, line->1 AS key, field.key AS column_name,
      nullif(field.value, 'null') AS latter
      FROM lines, jsonb_each(line->2) AS field ORDER BY line->>0, line->1, field.key, place DESC
  )
  (SELECT body->>'table' FROM bodies WHERE body->>'operation' = 'TRUNCATE'
    UNION ALL SELECT name FROM changed WHERE jsonb_array_length(item) < 3 OR item->0 = '[null]'
    UNION ALL SELECT name FROM net LEFT JOIN covered USING (name, key, column_name)
      -- A named row has the claims of its named values, so its values must be these, even if they are the former ones again.
      WHERE (net.former IS DISTINCT FROM net.latter OR covered.column_name IS NOT NULL)
        AND (covered.column_name IS NULL OR covered.latter IS DISTINCT FROM net.latter)
  ) LIMIT 1
$$;

-- Refuses the COMMIT of changes that no claims were begun for. The last row of the transaction checks all of them.
CREATE OR REPLACE FUNCTION leasehold_claims_refuse() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  uncovered text;
BEGIN
  IF EXISTS (
    SELECT FROM leasehold_outbox AS later WHERE later.transaction_id = NEW.transaction_id AND later.number > NEW.number
      AND later.queue = NEW.queue
  ) THEN
    RETURN NULL;
  END IF;
  uncovered := leasehold_claims_uncovered(NEW.transaction_id);
  IF uncovered IS NOT NULL THEN
    RAISE EXCEPTION 'claimed columns of `%` were changed without a claim', uncovered USING ERRCODE = 'LH010',
      HINT = 'Change the rows by their model, which begins the claims. The capture of the table is strict.';
  END IF;
  RETURN NULL;
END
$$;

-- The condition is checked when the row is written, so other rows of the outbox cost nothing at COMMIT.
DROP TRIGGER IF EXISTS leasehold_claims_refuse ON leasehold_outbox;
CREATE CONSTRAINT TRIGGER leasehold_claims_refuse AFTER INSERT ON leasehold_outbox DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.queue = 'leasehold.claims.strict') EXECUTE FUNCTION leasehold_claims_refuse();

-- Lists changes of claimed columns that would not be captured: a table, and the reason.
CREATE OR REPLACE FUNCTION leasehold_claims_gaps() RETURNS TABLE (member regclass, gap text)
LANGUAGE sql STABLE AS $$
  SELECT tree.member, format('no trigger for %s: call leasehold_capture_claims again', event)
    FROM leasehold_claims_captures, leasehold_capture_tree(captured) AS tree(member),
      unnest(ARRAY['insert', 'update', 'delete', 'truncate']) AS event
    WHERE NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = tree.member AND tgname = 'leasehold_claims_' || event)
  UNION ALL
  SELECT member, 'its row security is forced on its owner: statements fail'
    FROM leasehold_claims_captures, leasehold_capture_hidden(captured) AS tables(member)
  UNION ALL
  SELECT tgrelid::regclass, format('the trigger `%s` is disabled', tgname) FROM pg_trigger
    WHERE tgname LIKE 'leasehold\_claims\_%' AND tgenabled NOT IN ('O', 'A')
$$;

-- The functions find the tables in the schema of this installation. The owner of the tables calls them.
DO $$
DECLARE
  found record;
BEGIN
  FOR found IN
    SELECT oid::regprocedure AS name, proacl IS NULL AS is_new FROM pg_proc
      WHERE pronamespace = quote_ident(current_schema())::regnamespace
        AND proname ~ '^leasehold_(capture_claims|end_claims_capture|claims_(function|triggers|drop|uncovered|refuse|gaps))$'
  LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', found.name, current_schema());
    IF found.is_new THEN
      EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', found.name);
    END IF;
  END LOOP;
END
$$;
