--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: new_claim; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.new_claim AS (
	bucket_type integer,
	bucket_value text,
	bucket_spelling text,
	uuid uuid,
	creator_id bigint,
	subject_type integer,
	subject_id bigint,
	source_type integer,
	source_id bytea,
	user_data bytea,
	status smallint,
	lease_uuid uuid,
	leased_at timestamp with time zone,
	created_at timestamp with time zone,
	updated_at timestamp with time zone,
	replaced json
);


--
-- Name: TYPE new_claim; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TYPE public.new_claim IS 'A row of claims, as a server writes it';


--
-- Name: new_key; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.new_key AS (
	creator_id bigint,
	idempotency_key text,
	lease_uuid uuid,
	fingerprint bytea
);


--
-- Name: TYPE new_key; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TYPE public.new_key IS 'A row of idempotency_keys, as a server writes it';


--
-- Name: new_lease; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.new_lease AS (
	uuid uuid,
	creator_id bigint,
	created_at timestamp with time zone,
	idempotency_key text,
	bucket_types integer[],
	bucket_values text[]
);


--
-- Name: TYPE new_lease; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TYPE public.new_lease IS 'A row of claim_leases, as a server writes it; the database adds the fence';


--
-- Name: abandon_group(bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.abandon_group(lock bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    INSERT INTO abandoned_groups (number) VALUES (lock) ON CONFLICT DO NOTHING;
END $$;


--
-- Name: FUNCTION abandon_group(lock bigint); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.abandon_group(lock bigint) IS 'Gives up a group whose outcome is unknown: waits until it has ended, and keeps it from beginning later';


--
-- Name: begin_group(bigint, bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.begin_group(lock bigint, statement_timeout_ms bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM set_config('statement_timeout', statement_timeout_ms::text, true),
            set_config('idle_in_transaction_session_timeout', statement_timeout_ms::text, true),
            set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
            set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
            set_config('jit', 'off', true);
    PERFORM commit_durably();
    PERFORM pg_advisory_xact_lock(lock);
END $$;


--
-- Name: FUNCTION begin_group(lock bigint, statement_timeout_ms bigint); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.begin_group(lock bigint, statement_timeout_ms bigint) IS 'Begins the transaction of a group of commands: settings for this transaction only, and the advisory lock of the group''s number, which a retry of the group waits for';


--
-- Name: begin_speculative_group(bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.begin_speculative_group(lock bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: FUNCTION begin_speculative_group(lock bigint); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.begin_speculative_group(lock bigint) IS 'Begins a group of one statement whose rows were assumed instead of read: refuses a group that was given up, and waits for the locks of others for at most 100 ms';


--
-- Name: change_claims(public.new_claim[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.change_claims(changed public.new_claim[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
    -- The DETAIL of these errors shows the row, and the database logs it. Names of people must not get into
    -- the log. An operator may have added constraints to the table.
    WHEN integrity_constraint_violation THEN
        RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END $$;


--
-- Name: FUNCTION change_claims(changed public.new_claim[]); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.change_claims(changed public.new_claim[]) IS 'Overwrites these claims; fails with a serialization failure if one is gone';


--
-- Name: commit_durably(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.commit_durably() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;


--
-- Name: FUNCTION commit_durably(); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.commit_durably() IS 'Makes the COMMIT of the current transaction wait for the disk, whatever the default of `synchronous_commit` is';


--
-- Name: expect_rows(bigint, bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.expect_rows(actual bigint, expected bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF actual <> expected THEN
        RAISE serialization_failure USING MESSAGE = format('%s of %s rows are there', actual, expected);
    END IF;
END $$;


--
-- Name: FUNCTION expect_rows(actual bigint, expected bigint); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.expect_rows(actual bigint, expected bigint) IS 'Fails with a serialization failure if fewer rows were found than expected: another transaction has changed them, and the group must be decided again';


--
-- Name: lock_claims(integer[], text[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.lock_claims(types integer[], names text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM FROM (
        SELECT FROM claims c JOIN unnest(types, names) AS k (t, v) ON c.bucket_type = k.t AND c.bucket_value = k.v
        ORDER BY c.bucket_type, c.bucket_value FOR UPDATE OF c
    ) locked;
END $$;


--
-- Name: FUNCTION lock_claims(types integer[], names text[]); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.lock_claims(types integer[], names text[]) IS 'Locks these claims in the order of their keys, so that servers can''t deadlock';


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: claim_leases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.claim_leases (
    uuid uuid NOT NULL,
    creator_id bigint NOT NULL,
    fence bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    idempotency_key text COLLATE pg_catalog."C",
    bucket_types integer[] NOT NULL,
    bucket_values text[] NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000');


--
-- Name: TABLE claim_leases; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.claim_leases IS 'Outstanding leases; settled ones are in settled_leases';


--
-- Name: COLUMN claim_leases.uuid; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claim_leases.uuid IS 'The id of the lease, which commit and rollback name';


--
-- Name: COLUMN claim_leases.creator_id; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claim_leases.creator_id IS 'The cell that began the update';


--
-- Name: COLUMN claim_leases.fence; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claim_leases.fence IS 'The number of the lease from the sequence lease_fences, larger than that of every lease begun before it: a reader that remembers the largest fence can refuse messages that arrive late';


--
-- Name: COLUMN claim_leases.created_at; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claim_leases.created_at IS 'When the update began';


--
-- Name: COLUMN claim_leases.idempotency_key; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claim_leases.idempotency_key IS 'The idempotency key of the begin; a repeated begin with this key gets the same lease. NULL if it had none';


--
-- Name: COLUMN claim_leases.bucket_types; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claim_leases.bucket_types IS 'The bucket types of the claims that the lease holds, one for each entry of bucket_values';


--
-- Name: COLUMN claim_leases.bucket_values; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claim_leases.bucket_values IS 'The canonical names of the claims that the lease holds, one for each entry of bucket_types';


--
-- Name: lock_leases(uuid[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.lock_leases(uuids uuid[]) RETURNS SETOF public.claim_leases
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN QUERY SELECT l.* FROM unnest(uuids) AS n (u) JOIN claim_leases l ON l.uuid = n.u
        ORDER BY l.uuid FOR UPDATE OF l;
END $$;


--
-- Name: FUNCTION lock_leases(uuids uuid[]); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.lock_leases(uuids uuid[]) IS 'The outstanding leases of these ids, locked in the order of the ids';


--
-- Name: claims; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.claims (
    bucket_type integer NOT NULL,
    bucket_value text NOT NULL COLLATE pg_catalog."C",
    bucket_spelling text COLLATE pg_catalog."C",
    uuid uuid NOT NULL,
    creator_id bigint NOT NULL,
    subject_type integer NOT NULL,
    subject_id bigint NOT NULL,
    source_type integer NOT NULL,
    source_id bytea NOT NULL,
    user_data bytea,
    status smallint NOT NULL,
    lease_uuid uuid,
    leased_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    replaced json,
    CONSTRAINT claims_check CHECK ((((status = 1) = (lease_uuid IS NULL)) AND ((lease_uuid IS NULL) = (leased_at IS NULL)))),
    CONSTRAINT claims_check1 CHECK (((status = 4) = (replaced IS NOT NULL))),
    CONSTRAINT claims_status_check CHECK (((status >= 1) AND (status <= 4)))
)
WITH (fillfactor='60');


--
-- Name: TABLE claims; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.claims IS 'Names and the cells that own them';


--
-- Name: COLUMN claims.bucket_type; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.bucket_type IS 'The kind of name: a number of claims.v1.Bucket.Type in the protos, which is the wire contract. Built in are 1 ROUTES, 2 ORGANIZATION_PATH, 3 REDIRECT_ROUTES, 4 USERNAMES, 5 EMAILS, 6 PROJECT_IDS, 7 NAMESPACE_IDS, 8 GPG_KEYS, 9 SSH_KEYS, 10 USER_IDS, 11 ORGANIZATION_IDS, 12 SERVICE_DESK_CUSTOM_EMAILS, 13 GPG_KEY_FINGERPRINTS, 15 SSH_KEY_FINGERPRINTS, 16 SNIPPET_IDS, 17 PAGES_DOMAINS, 18 PAGES_UNIQUE_DOMAINS; the table bucket_types lists the configured ones';


--
-- Name: COLUMN claims.bucket_value; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.bucket_value IS 'The name in canonical form, which decides whether two names are the same: if the bucket type folds case, Alice and ALICE are both stored as alice';


--
-- Name: COLUMN claims.bucket_spelling; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.bucket_spelling IS 'The name as the cell spelled it; NULL if that equals bucket_value';


--
-- Name: COLUMN claims.uuid; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.uuid IS 'The id of the record; a replace keeps it';


--
-- Name: COLUMN claims.creator_id; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.creator_id IS 'The cell that owns the name: the id of its [[cells]] entry in the configuration';


--
-- Name: COLUMN claims.subject_type; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.subject_type IS 'The kind of subject: 1 organization, 2 namespace, 3 project, 4 user (claims.v1.Subject.Type in the protos)';


--
-- Name: COLUMN claims.subject_id; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.subject_id IS 'The id of the subject in the cell''s database';


--
-- Name: COLUMN claims.source_type; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.source_type IS 'The table of the cell''s database that the name comes from: a number of claims.v1.Source.Type in the protos, such as 1 users, 2 emails, 3 routes';


--
-- Name: COLUMN claims.source_id; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.source_id IS 'The primary key of the row that the name comes from, written so that byte order is key order: an integer as 8 bytes, big-endian (read it with (''x'' || encode(source_id, ''hex''))::bit(64)::bigint), a UUID as its 16 bytes, any other text as its own bytes';


--
-- Name: COLUMN claims.user_data; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.user_data IS 'Data that the cell attached, returned unchanged: a google.protobuf.Any in its binary form; NULL if there is none';


--
-- Name: COLUMN claims.status; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.status IS '1 active, 2 being created, 3 being destroyed, 4 being replaced; a claim in status 2 to 4 is held by lease_uuid';


--
-- Name: COLUMN claims.lease_uuid; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.lease_uuid IS 'The lease in claim_leases that holds the claim until it is committed or rolled back; NULL while the claim is active';


--
-- Name: COLUMN claims.leased_at; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.leased_at IS 'When the lease took hold of the claim; NULL while the claim is active';


--
-- Name: COLUMN claims.created_at; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.created_at IS 'When this record was created';


--
-- Name: COLUMN claims.updated_at; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.updated_at IS 'When this record last changed';


--
-- Name: COLUMN claims.replaced; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.claims.replaced IS 'In status 4, the record that a rollback restores; the other columns have the record that a commit leaves. NULL otherwise';


--
-- Name: read_claims(integer[], text[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.read_claims(types integer[], names text[]) RETURNS SETOF public.claims
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN QUERY SELECT c.* FROM unnest(types, names) AS k (t, v)
        JOIN claims c ON c.bucket_type = k.t AND c.bucket_value = k.v;
END $$;


--
-- Name: FUNCTION read_claims(types integer[], names text[]); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.read_claims(types integer[], names text[]) IS 'The claims of these bucket types and canonical names';


--
-- Name: try_write_rows(bigint, integer[], text[], timestamp with time zone[], public.new_claim[], uuid[], boolean[], timestamp with time zone[], public.new_lease[], public.new_key[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.try_write_rows(speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamp with time zone[], claimed public.new_claim[], settled uuid[], committed boolean[], settled_at timestamp with time zone[], begun public.new_lease[], keyed public.new_key[]) RETURNS TABLE(lease uuid, number bigint)
    LANGUAGE plpgsql
    AS $$
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
        -- INVARIANT: the server sends claims and keys sorted by their primary keys. All transactions insert
        -- in that order, so that two of them can't wait for each other.
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
        -- The subtransaction of this block has been undone, so the COMMIT has nothing to wait for.
        WHEN unique_violation OR serialization_failure OR deadlock_detected THEN
            PERFORM set_config('synchronous_commit', 'off', true);
            RETURN QUERY SELECT NULL::uuid, 1::bigint;
        WHEN lock_not_available THEN
            PERFORM set_config('synchronous_commit', 'off', true);
            RETURN QUERY SELECT NULL::uuid, 2::bigint;
        -- The DETAIL of these errors shows the row, and the database logs it. Names of people must not get
        -- into the log.
        WHEN integrity_constraint_violation THEN
            RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
    END;
END $$;


--
-- Name: FUNCTION try_write_rows(speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamp with time zone[], claimed public.new_claim[], settled uuid[], committed boolean[], settled_at timestamp with time zone[], begun public.new_lease[], keyed public.new_key[]); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.try_write_rows(speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamp with time zone[], claimed public.new_claim[], settled uuid[], committed boolean[], settled_at timestamp with time zone[], begun public.new_lease[], keyed public.new_key[]) IS 'Writes the changes of a group of commands: claims that become active (activated_), new claims (claimed), their idempotency keys (keyed), new leases (begun), whose fences it returns, and settled leases (settled, committed, settled_at). With speculative_lock it is a transaction of its own. If another transaction was first, it changes nothing and returns one row without a lease: with the number 1, or 2 if it waited too long for a lock';


--
-- Name: write_rows(bigint, integer[], text[], timestamp with time zone[], public.new_claim[], uuid[], boolean[], timestamp with time zone[], public.new_lease[], public.new_key[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.write_rows(speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamp with time zone[], claimed public.new_claim[], settled uuid[], committed boolean[], settled_at timestamp with time zone[], begun public.new_lease[], keyed public.new_key[]) RETURNS TABLE(lease uuid, number bigint)
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: FUNCTION write_rows(speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamp with time zone[], claimed public.new_claim[], settled uuid[], committed boolean[], settled_at timestamp with time zone[], begun public.new_lease[], keyed public.new_key[]); Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON FUNCTION public.write_rows(speculative_lock bigint, activated_types integer[], activated_names text[], activated_at timestamp with time zone[], claimed public.new_claim[], settled uuid[], committed boolean[], settled_at timestamp with time zone[], begun public.new_lease[], keyed public.new_key[]) IS 'Does the same as try_write_rows, but fails with an error if another transaction was first';


--
-- Name: abandoned_groups; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.abandoned_groups (
    number bigint NOT NULL,
    abandoned_at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: TABLE abandoned_groups; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.abandoned_groups IS 'Groups of commands that were decided again, so that a late statement of theirs does nothing; kept for a day';


--
-- Name: COLUMN abandoned_groups.number; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.abandoned_groups.number IS 'The random number of the group, which is also the number of its advisory lock';


--
-- Name: COLUMN abandoned_groups.abandoned_at; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.abandoned_groups.abandoned_at IS 'When a server gave the group up';


--
-- Name: bucket_types; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.bucket_types (
    number integer NOT NULL,
    name text NOT NULL,
    form text NOT NULL,
    fold_case boolean NOT NULL
);


--
-- Name: TABLE bucket_types; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.bucket_types IS 'The configured bucket types, and the rules under which their claims were made';


--
-- Name: COLUMN bucket_types.number; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.bucket_types.number IS 'The number used in claims.bucket_type; built-in types have no row here';


--
-- Name: COLUMN bucket_types.name; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.bucket_types.name IS 'The name of the bucket type in the configuration';


--
-- Name: COLUMN bucket_types.form; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.bucket_types.form IS 'The allowed form of names: decimal, word, email, line or block';


--
-- Name: COLUMN bucket_types.fold_case; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.bucket_types.fold_case IS 'True if names that differ in upper and lower case only are the same name';


--
-- Name: idempotency_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.idempotency_keys (
    creator_id bigint NOT NULL,
    idempotency_key text NOT NULL COLLATE pg_catalog."C",
    lease_uuid uuid NOT NULL,
    fingerprint bytea NOT NULL
);


--
-- Name: TABLE idempotency_keys; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.idempotency_keys IS 'The leases that begins with an idempotency key got, for as long as the leases are kept';


--
-- Name: COLUMN idempotency_keys.creator_id; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.idempotency_keys.creator_id IS 'The cell that sent the begin; each cell has its own keys';


--
-- Name: COLUMN idempotency_keys.idempotency_key; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.idempotency_keys.idempotency_key IS 'The key that the cell chose';


--
-- Name: COLUMN idempotency_keys.lease_uuid; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.idempotency_keys.lease_uuid IS 'The lease that the begin got, in claim_leases or settled_leases';


--
-- Name: COLUMN idempotency_keys.fingerprint; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.idempotency_keys.fingerprint IS 'Hashes of the update that was sent with the key, by which another update under the same key is refused; no name can be read from it';


--
-- Name: lease_fences; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.lease_fences
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: SEQUENCE lease_fences; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON SEQUENCE public.lease_fences IS 'The fences of leases, each larger than all before it';


--
-- Name: leasehold_migrations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.leasehold_migrations (
    version integer NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: TABLE leasehold_migrations; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.leasehold_migrations IS 'The versions that these tables have been migrated to';


--
-- Name: COLUMN leasehold_migrations.version; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.leasehold_migrations.version IS 'The version: the number at the front of its files of statements';


--
-- Name: COLUMN leasehold_migrations.applied_at; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.leasehold_migrations.applied_at IS 'When the tables were migrated to this version';


--
-- Name: settled_leases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.settled_leases (
    uuid uuid NOT NULL,
    creator_id bigint NOT NULL,
    fence bigint NOT NULL,
    committed boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    settled_at timestamp with time zone NOT NULL,
    idempotency_key text COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='50000');


--
-- Name: TABLE settled_leases; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.settled_leases IS 'Committed and rolled back leases, for settled_retention_seconds';


--
-- Name: COLUMN settled_leases.uuid; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.settled_leases.uuid IS 'The id of the lease';


--
-- Name: COLUMN settled_leases.creator_id; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.settled_leases.creator_id IS 'The cell that began the update';


--
-- Name: COLUMN settled_leases.fence; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.settled_leases.fence IS 'The fence of the lease, as it was in claim_leases';


--
-- Name: COLUMN settled_leases.committed; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.settled_leases.committed IS 'True if the lease was committed, false if it was rolled back';


--
-- Name: COLUMN settled_leases.created_at; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.settled_leases.created_at IS 'When the update began';


--
-- Name: COLUMN settled_leases.settled_at; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.settled_leases.settled_at IS 'When the lease was committed or rolled back; the row is deleted settled_retention_seconds later';


--
-- Name: COLUMN settled_leases.idempotency_key; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON COLUMN public.settled_leases.idempotency_key IS 'The idempotency key of the begin; NULL if it had none';


--
-- Data for Name: abandoned_groups; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: bucket_types; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.bucket_types (number, name, form, fold_case) VALUES (100, 'TEAMS', 'word', true);


--
-- Data for Name: claim_leases; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.claim_leases (uuid, creator_id, fence, created_at, idempotency_key, bucket_types, bucket_values) VALUES ('78dde6e5-fd29-f057-ce73-018173b720d4', 2, 4, '2023-11-14 22:13:26+00', 'outstanding', '{4}', '{being-created}');
INSERT INTO public.claim_leases (uuid, creator_id, fence, created_at, idempotency_key, bucket_types, bucket_values) VALUES ('1715609f-7c74-6c6d-c20f-c1e1d0a4e909', 1, 5, '2023-11-14 22:13:27+00', NULL, '{4}', '{carol-ü}');
INSERT INTO public.claim_leases (uuid, creator_id, fence, created_at, idempotency_key, bucket_types, bucket_values) VALUES ('b54cda58-fbbe-e883-b5ac-82422d92b13e', 1, 6, '2023-11-14 22:13:28+00', NULL, '{4}', '{alice}');


--
-- Data for Name: claims; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.claims (bucket_type, bucket_value, bucket_spelling, uuid, creator_id, subject_type, subject_id, source_type, source_id, user_data, status, lease_uuid, leased_at, created_at, updated_at, replaced) VALUES (4, 'at-rest', NULL, '9e3779b9-7f4a-8c15-f39c-c0605cedc837', 1, 4, 7, 1, '\x0000000000000008', NULL, 1, NULL, NULL, '2023-11-14 22:13:20+00', '2023-11-14 22:13:21+00', NULL);
INSERT INTO public.claims (bucket_type, bucket_value, bucket_spelling, uuid, creator_id, subject_type, subject_id, source_type, source_id, user_data, status, lease_uuid, leased_at, created_at, updated_at, replaced) VALUES (4, 'being-created', NULL, '78dde6e5-fd29-8057-ce73-018173b720d5', 2, 4, 7, 1, '\x0000000000000001', NULL, 2, '78dde6e5-fd29-f057-ce73-018173b720d4', '2023-11-14 22:13:26+00', '2023-11-14 22:13:26+00', '2023-11-14 22:13:26+00', NULL);
INSERT INTO public.claims (bucket_type, bucket_value, bucket_spelling, uuid, creator_id, subject_type, subject_id, source_type, source_id, user_data, status, lease_uuid, leased_at, created_at, updated_at, replaced) VALUES (4, 'carol-ü', 'Carol-Ü', 'daa66d2c-7ddf-8441-dad6-412116c9589e', 1, 4, 7, 1, '\x0000000000000009', NULL, 3, '1715609f-7c74-6c6d-c20f-c1e1d0a4e909', '2023-11-14 22:13:27+00', '2023-11-14 22:13:24+00', '2023-11-14 22:13:25+00', NULL);
INSERT INTO public.claims (bucket_type, bucket_value, bucket_spelling, uuid, creator_id, subject_type, subject_id, source_type, source_id, user_data, status, lease_uuid, leased_at, created_at, updated_at, replaced) VALUES (4, 'alice', 'ALICE', '9e3779b9-7f4a-8c15-f39c-c0605cedc834', 1, 4, 7, 1, '\x000000000000000a', NULL, 4, 'b54cda58-fbbe-e883-b5ac-82422d92b13e', '2023-11-14 22:13:28+00', '2023-11-14 22:13:20+00', '2023-11-14 22:13:28+00', '{"uuid":"9e3779b9-7f4a-8c15-f39c-c0605cedc834","spelling":"Alice","subject":{"subject_type":4,"id":7},"source":{"source_type":1,"id":"0000000000000007"},"user_data":{"type_url":"type.example/x","value":"007fff"},"created_at":1700000000000000,"updated_at":1700000001000000}');


--
-- Data for Name: idempotency_keys; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.idempotency_keys (creator_id, idempotency_key, lease_uuid, fingerprint) VALUES (1, 'committed', '9e3779b9-7f4a-7c15-f39c-c0605cedc835', '\x02dbebc19af6eef4c94795e9b190829c9ad97dc8afa1bcdeb38591f701dba5bcf8c6f685943edaf6c8d8e0a8b69e0295e9b190829c9ad97ddde781bbec9abbbe83010000');
INSERT INTO public.idempotency_keys (creator_id, idempotency_key, lease_uuid, fingerprint) VALUES (1, 'rolled-back', '3c6ef372-fe94-f82b-e739-80c0b9db906a', '\x01c2d781ecb2d99fed810195e9b190829c9ad97ddde781bbec9abbbe83010000');
INSERT INTO public.idempotency_keys (creator_id, idempotency_key, lease_uuid, fingerprint) VALUES (2, 'outstanding', '78dde6e5-fd29-f057-ce73-018173b720d4', '\x01ddfba0aad5ca8784f00195e9b190829c9ad97dfaf39c81febe9ad94d0000');


--
-- Data for Name: leasehold_migrations; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.leasehold_migrations (version, applied_at) VALUES (1, '2026-11-25 05:00:12.474242+00');


--
-- Data for Name: settled_leases; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.settled_leases (uuid, creator_id, fence, committed, created_at, settled_at, idempotency_key) VALUES ('9e3779b9-7f4a-7c15-f39c-c0605cedc835', 1, 1, true, '2023-11-14 22:13:20+00', '2023-11-14 22:13:21+00', 'committed');
INSERT INTO public.settled_leases (uuid, creator_id, fence, committed, created_at, settled_at, idempotency_key) VALUES ('3c6ef372-fe94-f82b-e739-80c0b9db906a', 1, 2, false, '2023-11-14 22:13:22+00', '2023-11-14 22:13:23+00', 'rolled-back');
INSERT INTO public.settled_leases (uuid, creator_id, fence, committed, created_at, settled_at, idempotency_key) VALUES ('daa66d2c-7ddf-7441-dad6-412116c9589f', 1, 3, true, '2023-11-14 22:13:24+00', '2023-11-14 22:13:25+00', NULL);


--
-- Name: lease_fences; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.lease_fences', 6, true);


--
-- Name: abandoned_groups abandoned_groups_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.abandoned_groups
    ADD CONSTRAINT abandoned_groups_pkey PRIMARY KEY (number);


--
-- Name: bucket_types bucket_types_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.bucket_types
    ADD CONSTRAINT bucket_types_pkey PRIMARY KEY (number);


--
-- Name: claim_leases claim_leases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.claim_leases
    ADD CONSTRAINT claim_leases_pkey PRIMARY KEY (uuid);


--
-- Name: claims claims_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (bucket_type, bucket_value);


--
-- Name: idempotency_keys idempotency_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (creator_id, idempotency_key);


--
-- Name: leasehold_migrations leasehold_migrations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leasehold_migrations
    ADD CONSTRAINT leasehold_migrations_pkey PRIMARY KEY (version);


--
-- Name: settled_leases settled_leases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.settled_leases
    ADD CONSTRAINT settled_leases_pkey PRIMARY KEY (uuid);


--
-- Name: claim_leases_listed; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX claim_leases_listed ON public.claim_leases USING btree (creator_id, created_at, uuid_send(uuid));


--
-- Name: INDEX claim_leases_listed; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON INDEX public.claim_leases_listed IS 'The order of lists; over an expression, so that leases are looked up by their primary key only';


--
-- Name: claims_source; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX claims_source ON public.claims USING btree (creator_id, source_type, source_id);


--
-- Name: settled_leases_settled; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX settled_leases_settled ON public.settled_leases USING btree (settled_at, uuid);


--
-- PostgreSQL database dump complete
--

