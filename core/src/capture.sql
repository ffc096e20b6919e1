-- The capture of tables for Leasehold's queues, for PostgreSQL 13 and later. Install the outbox first (leasehold outbox).
-- Run this in one transaction (psql --single-transaction), in the schema of the outbox, as its owner, who must also own the
-- tables. It may be run again.
--
--     SELECT leasehold_capture('users', 'changes', ARRAY['name', 'email'], 'changes');
--
-- From then on each statement that changes rows of the table submits what it has changed, in its own transaction: also raw
-- SQL, COPY, cascades of foreign keys and TRUNCATE. The arguments are the table, the queue, the columns whose values are
-- handed on, and the key of the lane. With the key NULL it is the table's name. Changes of one lane are worked in their order.
--
-- The body of a request is JSON:
--
--     {"table": "public.users", "operation": "UPDATE", "key": ["id"], "columns": ["name", "email"],
--      "rows": [[[7], ["old name", "old@example.com"], ["new name", "new@example.com"]]]}
--
-- Each row is an array: its primary key, its old values, its new values. The values are null where there are none. They are
-- left out if no columns are chosen, or if they are too large: read the row by its key then. A key that is too large is
-- [null]. An UPDATE that changes primary keys has the old key as a row without new values, and the new one as a row without
-- old values; if no columns are chosen, old keys come first, and as requests of their own. A statement of many rows is
-- several requests of at most 64 KiB. TRUNCATE has no rows. A statement that names a partition has its name as "partition".
-- Values have the same text in all sessions, whatever their DateStyle is. That of type money follows lc_monetary.
--
-- The triggers do not see:
--
--   * statements in a session with session_replication_role = replica, as those of logical replication, and under DISABLE
--     TRIGGER, as pg_restore --disable-triggers has it: PostgreSQL fires no trigger then
--   * partitions that were attached or created later: call leasehold_capture again
--   * DROP TABLE, DETACH PARTITION and ALTER TABLE, which change no rows
--
-- A check lists such gaps: SELECT * FROM leasehold_capture_gaps();
--
-- A table that is renamed has its former name in the requests until leasehold_capture is called again.
-- If a column of the key or a chosen one is renamed or dropped, or a whole number gets another type, statements that change the
-- table fail until leasehold_capture is called again. So no change is missed. Keys must be unique among a table and the tables
-- that inherit from it. In a database of the encoding SQL_ASCII, the values must be UTF-8.
--
-- The functions run with the rights of the owner. A table whose row security is forced on its owner can't be captured: the owner
-- would not see all rows.
--
-- The new values are those after the statement. If a trigger of the table has changed the row meanwhile, or an action of a
-- foreign key, they are those that the row has when the request is written. So the last request of a row has its last values.

CREATE TABLE IF NOT EXISTS leasehold_captures (
  captured regclass PRIMARY KEY,
  queue text NOT NULL,
  columns text[] NOT NULL,
  key text NOT NULL
);
ALTER TABLE leasehold_captures ADD COLUMN IF NOT EXISTS primary_key text[];

-- Names of functions are from a sequence: after a dump and its restore, tables have other oids, and may have other names.
CREATE SEQUENCE IF NOT EXISTS leasehold_capture_number;

COMMENT ON SEQUENCE leasehold_capture_number IS 'The numbers in the names of trigger functions.';
COMMENT ON TABLE leasehold_captures IS 'The tables whose changes are submitted to queues of Leasehold.';

-- Returns a table with all of its partitions and children.
CREATE OR REPLACE FUNCTION leasehold_capture_tree(root regclass) RETURNS SETOF regclass
LANGUAGE sql STABLE AS $$
  WITH RECURSIVE tree(member) AS (
    SELECT root::oid UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = tree.member
  ) SELECT tree.member::regclass FROM tree
$$;

-- Returns the columns of the primary key in their order. While a deferrable key waits for its check, two rows may have it.
CREATE OR REPLACE FUNCTION leasehold_capture_key(root regclass) RETURNS text[]
LANGUAGE sql STABLE AS $$
  SELECT array_agg(attname::text ORDER BY place)
    FROM pg_index, unnest(indkey::smallint[]) WITH ORDINALITY AS parts(number, place)
      JOIN pg_attribute ON attnum = parts.number
    WHERE indrelid = root AND attrelid = root AND indisprimary AND indimmediate AND place <= indnkeyatts
$$;

-- Returns the SQL that compares the primary keys of two rows. The operator of a type may be in any schema.
CREATE OR REPLACE FUNCTION leasehold_capture_equal(root regclass, first text, second text) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT string_agg(format('%s.%I OPERATOR(%I.%s) %s.%2$I', first, attname, nspname, oprname, second), ' AND ' ORDER BY place)
    FROM pg_index, unnest(indkey::smallint[], indclass::oid[]) WITH ORDINALITY AS parts(number, class, place)
      JOIN pg_attribute ON attnum = parts.number JOIN pg_opclass ON pg_opclass.oid = parts.class
      JOIN pg_amop ON amopfamily = opcfamily AND amopstrategy = 3 AND amoplefttype = opcintype AND amoprighttype = opcintype
      JOIN pg_operator ON pg_operator.oid = amopopr JOIN pg_namespace ON pg_namespace.oid = oprnamespace
    WHERE indrelid = root AND attrelid = root AND indisprimary AND place <= indnkeyatts
$$;

-- Returns the SQL of the bytes of a text in UTF-8.
CREATE OR REPLACE FUNCTION leasehold_capture_bytes(value text) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN getdatabaseencoding() IN ('UTF8', 'SQL_ASCII') THEN format('octet_length(%s)', value)
    ELSE format('octet_length(convert_to(%s, ''UTF8''))', value) END
$$;

-- Returns the settings of a trigger's function. A plan that was made for one row must not be slow for many, as a nested loop would
-- be. The text of a value must not depend on the session. Without the rights to see all rows, a statement must fail.
CREATE OR REPLACE FUNCTION leasehold_capture_settings() RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format('SET search_path = %I, pg_temp SET enable_nestloop = off SET enable_hashagg = off SET jit = off
    SET extra_float_digits = 1 SET datestyle = ''ISO, YMD'' SET intervalstyle = postgres SET row_security = off', current_schema())
$$;

-- Returns the topmost table that a partition or child belongs to.
CREATE OR REPLACE FUNCTION leasehold_capture_top(member regclass) RETURNS oid
LANGUAGE sql STABLE AS $$
  WITH RECURSIVE above(ancestor) AS (
    SELECT member::oid UNION SELECT inhparent FROM pg_inherits JOIN above ON inhrelid = above.ancestor
  ) SELECT min(ancestor) FROM above WHERE NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = ancestor)
$$;

-- Lists the tables of a tree whose row security hides rows from their owner, with whose rights the triggers read them.
CREATE OR REPLACE FUNCTION leasehold_capture_hidden(root regclass) RETURNS SETOF regclass
LANGUAGE sql STABLE AS $$
  SELECT member FROM leasehold_capture_tree(root) AS tree(member) JOIN pg_class ON pg_class.oid = member
      JOIN pg_roles ON pg_roles.oid = relowner
    WHERE relrowsecurity AND relforcerowsecurity AND NOT (rolsuper OR rolbypassrls)
$$;

-- Refuses a table whose changes can't be captured.
CREATE OR REPLACE FUNCTION leasehold_capture_check(root regclass, columns text[]) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
  missing CONSTANT text := (
    SELECT min(coalesce(name, 'NULL')) FROM unnest(columns) AS names(name) WHERE NOT EXISTS (
      SELECT FROM pg_attribute WHERE attrelid = root AND attname = name AND attnum > 0 AND NOT attisdropped
    )
  );
  hidden CONSTANT regclass := (SELECT min(member::oid) FROM leasehold_capture_hidden(root) AS tables(member));
BEGIN
  IF leasehold_capture_key(root) IS NULL THEN
    RAISE EXCEPTION 'the table `%` has no primary key that is checked at once', root USING ERRCODE = 'invalid_table_definition',
      HINT = 'Only changes of tables with a primary key that is not deferrable can be captured.';
  ELSIF missing IS NOT NULL THEN
    RAISE EXCEPTION 'the table `%` has no column `%`', root, missing USING ERRCODE = 'undefined_column';
  ELSIF hidden IS NOT NULL THEN
    RAISE EXCEPTION 'the table `%` hides rows from its owner', hidden USING ERRCODE = 'invalid_table_definition',
      HINT = 'Set NO FORCE ROW LEVEL SECURITY, or give the table an owner with BYPASSRLS.';
  END IF;
END
$$;

-- Returns the name of a table with its schema.
CREATE OR REPLACE FUNCTION leasehold_capture_name(member regclass) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT nspname || '.' || relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = member
$$;

-- True if all of these columns are whole numbers. They are JSON as they are, and have at most 20 characters.
CREATE OR REPLACE FUNCTION leasehold_capture_are_numbers(root regclass, columns text[]) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT bool_and(atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)) FROM pg_attribute
    WHERE attrelid = root AND attname = ANY (columns)
$$;

-- Returns the SQL of the values of columns as JSON, with commas between. A whole number needs no to_json, which is slow. The
-- function for its type, such as int4out, takes no other one: if the type of the column is changed, statements fail until the
-- table is captured again.
CREATE OR REPLACE FUNCTION leasehold_capture_values(side text, root regclass, columns text[]) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT string_agg(CASE WHEN leasehold_capture_are_numbers(root, ARRAY[name])
      THEN format('coalesce(%s(%s.%I)::text, ''null'')', typoutput, side, name)
      ELSE format('coalesce(to_json(%s.%I)::text, ''null'')', side, name) END, ' || '','' || ' ORDER BY place)
    FROM unnest(columns) WITH ORDINALITY AS names(name, place)
      JOIN pg_attribute ON attrelid = root AND attname = name JOIN pg_type ON pg_type.oid = atttypid
$$;

-- Returns the SQL that reads the changed rows of an operation from the transition tables: the key of each, and its values.
-- Without chosen columns the values are null, and the old keys of an UPDATE are read only if they are wanted.
CREATE OR REPLACE FUNCTION leasehold_capture_rows(
  operation text, root regclass, key text[], columns text[], with_old_keys boolean
) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  matched CONSTANT text := leasehold_capture_equal(root, 'old_row', 'new_row');
  old_key CONSTANT text := leasehold_capture_values('old_row', root, key);
  new_key CONSTANT text := leasehold_capture_values('new_row', root, key);
  old_values CONSTANT text := coalesce(leasehold_capture_values('old_row', root, columns), 'NULL::text');
  new_values CONSTANT text := coalesce(leasehold_capture_values('new_row', root, columns), 'NULL::text');
  inserted CONSTANT text :=
    format('SELECT %s AS key, ''null,['' || %s || '']'' AS changes FROM leasehold_new AS new_row', new_key, new_values);
  deleted CONSTANT text :=
    format('SELECT %s AS key, ''['' || %s || ''],null'' AS changes FROM leasehold_old AS old_row', old_key, old_values);
BEGIN
  RETURN CASE
    WHEN operation = 'INSERT' THEN inserted
    WHEN operation = 'DELETE' THEN deleted
    WHEN columns <> '{}' THEN format(
      'SELECT CASE WHEN new_row.%1$I IS NULL THEN %2$s ELSE %3$s END AS key,
          CASE WHEN old_row.%1$I IS NULL THEN ''null,['' || %5$s || '']''
            WHEN new_row.%1$I IS NULL THEN ''['' || %4$s || ''],null''
            ELSE ''['' || %4$s || ''],['' || %5$s || '']'' END AS changes
        FROM leasehold_old AS old_row FULL JOIN leasehold_new AS new_row ON %6$s',
      key[1], old_key, new_key, old_values, new_values, matched)
    WHEN with_old_keys THEN format(
      '%s WHERE NOT EXISTS (SELECT FROM leasehold_new AS new_row WHERE %s) UNION ALL %s', deleted, matched, inserted)
    ELSE inserted
  END;
END
$$;

-- True if rows that a statement's trigger sees may have changed since, or be there twice. The present rows are read then. A
-- statement that another trigger of the table runs hands on its changes before those of the outer statement, and a statement
-- with several operations hands on each. The actions of foreign keys can update a row twice in one statement. Statements may name
-- a table or its partitions, so `kind` is the same for all of them.
CREATE OR REPLACE FUNCTION leasehold_capture_is_late(kind text, member oid, operation text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  setting CONSTANT text := 'leasehold.' || kind;
  depth CONSTANT integer := pg_trigger_depth();
  former CONSTANT text[] := string_to_array(current_setting(setting, true), '|');
  message CONSTANT text := statement_timestamp()::text;
BEGIN
  PERFORM set_config(setting, message || '|' || depth || '|' || operation, true);
  RETURN former[1] = message AND (former[2]::integer > depth OR former[2]::integer = depth AND former[3] <> operation)
    OR operation = 'UPDATE' AND EXISTS (
      SELECT FROM pg_constraint
        WHERE conrelid = member AND contype = 'f' AND (confupdtype IN ('c', 'n', 'd') OR confdeltype IN ('n', 'd'))
    );
END
$$;

-- True if a TRUNCATE of a partition is a part of that of a table above, which was submitted last.
CREATE OR REPLACE FUNCTION leasehold_capture_is_emptied(kind text, member regclass) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  former CONSTANT text[] := string_to_array(nullif(current_setting('leasehold.emptied_' || kind, true), ''), '|');
BEGIN
  -- Without a former TRUNCATE the session may have drawn no number yet.
  RETURN former IS NOT NULL AND former[2]::bigint = currval('leasehold_outbox_number'::regclass)
    AND member IN (SELECT * FROM leasehold_capture_tree(former[1]::oid));
END
$$;

-- Notes that a TRUNCATE was submitted. The last number of the outbox tells if a change came after it.
CREATE OR REPLACE FUNCTION leasehold_capture_note_emptied(kind text, member oid) RETURNS void
LANGUAGE sql AS $$
  SELECT set_config('leasehold.emptied_' || kind, member || '|' || currval('leasehold_outbox_number'::regclass), true)
$$;

-- Returns the SQL that reads the rows that a statement has touched, each once: the key, the values before the statement, and
-- those that the row has now. A row that was not there and is gone again is left out. The table of the present rows is named
-- `leasehold present`. The subquery finds a row by its index, for which a join would need a nested loop.
CREATE OR REPLACE FUNCTION leasehold_capture_present(operation text, root regclass, key text[], columns text[]) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  keys CONSTANT text := (SELECT string_agg(format('%I', name), ', ' ORDER BY place)
    FROM unnest(key) WITH ORDINALITY AS names(name, place));
  touched_keys CONSTANT text := (SELECT string_agg(format('touched.%I', name), ', ' ORDER BY place)
    FROM unnest(key) WITH ORDINALITY AS names(name, place));
  old_rows CONSTANT text := format('SELECT 0 AS leasehold_side, row_number() OVER () AS leasehold_place, %s,
      ''['' || %s || '']'' AS leasehold_former FROM leasehold_old AS old_row',
    keys, leasehold_capture_values('old_row', root, columns));
  new_rows CONSTANT text :=
    format('SELECT 1 AS leasehold_side, 0::bigint AS leasehold_place, %s, NULL::text AS leasehold_former FROM leasehold_new', keys);
BEGIN
  RETURN format(
    'SELECT key, coalesce(former, ''null'') || '','' || coalesce(latter, ''null'') AS changes FROM (
      SELECT DISTINCT ON (%1$s) %2$s AS key, leasehold_former AS former,
          (SELECT ''['' || %3$s || '']'' FROM "leasehold present" AS present_row WHERE %4$s) AS latter
        FROM (%5$s) AS touched ORDER BY %1$s, leasehold_side, leasehold_place
      OFFSET 0) AS present_rows WHERE former IS NOT NULL OR latter IS NOT NULL',
    touched_keys, leasehold_capture_values('touched', root, key), leasehold_capture_values('present_row', root, columns),
    leasehold_capture_equal(root, 'present_row', 'touched'),
    CASE operation WHEN 'INSERT' THEN new_rows WHEN 'DELETE' THEN old_rows ELSE old_rows || ' UNION ALL ' || new_rows END);
END
$$;

-- Returns the SQL that gives each changed row the number of its request. A request has rows of up to 48,000 bytes, and one of
-- at most 16,000 more. With a head of 1,500 bytes it is below the limit of 65,536. Keys that are whole numbers need no count
-- of their bytes. OFFSET 0 keeps PostgreSQL from computing the text of a row for each use of it.
CREATE OR REPLACE FUNCTION leasehold_capture_requests(changed text, with_values boolean, number_keys integer) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN number_keys IS NOT NULL AND NOT with_values
      THEN format('SELECT key AS item, row_number() OVER () / %s AS number FROM (%s) AS changed',
        48000 / (21 * number_keys + 6), changed)
    ELSE format(
      'SELECT item, sum(%s + 6) OVER (ROWS UNBOUNDED PRECEDING) / 48000 AS number FROM (
        SELECT CASE WHEN %s > 15900 THEN ''null'' || %s END AS item FROM (%s OFFSET 0) AS changed OFFSET 0
      ) AS items',
      leasehold_capture_bytes('item'), leasehold_capture_bytes('key'),
      CASE WHEN with_values
        THEN format(''']'' WHEN %s + %s > 15900 THEN key || '']'' ELSE key || ''],'' || changes',
          leasehold_capture_bytes('key'), leasehold_capture_bytes('changes'))
        ELSE ''''' ELSE key' END,
      changed)
  END
$$;

-- Returns the SQL that submits the changed rows of an operation.
CREATE OR REPLACE FUNCTION leasehold_capture_statement(
  head text, changed text, with_values boolean, number_keys integer, submit text
) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format(
    'FOR piece IN SELECT string_agg(item, %L) FROM (%s) AS numbered GROUP BY number ORDER BY number LOOP
      PERFORM leasehold_submit(%s, convert_to(%L || piece || %L, ''UTF8''), max_attempts => 1000);
    END LOOP;',
    CASE WHEN with_values THEN '],[[' ELSE ']],[[' END, leasehold_capture_requests(changed, with_values, number_keys),
    submit, head || ',"rows":[[[', CASE WHEN with_values THEN ']]}' ELSE ']]]}' END)
$$;

-- Returns the branch of a trigger's function that submits the present rows of those that a statement has touched. Its SQL is
-- planned in each call, because the table may get another name.
CREATE OR REPLACE FUNCTION leasehold_capture_late_branch(
  kind text, place text, fields text, present text[], submit text
) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format(
    'ELSIF TG_OP <> ''TRUNCATE'' AND leasehold_capture_is_late(%L, TG_RELID, TG_OP) THEN
      FOR piece IN EXECUTE replace(
        CASE TG_OP WHEN ''INSERT'' THEN %L WHEN ''UPDATE'' THEN %L ELSE %L END,
        ''"leasehold present"'', coalesce(pg_partition_root(TG_RELID), TG_RELID)::regclass::text)
      LOOP
        PERFORM leasehold_submit(%s, convert_to(%L || TG_OP || %L || piece || '']]}'', ''UTF8''), max_attempts => 1000);
      END LOOP;',
    kind, requests[1], requests[2], requests[3], submit, place || '"', '"' || fields || ',"rows":[[[')
    FROM (SELECT array_agg(format('SELECT string_agg(item, ''],[['') FROM (%s) AS numbered GROUP BY number ORDER BY number',
        leasehold_capture_requests(changed, true, NULL)) ORDER BY turn) AS requests
      FROM unnest(present) WITH ORDINALITY AS operations(changed, turn)) AS late
$$;

-- Makes the function that the triggers of a table call. It has the names of the columns in it, so that PostgreSQL plans its
-- statements once.
CREATE OR REPLACE FUNCTION leasehold_capture_function(
  member regclass, root regclass, key text[], columns text[], submit text, with_old_keys boolean
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  name CONSTANT text := format('leasehold_capture_%s', nextval('leasehold_capture_number'::regclass));
  place CONSTANT text := format('{"table":%s%s,"operation":', to_json(leasehold_capture_name(root)),
    CASE WHEN member <> root THEN format(',"partition":%s', to_json(leasehold_capture_name(member))) END);
  fields CONSTANT text := format(',"key":%s,"columns":%s', to_json(key), to_json(columns));
  number_keys CONSTANT integer := CASE WHEN leasehold_capture_are_numbers(root, key) THEN cardinality(key) END;
  kind CONSTANT text := format('capture_%s', leasehold_capture_top(root));
  statements text[];
  present text[];
BEGIN
  IF octet_length(place || fields) > 1400 THEN
    RAISE EXCEPTION 'the names of the columns have more than 1,400 bytes' USING ERRCODE = 'program_limit_exceeded',
      HINT = 'Choose fewer columns.';
  END IF;
  SELECT array_agg(leasehold_capture_statement(
      format('%s"%s"', place, operation) || fields, leasehold_capture_rows(operation, root, key, columns, with_old_keys),
      columns <> '{}', number_keys, submit
    ) ORDER BY turn), array_agg(leasehold_capture_present(operation, root, key, columns) ORDER BY turn)
    INTO statements, present FROM unnest(ARRAY['INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS operations(operation, turn);
  EXECUTE format(
    'CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER %s AS %L',
    name, leasehold_capture_settings(), format(
      '#variable_conflict use_column
      DECLARE
        piece text;
      BEGIN
        IF TG_LEVEL = ''ROW'' THEN
          PERFORM leasehold_submit(%1$s, convert_to(%2$L || %3$s || '']]]}'', ''UTF8''), max_attempts => 1000);
        %8$s
        ELSIF TG_OP = ''INSERT'' THEN %4$s
        ELSIF TG_OP = ''UPDATE'' THEN %5$s
        ELSIF TG_OP = ''DELETE'' THEN %6$s
        ELSIF NOT leasehold_capture_is_emptied(%9$L, TG_RELID) THEN
          PERFORM leasehold_submit(%1$s, convert_to(%7$L, ''UTF8''), max_attempts => 1000);
          PERFORM leasehold_capture_note_emptied(%9$L, TG_RELID);
        END IF;
        RETURN NULL;
      END',
      submit, place || '"UPDATE"' || fields || ',"rows":[[[', leasehold_capture_values('OLD', root, key),
      statements[1], statements[2], statements[3], place || '"TRUNCATE"' || fields || ',"rows":[]}',
      CASE WHEN columns <> '{}' THEN leasehold_capture_late_branch(kind, place, fields, present, submit) END, kind));
  EXECUTE format('REVOKE ALL ON FUNCTION %I() FROM PUBLIC', name);
  RETURN name;
END
$$;

-- Makes the triggers of a table. That for changed keys is needed if the statement's trigger has no old rows.
CREATE OR REPLACE FUNCTION leasehold_capture_triggers(
  member regclass, root regclass, columns text[], function_name text, with_old_keys boolean
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  with_old_rows CONSTANT boolean := with_old_keys OR columns <> '{}';
  key_changed CONSTANT text := format('NOT (%s)', leasehold_capture_equal(root, 'OLD', 'NEW'));
  event record;
BEGIN
  FOR event IN
    SELECT * FROM (VALUES
      ('insert', 'INSERT', 'REFERENCING NEW TABLE AS leasehold_new FOR EACH STATEMENT', true),
      ('update', 'UPDATE', 'REFERENCING OLD TABLE AS leasehold_old NEW TABLE AS leasehold_new FOR EACH STATEMENT',
        with_old_rows),
      ('update', 'UPDATE', 'REFERENCING NEW TABLE AS leasehold_new FOR EACH STATEMENT', NOT with_old_rows),
      ('key', 'UPDATE', format('FOR EACH ROW WHEN (%s)', key_changed), NOT with_old_rows),
      ('delete', 'DELETE', 'REFERENCING OLD TABLE AS leasehold_old FOR EACH STATEMENT', true),
      ('truncate', 'TRUNCATE', 'FOR EACH STATEMENT', true)
    ) AS events(suffix, operation, clause, is_wanted)
    WHERE is_wanted
  LOOP
    EXECUTE format('CREATE TRIGGER leasehold_capture_%s AFTER %s ON %s %s EXECUTE FUNCTION %I()',
      event.suffix, event.operation, member, event.clause, function_name);
  END LOOP;
END
$$;

-- Drops the triggers of a table, and the function that they call.
CREATE OR REPLACE FUNCTION leasehold_capture_drop(member regclass) RETURNS void
LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
  found regprocedure;
BEGIN
  FOR found IN
    SELECT DISTINCT tgfoid FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
      WHERE tgrelid = member AND tgname LIKE 'leasehold\_capture\_%' AND proname LIKE 'leasehold\_capture\_%'
  LOOP
    EXECUTE format('DROP FUNCTION %s CASCADE', found);
  END LOOP;
END
$$;

-- Captures the changes of a table and of all its partitions and children. A repeated call replaces the former capture.
CREATE OR REPLACE FUNCTION leasehold_capture(root regclass, queue text, columns text[], key text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  primary_key CONSTANT text[] := leasehold_capture_key(root);
  lane CONSTANT text := coalesce(key, leasehold_capture_name(root));
  chosen CONSTANT text[] := coalesce(columns, '{}');
  -- An UPDATE that moves a row to another partition fires no trigger for the row, so partitioned tables compare all keys.
  with_old_keys CONSTANT boolean := EXISTS (SELECT FROM pg_inherits WHERE root IN (inhrelid, inhparent))
    OR (SELECT relkind = 'p' FROM pg_class WHERE oid = root);
  request leasehold_outbox;
  refused text;
  member regclass;
BEGIN
  -- The outbox would refuse each statement on the table otherwise. The capture has no other fields yet.
  request.queue := queue;
  request.key := lane;
  refused := leasehold_outbox_refused_field(request);
  IF refused IN ('queue', 'key') THEN
    RAISE EXCEPTION 'the % of the captured changes is malformed or too long', refused
      USING ERRCODE = 'invalid_parameter_value', HINT = 'The limits are those of the queues.';
  ELSIF starts_with(queue || '.', 'leasehold.claims.') THEN
    RAISE EXCEPTION 'the queue `%` is for captured claims, which no worker takes', queue
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose another queue.';
  END IF;
  PERFORM leasehold_capture_check(root, columns);
  FOR member IN SELECT * FROM leasehold_capture_tree(root) LOOP
    PERFORM leasehold_capture_drop(member);
    PERFORM leasehold_capture_triggers(member, root, chosen, leasehold_capture_function(
      member, root, primary_key, chosen, format('%L, %L', queue, lane), with_old_keys), with_old_keys);
  END LOOP;
  INSERT INTO leasehold_captures AS present (captured, queue, columns, key, primary_key)
    VALUES (root, queue, chosen, lane, primary_key) ON CONFLICT (captured) DO UPDATE
    SET queue = excluded.queue, columns = excluded.columns, key = excluded.key, primary_key = excluded.primary_key;
END
$$;

-- Ends the capture of a table. Drops also functions that tables which were dropped have left.
CREATE OR REPLACE FUNCTION leasehold_end_capture(root regclass) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  unused regprocedure;
BEGIN
  PERFORM leasehold_capture_drop(tree.member) FROM leasehold_capture_tree(root) AS tree(member);
  DELETE FROM leasehold_captures WHERE captured = root;
  FOR unused IN
    SELECT oid FROM pg_proc WHERE pronamespace = quote_ident(current_schema())::regnamespace
      AND proname ~ '^leasehold_capture_[0-9]+$' AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgfoid = pg_proc.oid)
  LOOP
    EXECUTE format('DROP FUNCTION %s', unused);
  END LOOP;
END
$$;

-- Lists changes that would not be captured: a table, and the reason.
CREATE OR REPLACE FUNCTION leasehold_capture_gaps() RETURNS TABLE (member regclass, gap text)
LANGUAGE sql STABLE AS $$
  SELECT tree.member, format('no trigger for %s: call leasehold_capture again', event)
    FROM leasehold_captures, leasehold_capture_tree(captured) AS tree(member),
      unnest(ARRAY['insert', 'update', 'delete', 'truncate']) AS event
    WHERE EXISTS (SELECT FROM pg_class WHERE oid = tree.member)
      AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = tree.member AND tgname = 'leasehold_capture_' || event)
  UNION ALL
  SELECT captured, format('the table was dropped: SELECT leasehold_end_capture(%s)', captured::oid)
    FROM leasehold_captures WHERE NOT EXISTS (SELECT FROM pg_class WHERE oid = captured)
  UNION ALL
  SELECT captured, 'the primary key was changed: call leasehold_capture again' FROM leasehold_captures
    WHERE EXISTS (SELECT FROM pg_class WHERE oid = captured)
      AND leasehold_captures.primary_key IS DISTINCT FROM leasehold_capture_key(captured)
  UNION ALL
  SELECT member, 'its row security is forced on its owner: statements fail'
    FROM leasehold_captures, leasehold_capture_hidden(captured) AS tables(member)
  UNION ALL
  SELECT DISTINCT tgrelid::regclass, format('it is no part of a captured table any more: SELECT leasehold_end_capture(%s)', tgrelid)
    FROM pg_trigger WHERE tgname LIKE 'leasehold\_capture\_%' AND NOT EXISTS (
      SELECT FROM leasehold_captures, leasehold_capture_tree(captured) AS tree(member) WHERE tree.member = tgrelid
    )
  UNION ALL
  -- The old keys of an UPDATE are read by its trigger or by one for rows.
  SELECT tgrelid::regclass, 'no trigger for changed keys: call leasehold_capture again' FROM pg_trigger AS statement_trigger
    WHERE tgname = 'leasehold_capture_update' AND tgoldtable IS NULL AND NOT EXISTS (
      SELECT FROM pg_trigger AS row_trigger
        WHERE row_trigger.tgrelid = statement_trigger.tgrelid AND row_trigger.tgname = 'leasehold_capture_key'
    )
  UNION ALL
  SELECT tgrelid::regclass, format('the trigger `%s` is disabled', tgname) FROM pg_trigger
    WHERE tgname LIKE 'leasehold\_capture\_%' AND tgenabled NOT IN ('O', 'A')
  UNION ALL
  SELECT NULL, 'this session has session_replication_role = replica'
    WHERE current_setting('session_replication_role') = 'replica'
  UNION ALL
  SELECT NULL, format('the setting session_replication_role = replica of the %s',
      CASE WHEN setrole = 0 THEN 'database' ELSE format('role `%s`', setrole::regrole) END)
    FROM pg_db_role_setting
    WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
      AND 'session_replication_role=replica' = ANY (setconfig)
$$;

-- The functions find the tables in the schema of this installation. The owner of the tables calls them.
DO $$
DECLARE
  found record;
BEGIN
  FOR found IN
    SELECT oid::regprocedure AS name, proacl IS NULL AS is_new FROM pg_proc
      WHERE pronamespace = quote_ident(current_schema())::regnamespace
        AND proname ~ ('^leasehold_(end_capture|capture(_(tree|key|equal|bytes|settings|top|hidden|check|name|are_numbers|values|rows'
          || '|is_late|is_emptied|note_emptied|present|requests|statement|late_branch|function|triggers|drop|gaps))?)$')
  LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', found.name, current_schema());
    IF found.is_new THEN
      EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', found.name);
    END IF;
  END LOOP;
END
$$;
