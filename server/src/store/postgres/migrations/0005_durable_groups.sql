-- What is answered is on disk, whatever the operator, or somebody who has tuned the role, lets commits do by default: with
-- `synchronous_commit` off a crash of the database loses what was acknowledged, and a name could be had twice.

-- To be called in each transaction that is acknowledged.
CREATE FUNCTION commit_durably() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- The other values wait for this machine's disk at least.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

COMMENT ON FUNCTION commit_durably IS
    'Lets the present transaction be acknowledged only when it is on disk, whatever `synchronous_commit` is by default';

CREATE OR REPLACE FUNCTION begin_group(lock bigint, statement_timeout_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('statement_timeout', statement_timeout_ms::text, true),
            set_config('idle_in_transaction_session_timeout', statement_timeout_ms::text, true),
            set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
            set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
            set_config('jit', 'off', true);
    PERFORM commit_durably();
    PERFORM pg_advisory_xact_lock(lock);
END $$;

CREATE OR REPLACE FUNCTION begin_presumed_group(lock bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Whatever the operator's default is: only READ COMMITTED shows below what was done while this waited for the lock.
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
        RAISE serialization_failure USING MESSAGE = 'a group of one statement needs the isolation READ COMMITTED';
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
