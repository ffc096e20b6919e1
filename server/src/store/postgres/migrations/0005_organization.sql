-- Version 5 of the tables: a lease keeps the organization that its begin named.
ALTER TABLE claim_leases ADD COLUMN organization_id bigint;
ALTER TABLE settled_leases ADD COLUMN organization_id bigint;

COMMENT ON COLUMN claim_leases.organization_id IS 'The organization that the begin named; NULL if it named none';
COMMENT ON COLUMN settled_leases.organization_id IS
    'The organization that the begin named, as it was in claim_leases; NULL if it named none';

-- A server of version 4 sends rows of new_lease, whose columns must not change while it is running.
CREATE TYPE begun_lease AS (
    uuid uuid, creator_id bigint, created_at timestamptz, idempotency_key text, bucket_types integer[],
    bucket_values text[], organization_id bigint
);

COMMENT ON TYPE begun_lease IS 'A row of claim_leases, as a server writes it; the database adds the fence';
COMMENT ON TYPE new_lease IS 'A row of claim_leases, as a server of table versions 1 to 4 writes it';

-- Does the work of try_write_rows of version 1, and also writes the organizations of leases. The
-- comments of version 1 explain the statements.
CREATE FUNCTION try_write_group(
    speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamptz[],
    claimed new_claim[], settled uuid[], committed boolean[], settled_at timestamptz[], begun begun_lease[], keyed new_key[]
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
                    (uuid, creator_id, fence, created_at, idempotency_key, bucket_types, bucket_values, organization_id)
                SELECT n.uuid, n.creator_id, nextval('lease_fences'), n.created_at, n.idempotency_key, n.bucket_types,
                    n.bucket_values, n.organization_id
                FROM unnest(begun) AS n
                RETURNING l.uuid, l.fence;
        END IF;
        IF cardinality(settled) > 0 THEN
            WITH gone AS (
                DELETE FROM claim_leases l WHERE l.uuid = ANY (settled)
                RETURNING l.uuid, l.creator_id, l.fence, l.created_at, l.idempotency_key, l.organization_id,
                    array_position(settled, l.uuid) AS i
            )
            INSERT INTO settled_leases
                (uuid, creator_id, fence, committed, created_at, settled_at, idempotency_key, organization_id)
            SELECT g.uuid, g.creator_id, g.fence, committed[g.i], g.created_at, settled_at[g.i], g.idempotency_key,
                g.organization_id
            FROM gone g;
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

COMMENT ON FUNCTION try_write_group IS
    'Writes the changes of a group of commands: claims that become active (activated_), new claims (claimed), their '
    'idempotency keys (keyed), new leases (begun), whose fences it returns, and settled leases (settled, committed, '
    'settled_at). With speculative_lock it is a transaction of its own. If another transaction was first, it changes nothing '
    'and returns one row without a lease: with the number 1, or 2 if it waited too long for a lock';

-- Calls try_write_group in a transaction with other statements. A lost race is an error here, so
-- that the other statements are undone too.
CREATE FUNCTION write_group(
    speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamptz[],
    claimed new_claim[], settled uuid[], committed boolean[], settled_at timestamptz[], begun begun_lease[], keyed new_key[]
) RETURNS TABLE (lease uuid, number bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR lease, number IN
        SELECT * FROM try_write_group(speculative_lock, activated_types, activated_names, activated_at, claimed, settled,
            committed, settled_at, begun, keyed)
    LOOP
        IF lease IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = CASE number WHEN 2 THEN 'lock_not_available' ELSE 'serialization_failure' END,
                MESSAGE = 'another transaction was first, or keeps rows locked';
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

COMMENT ON FUNCTION write_group IS
    'Does the same as try_write_group, but fails with an error if another transaction was first';

-- A server of version 4 may settle a lease that a server of version 5 has begun. So its function
-- must keep the organization too.
CREATE OR REPLACE FUNCTION try_write_rows(
    speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamptz[],
    claimed new_claim[], settled uuid[], committed boolean[], settled_at timestamptz[], begun new_lease[], keyed new_key[]
) RETURNS TABLE (lease uuid, number bigint) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT * FROM try_write_group(speculative_lock, activated_types, activated_names, activated_at, claimed,
        settled, committed, settled_at,
        ARRAY(
            SELECT ROW(n.uuid, n.creator_id, n.created_at, n.idempotency_key, n.bucket_types, n.bucket_values, NULL)::begun_lease
            FROM unnest(begun) WITH ORDINALITY AS n
                (uuid, creator_id, created_at, idempotency_key, bucket_types, bucket_values, place)
            ORDER BY n.place
        ),
        keyed);
END $$;

COMMENT ON FUNCTION try_write_rows IS 'Calls try_write_group, for servers of table versions 1 to 4';
COMMENT ON FUNCTION write_rows IS
    'Does the same as try_write_rows, but fails with an error if another transaction was first; for servers of table versions '
    '1 to 4';
