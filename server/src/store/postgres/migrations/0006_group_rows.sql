-- What a group writes as rows, not as an array a column: a session reads each group's statement anew, which 10 parameters make
-- cheaper than 33. Servers of the version before go on with their own functions.

-- Types of their own: the tables may get more columns while servers go on that do not know of them.
CREATE TYPE new_claim AS (
    bucket_type integer, bucket_value text, bucket_spelling text, uuid uuid, creator_id bigint, subject_type integer,
    subject_id bigint, source_type integer, source_id bytea, user_data bytea, status smallint, lease_uuid uuid,
    leased_at timestamptz, created_at timestamptz, updated_at timestamptz, replaced json
);
CREATE TYPE new_lease AS (
    uuid uuid, creator_id bigint, created_at timestamptz, idempotency_key text, bucket_types integer[], bucket_values text[]
);
CREATE TYPE new_key AS (creator_id bigint, idempotency_key text, lease_uuid uuid, fingerprint bytea);

COMMENT ON TYPE new_claim IS 'A row of claims, as servers write it';
COMMENT ON TYPE new_lease IS 'A row of claim_leases, as servers write it: the fence is the database''s';
COMMENT ON TYPE new_key IS 'A row of idempotency_keys, as servers write it';

CREATE FUNCTION write_rows(
    presumed_lock bigint, rested_types integer[], rested_names text[], rested_at timestamptz[], claimed new_claim[],
    settled uuid[], committed boolean[], settled_at timestamptz[], begun new_lease[], keyed new_key[]
) RETURNS TABLE (lease uuid, number bigint) LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    IF presumed_lock IS NOT NULL THEN
        PERFORM begin_presumed_group(presumed_lock);
    END IF;
    IF cardinality(rested_names) > 0 THEN
        UPDATE claims c SET status = 1, lease_uuid = NULL, leased_at = NULL, replaced = NULL, updated_at = rested_at[i]
        FROM unnest(rested_names) WITH ORDINALITY AS r (name, i)
        WHERE c.bucket_type = rested_types[i] AND c.bucket_value = r.name;
        GET DIAGNOSTICS written = ROW_COUNT;
        PERFORM expect_rows(written, cardinality(rested_names));
    END IF;
    IF cardinality(claimed) > 0 OR cardinality(keyed) > 0 THEN
        BEGIN
            -- In the order given, that of the keys.
            IF cardinality(claimed) > 0 THEN
                INSERT INTO claims (bucket_type, bucket_value, bucket_spelling, uuid, creator_id, subject_type, subject_id,
                    source_type, source_id, user_data, status, lease_uuid, leased_at, created_at, updated_at, replaced)
                SELECT * FROM unnest(claimed);
            END IF;
            IF cardinality(keyed) > 0 THEN
                INSERT INTO idempotency_keys (creator_id, idempotency_key, lease_uuid, fingerprint) SELECT * FROM unnest(keyed);
            END IF;
        EXCEPTION
            -- The details of these errors show rows, and the database logs them: names of people must not be there.
            WHEN unique_violation THEN
                RAISE serialization_failure USING MESSAGE = 'another transaction has inserted the same keys';
            WHEN integrity_constraint_violation THEN
                RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
        END;
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
END $$;

CREATE FUNCTION keep_rows(
    presumed_lock bigint, rested_types integer[], rested_names text[], rested_at timestamptz[], claimed new_claim[],
    settled uuid[], committed boolean[], settled_at timestamptz[], begun new_lease[], keyed new_key[]
) RETURNS TABLE (lease uuid, number bigint) LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    IF presumed_lock IS NOT NULL THEN
        PERFORM begin_presumed_group(presumed_lock);
    END IF;
    BEGIN
        IF cardinality(rested_names) > 0 THEN
            UPDATE claims c SET status = 1, lease_uuid = NULL, leased_at = NULL, replaced = NULL, updated_at = rested_at[i]
            FROM unnest(rested_names) WITH ORDINALITY AS r (name, i)
            WHERE c.bucket_type = rested_types[i] AND c.bucket_value = r.name;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(rested_names));
        END IF;
        -- In the order given, that of the keys.
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
        WHEN unique_violation OR serialization_failure OR deadlock_detected THEN
            -- Nothing is written, so nothing is to be waited for.
            PERFORM set_config('synchronous_commit', 'off', true);
            RETURN QUERY SELECT NULL::uuid, 1::bigint;
        WHEN lock_not_available THEN
            PERFORM set_config('synchronous_commit', 'off', true);
            RETURN QUERY SELECT NULL::uuid, 2::bigint;
        -- The details of these errors show rows, and the database logs them: names of people must not be there.
        WHEN integrity_constraint_violation THEN
            RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
    END;
END $$;

COMMENT ON FUNCTION write_rows IS
    'Writes what a group of commands has changed: claims that come to rest (rested_), new claims (claimed), their idempotency '
    'keys (keyed), leases that are begun, whose fences it returns, and leases that are settled (settled, committed, '
    'settled_at). It fails where another transaction was first; keep_rows does not';
COMMENT ON FUNCTION keep_rows IS
    'Does what write_rows does, but where another transaction was first it changes nothing and returns one row without a '
    'lease, with the number 1, or 2 where it has waited too long for a lock; so the database has no error to log';
COMMENT ON FUNCTION write_group IS 'What servers of version 5 of the tables call; newer ones call write_rows';
COMMENT ON FUNCTION keep_group IS 'What servers of version 5 of the tables call; newer ones call keep_rows';

-- Plans last as long as their session, and one that was made beside few leases must not walk a whole index for each group: of a
-- small index that is cheaper, by the planner's arithmetic, than to look 10 leases up by their key. So no index but the key has
-- a column that a lease is looked up by. The order of a UUID's bytes is its own.
DROP INDEX claim_leases_created;
CREATE INDEX claim_leases_listed ON claim_leases (creator_id, created_at, uuid_send(uuid));

COMMENT ON INDEX claim_leases_listed IS 'The order of lists; by an expression, so that leases are looked up by their key alone';
