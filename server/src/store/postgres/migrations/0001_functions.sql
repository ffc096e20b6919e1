-- The statements that write groups of commands, as functions. Each connection of the database keeps
-- the plans of a function's statements, also behind a pooler that gives every transaction another
-- connection. Behind such a pooler, prepared statements would be lost.

-- Begins the transaction of a group of commands. The planner settings make it look rows up by their
-- keys, even if the planner's statistics lag behind tables that have just grown. The transaction
-- keeps the advisory lock `lock` to its end, so that a retry of the group can wait for that end.
-- The timeouts end the transaction of a server that has vanished.
CREATE FUNCTION begin_group(lock bigint, statement_timeout_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('statement_timeout', statement_timeout_ms::text, true),
            set_config('idle_in_transaction_session_timeout', statement_timeout_ms::text, true),
            set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
            set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
            set_config('jit', 'off', true);
    PERFORM commit_durably();
    PERFORM pg_advisory_xact_lock(lock);
END $$;

COMMENT ON FUNCTION begin_group IS
    'Begins the transaction of a group of commands: settings for this transaction only, and the advisory lock of the '
    'group''s number, which a retry of the group waits for';

-- Begins a speculative group: one statement whose rows were assumed, not read. The lock timeout is
-- short, because a row that another transaction has locked probably differs from the assumed row.
CREATE FUNCTION begin_speculative_group(lock bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- The lookup in abandoned_groups below must see rows that were committed while this function waited for
    -- the advisory lock. Only READ COMMITTED takes a new snapshot for it, and the operator's default may be
    -- another level.
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
        RAISE serialization_failure USING MESSAGE = 'a group of one statement needs the isolation level READ COMMITTED';
    END IF;
    PERFORM set_config('lock_timeout', '100ms', true),
            set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
            set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
            set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true);
    PERFORM commit_durably();
    PERFORM pg_advisory_xact_lock(lock);
    IF EXISTS (SELECT FROM abandoned_groups WHERE number = lock) THEN
        RAISE serialization_failure USING MESSAGE = 'this group has been decided again';
    END IF;
END $$;

COMMENT ON FUNCTION begin_speculative_group IS
    'Begins a group of one statement whose rows were assumed instead of read: refuses a group that was given up, and waits '
    'for the locks of others for at most 100 ms';

-- Every transaction whose commit is acknowledged must call this function. With `synchronous_commit`
-- = off, a crash of the database loses acknowledged commits, and a name could be given to two
-- cells. All other values wait at least for this machine's disk
-- (https://www.postgresql.org/docs/15/runtime-config-wal.html#GUC-SYNCHRONOUS-COMMIT).
CREATE FUNCTION commit_durably() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

COMMENT ON FUNCTION commit_durably IS
    'Makes the COMMIT of the current transaction wait for the disk, whatever the default of `synchronous_commit` is';

-- Gives up a group of unknown outcome. The call of pg_advisory_xact_lock waits for the end of the
-- group's transaction, if it has begun. The inserted row keeps a statement of the group that
-- arrives later from taking effect.
CREATE FUNCTION abandon_group(lock bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    INSERT INTO abandoned_groups (number) VALUES (lock) ON CONFLICT DO NOTHING;
END $$;

COMMENT ON FUNCTION abandon_group IS
    'Gives up a group whose outcome is unknown: waits until it has ended, and keeps it from beginning later';

CREATE FUNCTION expect_rows(actual bigint, expected bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF actual <> expected THEN
        RAISE serialization_failure USING MESSAGE = format('%s of %s rows are there', actual, expected);
    END IF;
END $$;

COMMENT ON FUNCTION expect_rows IS
    'Fails with a serialization failure if fewer rows were found than expected: another transaction has changed them, and '
    'the group must be decided again';

CREATE FUNCTION read_claims(types integer[], names text[]) RETURNS SETOF claims LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT c.* FROM unnest(types, names) AS k (t, v)
        JOIN claims c ON c.bucket_type = k.t AND c.bucket_value = k.v;
END $$;

COMMENT ON FUNCTION read_claims IS 'The claims of these bucket types and canonical names';

CREATE FUNCTION lock_leases(uuids uuid[]) RETURNS SETOF claim_leases LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT l.* FROM unnest(uuids) AS n (u) JOIN claim_leases l ON l.uuid = n.u
        ORDER BY l.uuid FOR UPDATE OF l;
END $$;

COMMENT ON FUNCTION lock_leases IS 'The outstanding leases of these ids, locked in the order of the ids';

CREATE FUNCTION lock_claims(types integer[], names text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (
        SELECT FROM claims c JOIN unnest(types, names) AS k (t, v) ON c.bucket_type = k.t AND c.bucket_value = k.v
        ORDER BY c.bucket_type, c.bucket_value FOR UPDATE OF c
    ) locked;
END $$;

COMMENT ON FUNCTION lock_claims IS 'Locks these claims in the order of their keys, so that servers can''t deadlock';

CREATE FUNCTION change_claims(changed new_claim[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    UPDATE claims c SET bucket_spelling = n.bucket_spelling, uuid = n.uuid, creator_id = n.creator_id,
        subject_type = n.subject_type, subject_id = n.subject_id, source_type = n.source_type, source_id = n.source_id,
        user_data = n.user_data, status = n.status, lease_uuid = n.lease_uuid, leased_at = n.leased_at,
        created_at = n.created_at, updated_at = n.updated_at, replaced = n.replaced
    FROM unnest(changed) AS n WHERE c.bucket_type = n.bucket_type AND c.bucket_value = n.bucket_value;
    GET DIAGNOSTICS written = ROW_COUNT;
    PERFORM expect_rows(written, cardinality(changed));
EXCEPTION
    -- The DETAIL of a violated constraint shows the row, and the database logs it. Names of people
    -- must not appear in the log. An operator may have added constraints to the table.
    WHEN integrity_constraint_violation THEN
        RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END $$;

COMMENT ON FUNCTION change_claims IS 'Overwrites these claims; fails with a serialization failure if one is gone';

-- Writes nearly all changes of a group in one statement. There is one parameter for each kind of
-- row: an array of a composite type. A session parses the statement for every group, and ten
-- parameters are cheaper to parse than one array for each column.
--
-- If another transaction was first, the function undoes its work and returns one row without a
-- lease. An error would undo the work too, but the database logs every error, and lost races are
-- normal with several servers. ON CONFLICT DO NOTHING is no substitute: it inserts each row
-- speculatively, which costs an index lookup, a lock and a WAL record more for each row.
CREATE FUNCTION try_write_rows(
    speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamptz[],
    claimed new_claim[], settled uuid[], committed boolean[], settled_at timestamptz[], begun new_lease[], keyed new_key[]
) RETURNS TABLE (lease uuid, number bigint) LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    IF speculative_lock IS NOT NULL THEN
        PERFORM begin_speculative_group(speculative_lock);
    END IF;
    BEGIN
        IF cardinality(activated_names) > 0 THEN
            UPDATE claims c
            SET status = 1, lease_uuid = NULL, leased_at = NULL, replaced = NULL, updated_at = activated_at[i]
            FROM unnest(activated_names) WITH ORDINALITY AS r (name, i)
            WHERE c.bucket_type = activated_types[i] AND c.bucket_value = r.name;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(activated_names));
        END IF;
        -- INVARIANT: the server sends claims and idempotency keys sorted by their primary keys. All
        -- transactions insert in this order, so two of them can't wait for each other.
        IF cardinality(claimed) > 0 THEN
            INSERT INTO claims (bucket_type, bucket_value, bucket_spelling, uuid, creator_id, subject_type, subject_id,
                source_type, source_id, user_data, status, lease_uuid, leased_at, created_at, updated_at, replaced)
            SELECT * FROM unnest(claimed);
        END IF;
        IF cardinality(keyed) > 0 THEN
            INSERT INTO idempotency_keys (creator_id, idempotency_key, lease_uuid, fingerprint) SELECT * FROM unnest(keyed);
        END IF;
        IF cardinality(begun) > 0 THEN
            RETURN QUERY
                INSERT INTO claim_leases AS l
                    (uuid, creator_id, fence, created_at, idempotency_key, bucket_types, bucket_values)
                SELECT n.uuid, n.creator_id, nextval('lease_fences'), n.created_at, n.idempotency_key, n.bucket_types,
                    n.bucket_values
                FROM unnest(begun) AS n
                RETURNING l.uuid, l.fence;
        END IF;
        IF cardinality(settled) > 0 THEN
            WITH gone AS (
                DELETE FROM claim_leases l WHERE l.uuid = ANY (settled)
                RETURNING l.uuid, l.creator_id, l.fence, l.created_at, l.idempotency_key, array_position(settled, l.uuid) AS i
            )
            INSERT INTO settled_leases (uuid, creator_id, fence, committed, created_at, settled_at, idempotency_key)
            SELECT g.uuid, g.creator_id, g.fence, committed[g.i], g.created_at, settled_at[g.i], g.idempotency_key FROM gone g;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(settled));
        END IF;
    EXCEPTION
        -- The changes of this block have been undone, so the COMMIT need not wait for the disk.
        WHEN unique_violation OR serialization_failure OR deadlock_detected THEN
            PERFORM set_config('synchronous_commit', 'off', true);
            RETURN QUERY SELECT NULL::uuid, 1::bigint;
        WHEN lock_not_available THEN
            PERFORM set_config('synchronous_commit', 'off', true);
            RETURN QUERY SELECT NULL::uuid, 2::bigint;
        -- The DETAIL of a violated constraint shows the row, and the database logs it. Names of
        -- people must not appear in the log.
        WHEN integrity_constraint_violation THEN
            RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
    END;
END $$;

COMMENT ON FUNCTION try_write_rows IS
    'Writes the changes of a group of commands: claims that become active (activated_), new claims (claimed), their '
    'idempotency keys (keyed), new leases (begun), whose fences it returns, and settled leases (settled, committed, '
    'settled_at). With speculative_lock it is a transaction of its own. If another transaction was first, it changes nothing '
    'and returns one row without a lease: with the number 1, or 2 if it waited too long for a lock';

-- Calls try_write_rows in a transaction with other statements. A lost race is an error here, so
-- that the other statements are undone too.
CREATE FUNCTION write_rows(
    speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamptz[],
    claimed new_claim[], settled uuid[], committed boolean[], settled_at timestamptz[], begun new_lease[], keyed new_key[]
) RETURNS TABLE (lease uuid, number bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR lease, number IN
        SELECT * FROM try_write_rows(speculative_lock, activated_types, activated_names, activated_at, claimed, settled,
            committed, settled_at, begun, keyed)
    LOOP
        IF lease IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = CASE number WHEN 2 THEN 'lock_not_available' ELSE 'serialization_failure' END,
                MESSAGE = 'another transaction was first, or keeps rows locked';
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

COMMENT ON FUNCTION write_rows IS
    'Does the same as try_write_rows, but fails with an error if another transaction was first';
