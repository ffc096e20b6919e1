-- Whatever fails where claims are changed, the database's log shows no name. And write_rows does its work by keep_rows, so that
-- there is one place for it. Servers of the version before see no difference.

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
    -- The details of these errors show rows: an operator may have added constraints.
    WHEN integrity_constraint_violation THEN
        RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END $$;

COMMENT ON FUNCTION change_claims IS
    'Writes claims that were there and are other now; fails where one of them is not there any more';

CREATE OR REPLACE FUNCTION write_rows(
    presumed_lock bigint, rested_types integer[], rested_names text[], rested_at timestamptz[], claimed new_claim[],
    settled uuid[], committed boolean[], settled_at timestamptz[], begun new_lease[], keyed new_key[]
) RETURNS TABLE (lease uuid, number bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR lease, number IN
        SELECT * FROM keep_rows(presumed_lock, rested_types, rested_names, rested_at, claimed, settled, committed, settled_at,
            begun, keyed)
    LOOP
        IF lease IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = CASE number WHEN 2 THEN 'lock_not_available' ELSE 'serialization_failure' END,
                MESSAGE = 'another transaction was first, or keeps rows locked';
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- A row dies here with each lease that is forgotten. Waiting for a fifth of a large table to be dead, each statement that
-- forgets would step over more and more of them.
ALTER TABLE settled_leases SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000);
