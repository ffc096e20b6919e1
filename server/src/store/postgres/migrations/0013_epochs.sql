-- Epochs: the times in which one process of one host is the primary. A server answers from an epoch only after
-- it has entered it, so that an answer of a former primary is never taken for one of the present.

-- `local` and `remote_write` are raised too: with them, a COMMIT is acknowledged before a standby has flushed it, and a
-- failover would lose it (https://www.postgresql.org/docs/15/runtime-config-wal.html#GUC-SYNCHRONOUS-COMMIT).
-- A canceled wait for a standby is told by a warning, so warnings must not be filtered.
CREATE OR REPLACE FUNCTION commit_durably() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF current_setting('client_min_messages') = 'error' THEN
        PERFORM set_config('client_min_messages', 'warning', true);
    END IF;
END $$;

COMMENT ON FUNCTION commit_durably IS
    'Makes the COMMIT of the current transaction wait for the disks of the primary and of the synchronous standbys, '
    'whatever the default of `synchronous_commit` is';

-- Makes the COMMIT of the current transaction a durable write, even if no row has changed: a COMMIT without a
-- record in the log waits for nothing.
CREATE FUNCTION write_durably() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM commit_durably(), pg_logical_emit_message(true, 'leasehold', '');
END $$;

COMMENT ON FUNCTION write_durably IS
    'Makes the COMMIT of the current transaction write to the log and wait as `commit_durably` says';

-- The answer to this call proves that all earlier commits are as durable, also one whose answer was lost. Servers of an
-- earlier version call this function too, and may lack the right to call `write_durably`.
CREATE OR REPLACE FUNCTION abandon_group(lock bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    INSERT INTO abandoned_groups (number) VALUES (lock) ON CONFLICT DO NOTHING;
    PERFORM commit_durably(), pg_logical_emit_message(true, 'leasehold', '');
END $$;

CREATE TABLE store_epochs (
    epoch text PRIMARY KEY,
    begun_at timestamptz NOT NULL,
    is_adopted boolean NOT NULL
);

COMMENT ON TABLE store_epochs IS
    'The epochs in which servers have used the tables. Each restart, promotion and restore of the database begins one';
COMMENT ON COLUMN store_epochs.epoch IS 'What the function `current_epoch` returned';
COMMENT ON COLUMN store_epochs.begun_at IS 'When the first server entered the epoch';
COMMENT ON COLUMN store_epochs.is_adopted IS
    'True if `leasehold migrate --adopt` has accepted these tables, a copy';

-- The name of the log file has the timeline. `pg_control_checkpoint` would show the former one until the first checkpoint
-- after a promotion. PostgreSQL forgets its statistics when it recovers from a crash of one of its processes. Rows that no
-- standby has are visible after that, although the postmaster is the same.
CREATE FUNCTION host_epoch() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.pg_is_in_recovery() THEN
        RETURN 'standby';
    END IF;
    RETURN pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)
        || '/'::text || (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000::numeric)::bigint::text
        || '/'::text || (extract(epoch FROM pg_catalog.pg_stat_get_bgwriter_stat_reset_time()) * 1000000::numeric)::bigint::text
        || '/'::text || 'claims'::regclass::oid::text;
END $$;

COMMENT ON FUNCTION host_epoch IS
    'The epoch without the cluster: the timeline in hexadecimal digits, when the postmaster was started and when it last '
    'recovered, in microseconds since 1970, and the oid of the table `claims`';

CREATE FUNCTION current_epoch() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() c) || ':'::text
        || (SELECT d.oid::text FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
        || '/'::text || host_epoch();
END $$;

COMMENT ON FUNCTION current_epoch IS
    'The epoch: the identifier of the cluster, the oid of the database, and what `host_epoch` returns';

-- True if the tables of an epoch are those of another one: neither was made from a dump or as a copy of the other. No
-- promotion, restart or migration changes the cluster, the oid of the database or that of the table.
CREATE FUNCTION are_same_tables(one text, other text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT pg_catalog.split_part(one, '/'::text, 1) = pg_catalog.split_part(other, '/'::text, 1)
        AND pg_catalog.split_part(one, '/'::text, 5) = pg_catalog.split_part(other, '/'::text, 5)
$$;

COMMENT ON FUNCTION are_same_tables IS 'Returns true if two epochs are of the same tables, and not of a copy';

-- Returns `value`, so that a call of another function can have the check among its arguments. The identifier of the
-- cluster is left out, because each read of it reads a file.
CREATE FUNCTION at_epoch(expected text, value bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF host_epoch() IS DISTINCT FROM expected THEN
        RAISE EXCEPTION USING ERRCODE = 'LH001', MESSAGE = 'the database was restarted, or another host was promoted';
    END IF;
    RETURN value;
END $$;

COMMENT ON FUNCTION at_epoch IS
    'Returns `value`; fails with the SQLSTATE LH001 if `host_epoch` does not return the expected text';

-- The function has its owner's rights, because a server may draw fences and not set them. INVARIANT: as in
-- `request_partitions`, functions of PostgreSQL are named with their schema, and arguments are of the exact types. A fence
-- that is larger than any that a server has given out keeps B13 even if the last ones were lost: 2^21 fences a second stay
-- below 2^53 until the year 2106. The clocks of two hosts may differ, so 2^32 more than the last fence of a former timeline is
-- enough too. A restart on the same timeline loses nothing and adds nothing: if it did, fences would be ahead of the clock, and
-- a standby that is promoted without the rows of these epochs would give them out again. Tables from which a copy was made may
-- have gone further ahead since: 2^42 more are enough for a thousand epochs, and a thousand copies are still below 2^53. Fences
-- that are ahead of the clock go on as the clock does: of two copies or two promoted hosts, the later one has larger fences.
CREATE FUNCTION begin_epoch(last_fence bigint, adopts boolean) RETURNS TABLE (epoch text, state smallint, age_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    present text := current_epoch();
    cluster text := pg_catalog.split_part(present, '/'::text, 1);
    timeline text := pg_catalog.split_part(present, '/'::text, 2);
    now_fence bigint := extract(epoch FROM pg_catalog.clock_timestamp())::bigint << 21;
    is_first boolean;
    is_copy boolean;
    is_promoted boolean;
    is_begun boolean;
    is_used boolean;
    drawn bigint;
    elapsed bigint;
BEGIN
    IF timeline = 'standby'::text THEN
        RAISE read_only_sql_transaction USING MESSAGE = 'the host is a standby';
    END IF;
    PERFORM write_durably();
    is_first := NOT EXISTS (SELECT FROM store_epochs);
    is_copy := NOT (is_first OR EXISTS (SELECT FROM store_epochs e WHERE are_same_tables(e.epoch, present)));
    is_promoted := NOT EXISTS (
        SELECT FROM store_epochs e WHERE pg_catalog.split_part(e.epoch, '/'::text, 1) = cluster
            AND pg_catalog.split_part(e.epoch, '/'::text, 2) = timeline
    );
    IF is_copy AND NOT adopts THEN
        RETURN QUERY SELECT present, 3::smallint, 0::bigint;
        RETURN;
    END IF;
    -- Two timelines are compared as text of eight digits.
    IF EXISTS (
        SELECT FROM store_epochs e WHERE pg_catalog.split_part(e.epoch, '/'::text, 1) = cluster
            AND pg_catalog.split_part(e.epoch, '/'::text, 2) > timeline
    ) THEN
        IF NOT adopts THEN
            RETURN QUERY SELECT present, 4::smallint, 0::bigint;
            RETURN;
        END IF;
        -- The rows are those of a later dump, in a cluster that was restored to an earlier time.
        is_copy := true;
        DELETE FROM store_epochs e WHERE pg_catalog.split_part(e.epoch, '/'::text, 1) = cluster
            AND pg_catalog.split_part(e.epoch, '/'::text, 2) >= timeline;
    END IF;
    elapsed := greatest(0::bigint, (
        SELECT extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.max(e.begun_at))::bigint << 21 FROM store_epochs e));
    -- A second server waits here until the row of the first one is durable.
    INSERT INTO store_epochs AS e (epoch, begun_at, is_adopted) VALUES (present, pg_catalog.clock_timestamp(), is_copy)
        ON CONFLICT ON CONSTRAINT store_epochs_pkey DO NOTHING;
    is_begun := FOUND;
    -- No two sessions set the sequence at once. Others may draw meanwhile, but not 2^17 fences. That is a sixteenth of a
    -- second of the clock, so that fences are not ahead of it at the next epoch.
    PERFORM pg_catalog.pg_advisory_xact_lock(7221046915238467001::bigint);
    SELECT s.last_value, s.is_called INTO drawn, is_used FROM lease_fences s;
    -- Tables without epochs may be those of an older copy. Only if no fence was drawn, none can be lacking.
    IF is_begun AND (NOT is_first OR is_used OR EXISTS (SELECT FROM claims) OR last_fence > drawn) THEN
        PERFORM pg_catalog.setval('lease_fences'::regclass,
            greatest(now_fence, least(last_fence, now_fence + (1::bigint << 45)), drawn + (1::bigint << 17)
                + CASE WHEN is_promoted THEN 1::bigint << 32 ELSE 0::bigint END
                + CASE WHEN is_promoted OR is_copy OR drawn > now_fence THEN elapsed ELSE 0::bigint END)
            + CASE WHEN is_copy THEN 1::bigint << 42 ELSE 0::bigint END);
    ELSIF last_fence > drawn THEN
        PERFORM pg_catalog.setval('lease_fences'::regclass,
            greatest(drawn, least(last_fence, now_fence + (1::bigint << 45))) + (1::bigint << 17));
    END IF;
    RETURN QUERY SELECT present, CASE WHEN is_first THEN 1 WHEN is_copy THEN 5 ELSE 2 END::smallint,
        (extract(epoch FROM pg_catalog.clock_timestamp() - e.begun_at) * 1000::numeric)::bigint
        FROM store_epochs e WHERE e.epoch = present;
END $$;

COMMENT ON FUNCTION begin_epoch IS
    'Lets a server enter the current epoch, and returns it with its age. The first server of an epoch raises the fences to the '
    'largest of three numbers: the seconds since 1970 times 2^21, the last fence (plus 2^32 on a new timeline, and plus the time '
    'since the last epoch if it is ahead of the clock), and `last_fence`; 2^42 more if the tables are a copy. In the first epoch '
    'it does so only if a fence was drawn. The state is 1 if the epoch is '
    'the first of the tables, 2 if not, 3 if the tables are a copy and `adopts` is false, 4 if the tables have seen a later '
    'timeline, and 5 if the tables were a copy and are accepted now';

REVOKE EXECUTE ON FUNCTION begin_epoch FROM PUBLIC;

DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION begin_epoch(bigint, boolean) SET search_path = %I, pg_temp',
        (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'claims'::regclass));
END $$;
