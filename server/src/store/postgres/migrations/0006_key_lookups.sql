-- The same two functions, whose plans look leases and claims up by their keys whatever the tables held when they were planned. A
-- generic plan takes generate_series() for 1,000 rows; beside the few leases that are outstanding it was cheaper then, by the
-- planner's arithmetic, to walk the whole index for each group, with all entries that are to be vacuumed.

CREATE OR REPLACE FUNCTION write_group(
    presumed_lock bigint,
    r_types integer[], r_names text[], r_times timestamptz[],
    c_types integer[], c_names text[], c_spellings text[], c_uuids uuid[], c_cells bigint[], c_subject_types integer[],
    c_subject_ids bigint[], c_source_types integer[], c_source_ids bytea[], c_user_data bytea[], c_statuses smallint[],
    c_leases uuid[], c_leased_at timestamptz[], c_created_at timestamptz[], c_updated_at timestamptz[], c_replaced text[],
    s_uuids uuid[], s_committed boolean[], s_times timestamptz[],
    l_uuids uuid[], l_cells bigint[], l_times timestamptz[], l_keys text[], l_types text[], l_names text[],
    k_cells bigint[], k_keys text[], k_leases uuid[], k_fingerprints bytea[]
) RETURNS TABLE (lease uuid, number bigint) LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    IF presumed_lock IS NOT NULL THEN
        PERFORM begin_presumed_group(presumed_lock);
    END IF;
    IF cardinality(r_types) > 0 THEN
        UPDATE claims c SET status = 1, lease_uuid = NULL, leased_at = NULL, replaced = NULL, updated_at = r_times[i]
        FROM unnest(r_names) WITH ORDINALITY AS r (name, i) WHERE c.bucket_type = r_types[i] AND c.bucket_value = r.name;
        GET DIAGNOSTICS written = ROW_COUNT;
        PERFORM expect_rows(written, cardinality(r_types));
    END IF;
    IF cardinality(c_types) > 0 OR cardinality(k_cells) > 0 THEN
        BEGIN
            -- In the order given, that of the keys.
            IF cardinality(c_types) > 0 THEN
                INSERT INTO claims (bucket_type, bucket_value, bucket_spelling, uuid, creator_id, subject_type, subject_id,
                    source_type, source_id, user_data, status, lease_uuid, leased_at, created_at, updated_at, replaced)
                SELECT c_types[i], c_names[i], c_spellings[i], c_uuids[i], c_cells[i], c_subject_types[i], c_subject_ids[i],
                    c_source_types[i], c_source_ids[i], c_user_data[i], c_statuses[i], c_leases[i], c_leased_at[i],
                    c_created_at[i], c_updated_at[i], c_replaced[i]::json
                FROM generate_series(1, cardinality(c_types)) AS i;
            END IF;
            IF cardinality(k_cells) > 0 THEN
                INSERT INTO idempotency_keys (creator_id, idempotency_key, lease_uuid, fingerprint)
                SELECT k_cells[i], k_keys[i], k_leases[i], k_fingerprints[i]
                FROM generate_series(1, cardinality(k_cells)) AS i;
            END IF;
        EXCEPTION
            -- The details of these errors show rows, and the database logs them: names of people must not be there.
            WHEN unique_violation THEN
                RAISE serialization_failure USING MESSAGE = 'another transaction has inserted the same keys';
            WHEN integrity_constraint_violation THEN
                RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
        END;
    END IF;
    IF cardinality(l_uuids) > 0 THEN
        RETURN QUERY
            INSERT INTO claim_leases AS l
                (uuid, creator_id, fence, created_at, idempotency_key, bucket_types, bucket_values)
            SELECT l_uuids[i], l_cells[i], nextval('lease_fences'), l_times[i], l_keys[i], l_types[i]::integer[],
                l_names[i]::text[]
            FROM generate_series(1, cardinality(l_uuids)) AS i
            RETURNING l.uuid, l.fence;
    END IF;
    IF cardinality(s_uuids) > 0 THEN
        WITH gone AS (
            DELETE FROM claim_leases l WHERE l.uuid = ANY (s_uuids)
            RETURNING l.uuid, l.creator_id, l.fence, l.created_at, l.idempotency_key, array_position(s_uuids, l.uuid) AS i
        )
        INSERT INTO settled_leases (uuid, creator_id, fence, committed, created_at, settled_at, idempotency_key)
        SELECT g.uuid, g.creator_id, g.fence, s_committed[g.i], g.created_at, s_times[g.i], g.idempotency_key FROM gone g;
        GET DIAGNOSTICS written = ROW_COUNT;
        PERFORM expect_rows(written, cardinality(s_uuids));
    END IF;
END $$;

CREATE OR REPLACE FUNCTION keep_group(
    presumed_lock bigint,
    r_types integer[], r_names text[], r_times timestamptz[],
    c_types integer[], c_names text[], c_spellings text[], c_uuids uuid[], c_cells bigint[], c_subject_types integer[],
    c_subject_ids bigint[], c_source_types integer[], c_source_ids bytea[], c_user_data bytea[], c_statuses smallint[],
    c_leases uuid[], c_leased_at timestamptz[], c_created_at timestamptz[], c_updated_at timestamptz[], c_replaced text[],
    s_uuids uuid[], s_committed boolean[], s_times timestamptz[],
    l_uuids uuid[], l_cells bigint[], l_times timestamptz[], l_keys text[], l_types text[], l_names text[],
    k_cells bigint[], k_keys text[], k_leases uuid[], k_fingerprints bytea[]
) RETURNS TABLE (lease uuid, number bigint) LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    IF presumed_lock IS NOT NULL THEN
        PERFORM begin_presumed_group(presumed_lock);
    END IF;
    BEGIN
        IF cardinality(r_types) > 0 THEN
            UPDATE claims c SET status = 1, lease_uuid = NULL, leased_at = NULL, replaced = NULL, updated_at = r_times[i]
            FROM unnest(r_names) WITH ORDINALITY AS r (name, i) WHERE c.bucket_type = r_types[i] AND c.bucket_value = r.name;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(r_types));
        END IF;
        -- In the order given, that of the keys.
        IF cardinality(c_types) > 0 THEN
            INSERT INTO claims (bucket_type, bucket_value, bucket_spelling, uuid, creator_id, subject_type, subject_id,
                source_type, source_id, user_data, status, lease_uuid, leased_at, created_at, updated_at, replaced)
            SELECT c_types[i], c_names[i], c_spellings[i], c_uuids[i], c_cells[i], c_subject_types[i], c_subject_ids[i],
                c_source_types[i], c_source_ids[i], c_user_data[i], c_statuses[i], c_leases[i], c_leased_at[i],
                c_created_at[i], c_updated_at[i], c_replaced[i]::json
            FROM generate_series(1, cardinality(c_types)) AS i;
        END IF;
        IF cardinality(k_cells) > 0 THEN
            INSERT INTO idempotency_keys (creator_id, idempotency_key, lease_uuid, fingerprint)
            SELECT k_cells[i], k_keys[i], k_leases[i], k_fingerprints[i]
            FROM generate_series(1, cardinality(k_cells)) AS i;
        END IF;
        IF cardinality(l_uuids) > 0 THEN
            RETURN QUERY
                INSERT INTO claim_leases AS l
                    (uuid, creator_id, fence, created_at, idempotency_key, bucket_types, bucket_values)
                SELECT l_uuids[i], l_cells[i], nextval('lease_fences'), l_times[i], l_keys[i], l_types[i]::integer[],
                    l_names[i]::text[]
                FROM generate_series(1, cardinality(l_uuids)) AS i
                RETURNING l.uuid, l.fence;
        END IF;
        IF cardinality(s_uuids) > 0 THEN
            WITH gone AS (
                DELETE FROM claim_leases l WHERE l.uuid = ANY (s_uuids)
                RETURNING l.uuid, l.creator_id, l.fence, l.created_at, l.idempotency_key, array_position(s_uuids, l.uuid) AS i
            )
            INSERT INTO settled_leases (uuid, creator_id, fence, committed, created_at, settled_at, idempotency_key)
            SELECT g.uuid, g.creator_id, g.fence, s_committed[g.i], g.created_at, s_times[g.i], g.idempotency_key FROM gone g;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(s_uuids));
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
