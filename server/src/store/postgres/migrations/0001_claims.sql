-- Every name that is owned, one row each. The primary key is what keeps them unique.
CREATE TABLE claims (
    bucket_type     integer     NOT NULL,
    -- In canonical form; "C", since its order and equality are those of bytes.
    bucket_value    text        NOT NULL COLLATE "C",
    -- As the cell wrote it, where that differs.
    bucket_spelling text        COLLATE "C",
    uuid            uuid        NOT NULL,
    creator_id      bigint      NOT NULL,
    subject_type    integer     NOT NULL,
    subject_id      bigint      NOT NULL,
    source_type     integer     NOT NULL,
    source_id       bytea       NOT NULL,
    user_data       bytea,
    status          smallint    NOT NULL CHECK (status BETWEEN 1 AND 4),
    lease_uuid      uuid,
    leased_at       timestamptz,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    -- What a replace's rollback restores.
    replaced        json,
    PRIMARY KEY (bucket_type, bucket_value),
    CHECK ((status = 1) = (lease_uuid IS NULL) AND (lease_uuid IS NULL) = (leased_at IS NULL)),
    CHECK ((status = 4) = (replaced IS NOT NULL))
) WITH (fillfactor = 60);

COMMENT ON TABLE claims IS 'Names and the cells that own them';
COMMENT ON COLUMN claims.creator_id IS 'The cell';
COMMENT ON COLUMN claims.status IS '1 active, 2 being created, 3 being destroyed, 4 being replaced: the last three under a lease';
COMMENT ON COLUMN claims.user_data IS 'A google.protobuf.Any, as the cell attached it';

-- The order of lists. No column in it changes when a claim comes to rest, so that it does so in place (HOT).
CREATE INDEX claims_source ON claims (creator_id, source_type, source_id);

-- Updates that have begun and are not settled. Small: a row leaves when its lease is settled.
CREATE TABLE claim_leases (
    uuid            uuid        PRIMARY KEY,
    creator_id      bigint      NOT NULL,
    fence           bigint      NOT NULL,
    created_at      timestamptz NOT NULL,
    idempotency_key text        COLLATE "C",
    -- The claims that it holds.
    bucket_types    integer[]   NOT NULL,
    bucket_values   text[]      NOT NULL COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

COMMENT ON TABLE claim_leases IS 'Outstanding leases; settled ones are in settled_leases';

CREATE INDEX claim_leases_created ON claim_leases (creator_id, created_at, uuid);

-- What is remembered of settled leases, so that a repeated commit is answered truly.
CREATE TABLE settled_leases (
    uuid            uuid        PRIMARY KEY,
    creator_id      bigint      NOT NULL,
    fence           bigint      NOT NULL,
    committed       boolean     NOT NULL,
    created_at      timestamptz NOT NULL,
    settled_at      timestamptz NOT NULL,
    idempotency_key text        COLLATE "C"
);

COMMENT ON TABLE settled_leases IS 'Committed and rolled back leases, for as long as they are remembered';

CREATE INDEX settled_leases_settled ON settled_leases (settled_at, uuid);

-- The keys that begins were sent with. A table of its own, so that a key stays taken while its lease changes tables.
CREATE TABLE idempotency_keys (
    creator_id      bigint      NOT NULL,
    idempotency_key text        NOT NULL COLLATE "C",
    lease_uuid      uuid        NOT NULL,
    fingerprint     bytea       NOT NULL,
    PRIMARY KEY (creator_id, idempotency_key)
);

COMMENT ON TABLE idempotency_keys IS 'The leases that begins with these keys got, for as long as the leases are remembered';

-- Groups of commands whose server could not know whether they were kept, and has decided them again: what arrives of them
-- late is turned away.
CREATE TABLE abandoned_groups (
    number       bigint      PRIMARY KEY,
    abandoned_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE abandoned_groups IS 'Groups of commands that were decided again, so that late statements of theirs do nothing; kept for a day';

-- The configured bucket types and the rules under which claims of them were made.
CREATE TABLE bucket_types (
    number    integer PRIMARY KEY,
    name      text    NOT NULL,
    form      text    NOT NULL,
    fold_case boolean NOT NULL
);

COMMENT ON TABLE bucket_types IS 'Configured bucket types, and the rules under which claims of them were made';

-- The one sequence of fences.
CREATE SEQUENCE lease_fences;

COMMENT ON SEQUENCE lease_fences IS 'The number that each lease gets, larger than all before it';
COMMENT ON TABLE leasehold_migrations IS 'The versions that these tables were brought to';

-- The statements of every group of commands. As functions their plans are kept by each connection of the database itself,
-- also behind a pooler that gives every transaction another one. Each takes and returns columns as arrays or rows.

-- Begins a group's transaction: rows are looked up by their keys, whatever the planner believes of tables that have just
-- grown, and `lock` is held to its end, so that a retry can wait for it. A server that has gone away lets go in time.
CREATE FUNCTION begin_group(lock bigint, statement_timeout_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('statement_timeout', statement_timeout_ms::text, true),
            set_config('idle_in_transaction_session_timeout', statement_timeout_ms::text, true),
            set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
            set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
            set_config('jit', 'off', true);
    PERFORM pg_advisory_xact_lock(lock);
END $$;

-- Begins a group whose rows were presumed, not read, and which is one statement. It does not wait for others long: where it
-- would have to, its presumptions are likely wrong.
CREATE FUNCTION begin_presumed_group(lock bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Whatever the operator's default is: only READ COMMITTED shows below what was done while this waited for the lock.
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
        RAISE serialization_failure USING MESSAGE = 'a group of one statement needs the isolation READ COMMITTED';
    END IF;
    PERFORM set_config('lock_timeout', '100ms', true),
            set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
            set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
            set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true);
    PERFORM pg_advisory_xact_lock(lock);
    IF EXISTS (SELECT FROM abandoned_groups WHERE number = lock) THEN
        RAISE serialization_failure USING MESSAGE = 'this group has been decided again';
    END IF;
END $$;

-- Waits until a group of unknown outcome has ended, and makes sure that it has where it has not begun yet.
CREATE FUNCTION abandon_group(lock bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    INSERT INTO abandoned_groups (number) VALUES (lock) ON CONFLICT DO NOTHING;
END $$;

-- Where fewer rows are there than are to change, somebody else changed them meanwhile: the group is decided again.
CREATE FUNCTION expect_rows(there bigint, expected bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF there <> expected THEN
        RAISE serialization_failure USING MESSAGE = format('%s of %s rows are there', there, expected);
    END IF;
END $$;

CREATE FUNCTION read_claims(types integer[], names text[]) RETURNS SETOF claims LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT c.* FROM unnest(types, names) AS k (t, v)
        JOIN claims c ON c.bucket_type = k.t AND c.bucket_value = k.v;
END $$;

-- Leases that are to be settled, locked in the order of their ids.
CREATE FUNCTION lock_leases(uuids uuid[]) RETURNS SETOF claim_leases LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT l.* FROM unnest(uuids) AS n (u) JOIN claim_leases l ON l.uuid = n.u
        ORDER BY l.uuid FOR UPDATE OF l;
END $$;

-- Claims at rest that are to change, locked in the order of their keys.
CREATE FUNCTION lock_claims(types integer[], names text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (
        SELECT FROM claims c JOIN unnest(types, names) AS k (t, v) ON c.bucket_type = k.t AND c.bucket_value = k.v
        ORDER BY c.bucket_type, c.bucket_value FOR UPDATE OF c
    ) locked;
END $$;

-- What nearly every group writes, in one statement: claims that come to rest with nothing else changed (r_), new claims (c_),
-- their idempotency keys (k_), leases that are begun (l_), whose fences it returns, and leases that are settled (s_).
-- With `presumed_lock` it is a transaction of its own.
CREATE FUNCTION write_group(
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
        UPDATE claims c SET status = 1, lease_uuid = NULL, leased_at = NULL, replaced = NULL, updated_at = n.at
        FROM unnest(r_types, r_names, r_times) AS n (t, v, at) WHERE c.bucket_type = n.t AND c.bucket_value = n.v;
        GET DIAGNOSTICS written = ROW_COUNT;
        PERFORM expect_rows(written, cardinality(r_types));
    END IF;
    IF cardinality(c_types) > 0 OR cardinality(k_cells) > 0 THEN
        BEGIN
            -- In the order given, that of the keys.
            IF cardinality(c_types) > 0 THEN
                INSERT INTO claims (bucket_type, bucket_value, bucket_spelling, uuid, creator_id, subject_type, subject_id,
                    source_type, source_id, user_data, status, lease_uuid, leased_at, created_at, updated_at, replaced)
                SELECT n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13, n14, n15, n16::json
                FROM unnest(c_types, c_names, c_spellings, c_uuids, c_cells, c_subject_types, c_subject_ids, c_source_types,
                    c_source_ids, c_user_data, c_statuses, c_leases, c_leased_at, c_created_at, c_updated_at, c_replaced)
                    AS n (n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13, n14, n15, n16);
            END IF;
            IF cardinality(k_cells) > 0 THEN
                INSERT INTO idempotency_keys (creator_id, idempotency_key, lease_uuid, fingerprint)
                SELECT * FROM unnest(k_cells, k_keys, k_leases, k_fingerprints);
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
            SELECT n.u, n.c, nextval('lease_fences'), n.t, n.k, n.bt::integer[], n.bv::text[]
            FROM unnest(l_uuids, l_cells, l_times, l_keys, l_types, l_names) AS n (u, c, t, k, bt, bv)
            RETURNING l.uuid, l.fence;
    END IF;
    IF cardinality(s_uuids) > 0 THEN
        WITH gone AS (
            DELETE FROM claim_leases l USING unnest(s_uuids, s_committed, s_times) AS n (u, c, t) WHERE l.uuid = n.u
            RETURNING l.uuid, l.creator_id, l.fence, n.c, l.created_at, n.t, l.idempotency_key
        )
        INSERT INTO settled_leases (uuid, creator_id, fence, committed, created_at, settled_at, idempotency_key)
        SELECT * FROM gone;
        GET DIAGNOSTICS written = ROW_COUNT;
        PERFORM expect_rows(written, cardinality(s_uuids));
    END IF;
END $$;
