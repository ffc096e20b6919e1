-- Version 12 of the tables: queues. A server of version 11 knows none of these tables, and changes none.
CREATE TABLE request_queues (
    queue     text PRIMARY KEY COLLATE "C",
    is_paused boolean NOT NULL,
    row_limit bigint,
    taken     bigint NOT NULL
);
COMMENT ON TABLE request_queues IS 'The queues that are paused or limited; other queues have no row';
COMMENT ON COLUMN request_queues.queue IS 'The name of the queue';
COMMENT ON COLUMN request_queues.is_paused IS 'True if no lane of the queue is taken';
COMMENT ON COLUMN request_queues.row_limit IS 'The largest number of lanes that are taken at a time; NULL for any number';
COMMENT ON COLUMN request_queues.taken IS 'The number of lanes that were taken under the limit and are not settled';

CREATE TABLE request_lanes (
    queue                   text NOT NULL COLLATE "C",
    key                     text NOT NULL COLLATE "C",
    list                    smallint NOT NULL CHECK (list BETWEEN 1 AND 5),
    is_paused               boolean NOT NULL,
    waiting                 integer NOT NULL CHECK (waiting >= 0),
    last_number             bigint NOT NULL,
    create_uuid             uuid,
    not_before              timestamptz,
    rank                    timestamptz,
    fence                   bigint,
    take_uuid               uuid,
    session_uuid            uuid,
    taken_at                timestamptz,
    withholding_micros      bigint,
    taken_number            bigint,
    is_counted              boolean,
    progress                bytea,
    progress_number         bigint,
    last_fence              bigint,
    last_take_uuid          uuid,
    last_session_uuid       uuid,
    last_taken_at           timestamptz,
    last_withholding_micros bigint,
    last_taken_number       bigint,
    last_is_counted         boolean,
    last_end                smallint CHECK (last_end BETWEEN 1 AND 4),
    last_ended_at           timestamptz,
    updated_at              timestamptz NOT NULL,
    PRIMARY KEY (queue, key),
    CHECK ((list = 3) = (fence IS NOT NULL)),
    CHECK (num_nulls(fence, take_uuid, session_uuid, taken_at, withholding_micros, taken_number, is_counted) IN (0, 7)),
    CHECK (num_nulls(not_before, rank) IN (0, 2) AND (fence IS NULL OR rank IS NULL)),
    CHECK (num_nulls(progress, progress_number) IN (0, 2)),
    CHECK (num_nulls(last_fence, last_take_uuid, last_session_uuid, last_taken_at, last_withholding_micros,
        last_taken_number, last_is_counted, last_end, last_ended_at) IN (0, 9))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
COMMENT ON TABLE request_lanes IS 'The lanes of queues: the requests of one key, as a whole';
COMMENT ON COLUMN request_lanes.queue IS 'The queue of the lane';
COMMENT ON COLUMN request_lanes.key IS 'The key of the resource that the lanes requests are about';
COMMENT ON COLUMN request_lanes.list IS '1 ready: a worker can take it; 2 delayed: the first request was not due at the last change; 3 taken; 4 paused; 5 idle';
COMMENT ON COLUMN request_lanes.is_paused IS 'True if an operator has paused the lane';
COMMENT ON COLUMN request_lanes.waiting IS 'The number of requests that wait';
COMMENT ON COLUMN request_lanes.last_number IS 'The number of the newest request';
COMMENT ON COLUMN request_lanes.create_uuid IS 'The request that creates the resource, for as long as it is remembered';
COMMENT ON COLUMN request_lanes.not_before IS 'The time before which the first request that waits is not taken; NULL if the lane is idle or taken';
COMMENT ON COLUMN request_lanes.rank IS 'The place of the first request that waits among ready lanes: the earliest first; NULL if the lane is idle or taken';
COMMENT ON COLUMN request_lanes.fence IS 'The fence of the worker that holds the lane; NULL if none does';
COMMENT ON COLUMN request_lanes.take_uuid IS 'The take that began the hold';
COMMENT ON COLUMN request_lanes.session_uuid IS 'The session of the worker';
COMMENT ON COLUMN request_lanes.taken_at IS 'The time of the take';
COMMENT ON COLUMN request_lanes.withholding_micros IS 'The microseconds for which a server must observe the hold after the eviction of the session';
COMMENT ON COLUMN request_lanes.taken_number IS 'The number of the last request that was taken';
COMMENT ON COLUMN request_lanes.is_counted IS 'True if the hold counts in request_queues.taken';
COMMENT ON COLUMN request_lanes.progress IS 'The newest note of a worker; NULL if there is none';
COMMENT ON COLUMN request_lanes.progress_number IS 'The number of the last request that the note is about';
COMMENT ON COLUMN request_lanes.last_fence IS 'The fence of the hold that ended last; NULL before the first end';
COMMENT ON COLUMN request_lanes.last_take_uuid IS 'The take of that hold';
COMMENT ON COLUMN request_lanes.last_session_uuid IS 'The session of that hold';
COMMENT ON COLUMN request_lanes.last_taken_at IS 'The time of that take';
COMMENT ON COLUMN request_lanes.last_withholding_micros IS 'The microseconds of that hold, as in withholding_micros';
COMMENT ON COLUMN request_lanes.last_taken_number IS 'The number of the last request of that hold';
COMMENT ON COLUMN request_lanes.last_is_counted IS 'True if that hold counted in request_queues.taken';
COMMENT ON COLUMN request_lanes.last_end IS 'How that hold ended: 1 completed, 2 failed, 3 given back, 4 the workers session ended';
COMMENT ON COLUMN request_lanes.last_ended_at IS 'The time of that end';
COMMENT ON COLUMN request_lanes.updated_at IS 'The time of the last change';

CREATE INDEX request_lanes_ready ON request_lanes (queue, rank, key) WHERE list = 1;
COMMENT ON INDEX request_lanes_ready IS 'The lanes that workers can take, in the order in which they are offered';
CREATE INDEX request_lanes_delayed ON request_lanes (queue, not_before, key) WHERE list = 2;
COMMENT ON INDEX request_lanes_delayed IS 'The lanes whose first request was not due, by the time at which it is';
CREATE INDEX request_lanes_taken ON request_lanes (session_uuid, fence, queue, key) WHERE list = 3;
COMMENT ON INDEX request_lanes_taken IS 'The lanes that each session holds';
CREATE INDEX request_lanes_paused ON request_lanes (queue, key) WHERE list = 4;
COMMENT ON INDEX request_lanes_paused IS 'The paused lanes';
CREATE INDEX request_lanes_idle ON request_lanes (updated_at, queue, key) WHERE list = 5;
COMMENT ON INDEX request_lanes_idle IS 'The order in which idle lanes are forgotten';

CREATE TABLE open_requests (
    uuid         uuid PRIMARY KEY,
    queue        text NOT NULL COLLATE "C",
    key          text NOT NULL COLLATE "C",
    number       bigint NOT NULL,
    kind         smallint NOT NULL CHECK (kind BETWEEN 1 AND 2),
    priority     smallint NOT NULL,
    not_before   timestamptz NOT NULL,
    attempts     integer NOT NULL,
    max_attempts integer NOT NULL,
    body_bytes   integer NOT NULL,
    body_hash    bigint NOT NULL,
    submitted_at timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    state        smallint NOT NULL CHECK (state BETWEEN 1 AND 2)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
COMMENT ON TABLE open_requests IS 'The requests that wait or are worked';
COMMENT ON COLUMN open_requests.uuid IS 'The id of the request';
COMMENT ON COLUMN open_requests.queue IS 'The queue of the request';
COMMENT ON COLUMN open_requests.key IS 'The key of the resource that the request is about';
COMMENT ON COLUMN open_requests.number IS 'The place of the request in its lane';
COMMENT ON COLUMN open_requests.kind IS '1 creates the resource, 2 updates it';
COMMENT ON COLUMN open_requests.priority IS 'The priority, 0 to 9';
COMMENT ON COLUMN open_requests.not_before IS 'The time before which the request is not taken';
COMMENT ON COLUMN open_requests.attempts IS 'The number of attempts so far';
COMMENT ON COLUMN open_requests.max_attempts IS 'The largest number of attempts';
COMMENT ON COLUMN open_requests.body_bytes IS 'The number of bytes in the body';
COMMENT ON COLUMN open_requests.body_hash IS 'The hash (XXH3) of the body';
COMMENT ON COLUMN open_requests.submitted_at IS 'The time of the submit';
COMMENT ON COLUMN open_requests.updated_at IS 'The time of the last change of the state';
COMMENT ON COLUMN open_requests.state IS '1 new: the request waits; 2 in progress: a worker has taken it';

-- The index has no column that a take changes, so that takes make no new entries of it. The requests that a worker has
-- taken are the first of their lane, and at most one batch.
CREATE INDEX open_requests_lane ON open_requests (queue, key, number);
COMMENT ON INDEX open_requests_lane IS 'The requests of a lane in their order: those that a worker has taken, then those that wait';

CREATE TABLE settled_requests (
    uuid         uuid PRIMARY KEY,
    queue        text NOT NULL COLLATE "C",
    key          text NOT NULL COLLATE "C",
    number       bigint NOT NULL,
    kind         smallint NOT NULL CHECK (kind BETWEEN 1 AND 2),
    priority     smallint NOT NULL,
    not_before   timestamptz NOT NULL,
    attempts     integer NOT NULL,
    max_attempts integer NOT NULL,
    body_bytes   integer NOT NULL,
    body_hash    bigint NOT NULL,
    submitted_at timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    state        smallint NOT NULL CHECK (state BETWEEN 3 AND 4)
) PARTITION BY RANGE (uuid);
COMMENT ON TABLE settled_requests IS 'The requests that are complete or have failed for the last time';
COMMENT ON COLUMN settled_requests.uuid IS 'The id of the request';
COMMENT ON COLUMN settled_requests.queue IS 'The queue of the request';
COMMENT ON COLUMN settled_requests.key IS 'The key of the resource that the request is about';
COMMENT ON COLUMN settled_requests.number IS 'The place of the request in its lane';
COMMENT ON COLUMN settled_requests.kind IS '1 creates the resource, 2 updates it';
COMMENT ON COLUMN settled_requests.priority IS 'The priority, 0 to 9';
COMMENT ON COLUMN settled_requests.not_before IS 'The time before which the request is not taken';
COMMENT ON COLUMN settled_requests.attempts IS 'The number of attempts so far';
COMMENT ON COLUMN settled_requests.max_attempts IS 'The largest number of attempts';
COMMENT ON COLUMN settled_requests.body_bytes IS 'The number of bytes in the body';
COMMENT ON COLUMN settled_requests.body_hash IS 'The hash (XXH3) of the body';
COMMENT ON COLUMN settled_requests.submitted_at IS 'The time of the submit';
COMMENT ON COLUMN settled_requests.updated_at IS 'The time of the last change of the state';
COMMENT ON COLUMN settled_requests.state IS '3 complete; 4 error: the last attempt failed';

-- The index has an expression in the place of the column uuid, as that of leases: a plan that was made for an empty
-- partition must not look up ids in it.
CREATE INDEX settled_requests_age ON settled_requests (updated_at, uuid_send(uuid));
COMMENT ON INDEX settled_requests_age IS 'The order in which settled requests are forgotten';

CREATE TABLE request_bodies (
    uuid uuid PRIMARY KEY,
    body bytea NOT NULL
) PARTITION BY RANGE (uuid);
COMMENT ON TABLE request_bodies IS 'The bodies of requests, each written once';
COMMENT ON COLUMN request_bodies.uuid IS 'The id of the request';
COMMENT ON COLUMN request_bodies.body IS 'The bytes of the body';

-- The first 48 bits of a UUIDv7 are the milliseconds of its making (RFC 9562, section 5.7), so a range of ids is a range of
-- time. The servers add a partition for each period (shift_request_partitions), and drop it once all of its requests are
-- forgotten. Ids that begin with no time before 2074, as nearly all random ones, are in a partition of their own. So the
-- default partition has few rows, and PostgreSQL scans it fast before it adds a partition.
CREATE TABLE settled_requests_beyond PARTITION OF settled_requests
    FOR VALUES FROM ('03000000-0000-0000-0000-000000000000') TO (MAXVALUE);
COMMENT ON TABLE settled_requests_beyond IS 'The settled requests whose ids begin with no time before 2074, such as random ids';
CREATE TABLE settled_requests_default PARTITION OF settled_requests DEFAULT;
COMMENT ON TABLE settled_requests_default IS 'The settled requests whose ids are in no other partition';
CREATE TABLE request_bodies_beyond PARTITION OF request_bodies
    FOR VALUES FROM ('03000000-0000-0000-0000-000000000000') TO (MAXVALUE);
COMMENT ON TABLE request_bodies_beyond IS 'The bodies of the requests whose ids begin with no time before 2074, such as random ids';
CREATE TABLE request_bodies_default PARTITION OF request_bodies DEFAULT;
COMMENT ON TABLE request_bodies_default IS 'The bodies of the requests whose ids are in no other partition';

CREATE FUNCTION first_request_id(millis bigint) RETURNS uuid LANGUAGE sql IMMUTABLE
    RETURN rpad(lpad(to_hex(millis), 12, '0'), 32, '0')::uuid;

COMMENT ON FUNCTION first_request_id IS 'The smallest id whose first 48 bits are these milliseconds since 1970';

CREATE FUNCTION request_id_millis(id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint;

COMMENT ON FUNCTION request_id_millis IS 'The first 48 bits of an id: the milliseconds since 1970 at which a UUIDv7 was made';

-- The function shift_request_partitions runs with the rights of the tables' owner. INVARIANT: it and the functions that it
-- calls name functions of PostgreSQL with their schema, and cast arguments of operators to the exact types. Else a role that
-- may create functions in this schema could make a better match, which would run with the rights of the owner.
CREATE FUNCTION request_partitions(OUT suffix text, OUT first_millis bigint, OUT end_millis bigint) RETURNS SETOF record
LANGUAGE sql AS $$
    SELECT pg_catalog.substr(c.relname::text, pg_catalog.length('request_bodies_'::text) + 1),
        request_id_millis(substring(bound FROM $x$FROM \('([^']*)$x$::text)::uuid),
        coalesce(request_id_millis(substring(bound FROM $x$TO \('([^']*)$x$::text)::uuid), 1::bigint << 48)
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid,
        pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS bound
    WHERE i.inhparent = 'request_bodies'::regclass::oid AND bound <> 'DEFAULT'::text
$$;

COMMENT ON FUNCTION request_partitions IS
    'The partitions of bodies and settled requests: the end of their names, and the milliseconds since 1970 of their ids';

CREATE FUNCTION first_free_millis(first_millis bigint, end_millis bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    first_id uuid := first_request_id(first_millis);
    end_id uuid := first_request_id(end_millis);
    bodies_id uuid;
    settled_id uuid;
BEGIN
    SELECT uuid INTO bodies_id FROM request_bodies_default WHERE uuid >= first_id AND uuid < end_id ORDER BY uuid DESC LIMIT 1;
    SELECT uuid INTO settled_id FROM settled_requests_default WHERE uuid >= first_id AND uuid < end_id ORDER BY uuid DESC LIMIT 1;
    RETURN coalesce(1::bigint + greatest(request_id_millis(bodies_id), request_id_millis(settled_id)), first_millis);
END $$;

COMMENT ON FUNCTION first_free_millis IS 'The first milliseconds of a range after all ids of it that are in the default partitions';

-- A new partition takes a lock that no transaction may hold in parallel, and a lock that waits holds up all later ones. So
-- the lock timeout of shift_request_partitions is short.
CREATE FUNCTION add_request_partition(from_millis bigint, end_millis bigint, shortest_millis bigint, max_scan bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    first_millis bigint := first_free_millis(from_millis, end_millis);
    end_time timestamptz := pg_catalog.to_timestamp(end_millis::double precision / 1000::double precision);
    first_time timestamptz;
    suffix text;
    parent text;
BEGIN
    IF end_millis - first_millis < shortest_millis THEN
        RETURN 'done';
    END IF;
    -- PostgreSQL scans the default partitions under the lock.
    IF pg_catalog.pg_relation_size('request_bodies_default'::regclass)
        + pg_catalog.pg_relation_size('settled_requests_default'::regclass) > max_scan THEN
        RETURN 'full';
    END IF;
    LOCK TABLE ONLY settled_requests, ONLY request_bodies IN ACCESS EXCLUSIVE MODE;
    -- A wait for the default partitions, which autovacuum may have, would hold up all groups.
    LOCK TABLE settled_requests_default, request_bodies_default IN ACCESS EXCLUSIVE MODE NOWAIT;
    first_millis := first_free_millis(from_millis, end_millis);
    IF end_millis - first_millis < shortest_millis THEN
        RETURN 'busy';
    END IF;
    first_time := pg_catalog.to_timestamp(first_millis::double precision / 1000::double precision);
    suffix := pg_catalog.to_char(first_time AT TIME ZONE 'UTC'::text, 'YYYYMMDD_HH24MISSMS'::text);
    FOREACH parent IN ARRAY ARRAY['settled_requests'::text, 'request_bodies'::text] LOOP
        EXECUTE pg_catalog.format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', parent || '_'::text || suffix,
            parent, first_request_id(first_millis), first_request_id(end_millis));
        EXECUTE pg_catalog.format('COMMENT ON TABLE %I IS %L', parent || '_'::text || suffix, pg_catalog.format(
            'The rows of %s whose ids were made from the time in the name until %s UTC', parent,
            pg_catalog.to_char(end_time AT TIME ZONE 'UTC'::text, 'YYYY-MM-DD HH24:MI:SS'::text)));
    END LOOP;
    RETURN 'added';
END $$;

COMMENT ON FUNCTION add_request_partition IS
    'Adds a partition to the tables of bodies and settled requests, for the ids of a range that are not in use yet. Returns '
    '`added`, `done` if that range is too short, `full` if the default partitions have more bytes than max_scan, or `busy`';

CREATE FUNCTION has_requests(suffix text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    found boolean;
BEGIN
    -- With the order, PostgreSQL uses the index, which remembers the entries of deleted rows. EXISTS would drop the order.
    EXECUTE pg_catalog.format(
        'SELECT pg_catalog.num_nonnulls((SELECT uuid FROM %I ORDER BY uuid LIMIT 1), (SELECT uuid FROM %I ORDER BY uuid LIMIT 1)) > 0',
        'request_bodies_'::text || suffix, 'settled_requests_'::text || suffix) INTO found;
    RETURN found;
END $$;

COMMENT ON FUNCTION has_requests IS 'True if the partitions with this end of their names have a body or a settled request';

CREATE FUNCTION drop_request_partition(suffix text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    settled text := 'settled_requests_'::text || suffix;
    bodies text := 'request_bodies_'::text || suffix;
    began timestamptz := pg_catalog.clock_timestamp();
    has_parents boolean := false;
BEGIN
    -- Under the lock, the search must be short: the next one is faster than one that has found many deleted rows.
    IF has_requests(suffix) OR pg_catalog.clock_timestamp() - began > interval '100 ms' THEN
        RETURN false;
    END IF;
    LOCK TABLE ONLY settled_requests, ONLY request_bodies IN ACCESS EXCLUSIVE MODE;
    has_parents := true;
    -- Autovacuum often has the partition whose rows were just deleted. A wait for it would hold up all groups.
    EXECUTE pg_catalog.format(
        'LOCK TABLE %I, %I, settled_requests_default, request_bodies_default IN ACCESS EXCLUSIVE MODE NOWAIT', settled, bodies);
    IF has_requests(suffix) THEN
        -- An error releases the locks: the caller goes on to the next partition.
        RAISE lock_not_available;
    END IF;
    -- INVARIANT: both leave together. A group may have a snapshot from before the deletes. It must find each of its
    -- requests, unless the request with its body is forgotten. A body stays while its request is open or settled.
    EXECUTE pg_catalog.format('DROP TABLE %I, %I', settled, bodies);
    RETURN true;
EXCEPTION
    WHEN lock_not_available THEN
        IF NOT has_parents THEN
            RAISE;
        END IF;
        RETURN false;
END $$;

COMMENT ON FUNCTION drop_request_partition IS
    'Drops the partitions with this end of their names if they are empty, and no other session has locked them. Returns true '
    'if they were dropped';

CREATE FUNCTION shift_request_partitions(at timestamptz, period interval, max_scan bigint DEFAULT 33554432) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '100ms' AS $$
DECLARE
    equal_partitions CONSTANT bigint := 20;
    period_millis bigint := extract(epoch FROM period) * 1000::numeric;
    at_millis bigint := extract(epoch FROM at) * 1000::numeric;
    ahead_millis bigint := greatest(period_millis * 2::bigint, 172800000::bigint);
    equal_millis bigint := greatest(period_millis, ahead_millis / 8::bigint);
    next_millis bigint;
    length_millis bigint;
    until bigint;
    partition record;
    result text := 'done';
    added text;
BEGIN
    IF (period >= interval '1 minute') IS NOT TRUE THEN
        RAISE invalid_parameter_value USING MESSAGE = 'the period of partitions must be at least a minute';
    END IF;
    -- An older snapshot would not see the rows that were written while the function waited for a lock.
    IF pg_catalog.current_setting('transaction_isolation'::text) NOT LIKE 'read %'::text THEN
        RAISE EXCEPTION 'a shift of partitions needs the isolation level READ COMMITTED';
    END IF;
    -- Two servers must not shift at once. The number is that of the migrations' lock and one.
    IF NOT pg_catalog.pg_try_advisory_xact_lock(x'006c656173656870'::bigint) THEN
        RETURN 'busy';
    END IF;
    -- Requests that wait for long keep their partition. Beyond a number of partitions, each one doubles the length of the
    -- next ones, so that their number grows with the logarithm of the time.
    SELECT equal_millis << least(greatest(pg_catalog.count(*) - equal_partitions, 0::bigint), 20::bigint)::integer,
        greatest(at_millis / equal_millis * equal_millis, pg_catalog.max(p.end_millis) FILTER (WHERE p.first_millis <= at_millis))
    INTO length_millis, next_millis FROM request_partitions() p;
    WHILE next_millis <= at_millis + ahead_millis LOOP
        SELECT p.end_millis INTO until FROM request_partitions() p WHERE p.first_millis <= next_millis AND next_millis < p.end_millis;
        IF until IS NULL THEN
            SELECT least(next_millis + length_millis, pg_catalog.min(p.first_millis)) INTO until
            FROM request_partitions() p WHERE p.first_millis > next_millis;
            added := add_request_partition(next_millis, until, equal_millis / 4::bigint, max_scan);
            -- INVARIANT: one change a transaction. Else a search would run under the lock of the change before it.
            IF added = 'added'::text OR added = 'busy'::text THEN
                RETURN added;
            ELSIF added = 'full'::text THEN
                result := 'full';
            END IF;
        END IF;
        next_millis := until;
    END LOOP;
    FOR partition IN SELECT p.suffix FROM request_partitions() p WHERE p.end_millis <= at_millis - period_millis ORDER BY p.first_millis LOOP
        IF drop_request_partition(partition.suffix) THEN
            RETURN 'dropped';
        END IF;
    END LOOP;
    RETURN result;
EXCEPTION
    -- A table in use is no fault. An error would be in the log of the database.
    WHEN lock_not_available THEN
        RETURN 'locked';
END $$;

COMMENT ON FUNCTION shift_request_partitions IS
    'Makes one change: adds a partition of bodies and settled requests for the ids of the next 48 hours or two periods, or '
    'drops one that is empty and over by more than a period. Returns `added` or `dropped`: call again; `done`; `busy`: '
    'another session does it; `locked`: another session has locked a table; `full`: none is added, because the default '
    'partitions have more bytes than max_scan';
REVOKE EXECUTE ON FUNCTION shift_request_partitions FROM PUBLIC;

-- The function must find its tables in this schema, whatever the search path of its caller is. PostgreSQL searches
-- pg_catalog first, because the path does not name it; a path that names it would make tables in it.
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION shift_request_partitions SET search_path = %I, pg_temp', current_schema());
END $$;

CREATE VIEW request_queue AS
    SELECT r.uuid AS request_queue_id, r.queue,
        CASE r.state WHEN 1 THEN 'new' WHEN 2 THEN 'in-progress' WHEN 3 THEN 'complete' ELSE 'error' END AS request_status,
        CASE r.kind WHEN 1 THEN 'create' ELSE 'update' END AS request_type,
        CASE WHEN r.state = 2 THEN l.session_uuid END AS process_id,
        r.key AS resource_id, r.number, r.attempts, r.submitted_at, r.updated_at
    FROM (SELECT * FROM open_requests UNION ALL SELECT * FROM settled_requests) r
    LEFT JOIN request_lanes l ON l.queue = r.queue AND l.key = r.key;

COMMENT ON VIEW request_queue IS
    'All requests with their states, for people: process_id is the session of the worker that has the request now';

CREATE TYPE new_queue AS (
    queue text,
    is_paused boolean,
    row_limit bigint,
    taken bigint
);
COMMENT ON TYPE new_queue IS 'A row of request_queues, as a server writes it';

CREATE TYPE new_lane AS (
    queue text,
    key text,
    list smallint,
    is_paused boolean,
    waiting integer,
    last_number bigint,
    create_uuid uuid,
    not_before timestamptz,
    rank timestamptz,
    fence bigint,
    take_uuid uuid,
    session_uuid uuid,
    taken_at timestamptz,
    withholding_micros bigint,
    taken_number bigint,
    is_counted boolean,
    progress bytea,
    progress_number bigint,
    last_fence bigint,
    last_take_uuid uuid,
    last_session_uuid uuid,
    last_taken_at timestamptz,
    last_withholding_micros bigint,
    last_taken_number bigint,
    last_is_counted boolean,
    last_end smallint,
    last_ended_at timestamptz,
    updated_at timestamptz
);
COMMENT ON TYPE new_lane IS 'A row of request_lanes, as a server writes it; a negative fence is the number of one that the statement has drawn';

CREATE TYPE new_request AS (
    uuid uuid,
    queue text,
    key text,
    number bigint,
    kind smallint,
    priority smallint,
    not_before timestamptz,
    attempts integer,
    max_attempts integer,
    body_bytes integer,
    body_hash bigint,
    submitted_at timestamptz,
    updated_at timestamptz,
    state smallint
);
COMMENT ON TYPE new_request IS 'A row of open_requests or settled_requests, as a server writes it';

CREATE TYPE new_body AS (
    uuid uuid,
    body bytea
);
COMMENT ON TYPE new_body IS 'A row of request_bodies, as a server writes it';

-- The reads of a group are functions, as those of locks are: their plans are kept, also behind a pooler.
CREATE FUNCTION read_lanes(queues text[], keys text[]) RETURNS SETOF request_lanes LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT l.* FROM unnest(queues, keys) AS n (q, k) JOIN request_lanes l ON l.queue = n.q AND l.key = n.k;
END $$;

COMMENT ON FUNCTION read_lanes IS 'The lanes of these queues and keys';

CREATE FUNCTION read_requests(uuids uuid[]) RETURNS SETOF open_requests LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT r.* FROM unnest(uuids) AS n (u) JOIN open_requests r ON r.uuid = n.u;
    RETURN QUERY SELECT r.* FROM unnest(uuids) AS n (u) JOIN settled_requests r ON r.uuid = n.u;
END $$;

COMMENT ON FUNCTION read_requests IS 'The requests of these ids, open ones and settled ones';

CREATE FUNCTION read_requests_of_lanes(queues text[], keys text[], states smallint[], limits bigint[])
RETURNS SETOF open_requests LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT r.* FROM unnest(queues, keys, states, limits) AS n (q, k, state, most)
        CROSS JOIN LATERAL (
            SELECT * FROM open_requests r WHERE r.queue = n.q AND r.key = n.k AND r.state = n.state
            ORDER BY r.number LIMIT n.most
        ) r;
END $$;

COMMENT ON FUNCTION read_requests_of_lanes IS 'The first requests of these lanes in these states, at most `limits` of each';

CREATE FUNCTION save_queues(
    fences bigint[], made_queues new_queue[], changed_queues new_queue[], removed_queues text[], made_lanes new_lane[],
    changed_lanes new_lane[], forgotten_queues text[], forgotten_keys text[], closed uuid[], reopened uuid[],
    opened new_request[], changed new_request[], settled new_request[], bodies new_body[], removed_bodies uuid[]
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    BEGIN
        -- INVARIANT: the server sends each kind sorted by its primary key. All transactions lock queues, then lanes, then
        -- requests in this order. Requests and bodies change only together with the row of their lane.
        IF cardinality(removed_queues) > 0 THEN
            DELETE FROM request_queues q USING unnest(removed_queues) AS n (name) WHERE q.queue = n.name;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(removed_queues));
        END IF;
        IF cardinality(changed_queues) > 0 THEN
            UPDATE request_queues q SET is_paused = n.is_paused, row_limit = n.row_limit, taken = n.taken
            FROM unnest(changed_queues) AS n WHERE q.queue = n.queue;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(changed_queues));
        END IF;
        IF cardinality(made_queues) > 0 THEN
            INSERT INTO request_queues SELECT * FROM unnest(made_queues) ON CONFLICT DO NOTHING;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(made_queues));
        END IF;
        IF cardinality(changed_lanes) > 0 THEN
            UPDATE request_lanes l SET list = n.list, is_paused = n.is_paused, waiting = n.waiting, last_number = n.last_number,
                create_uuid = n.create_uuid, not_before = n.not_before, rank = n.rank,
                fence = CASE WHEN n.fence < 0 THEN fences[-n.fence] ELSE n.fence END, take_uuid = n.take_uuid,
                session_uuid = n.session_uuid, taken_at = n.taken_at, withholding_micros = n.withholding_micros,
                taken_number = n.taken_number, is_counted = n.is_counted, progress = n.progress,
                progress_number = n.progress_number,
                last_fence = CASE WHEN n.last_fence < 0 THEN fences[-n.last_fence] ELSE n.last_fence END,
                last_take_uuid = n.last_take_uuid, last_session_uuid = n.last_session_uuid,
                last_taken_at = n.last_taken_at, last_withholding_micros = n.last_withholding_micros,
                last_taken_number = n.last_taken_number, last_is_counted = n.last_is_counted, last_end = n.last_end,
                last_ended_at = n.last_ended_at, updated_at = n.updated_at
            FROM unnest(changed_lanes) AS n WHERE l.queue = n.queue AND l.key = n.key;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(changed_lanes));
        END IF;
        IF cardinality(forgotten_keys) > 0 THEN
            DELETE FROM request_lanes l USING unnest(forgotten_queues, forgotten_keys) AS n (queue, key)
            WHERE l.queue = n.queue AND l.key = n.key;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(forgotten_keys));
        END IF;
        IF cardinality(made_lanes) > 0 THEN
            INSERT INTO request_lanes (queue, key, list, is_paused, waiting, last_number, create_uuid, not_before, rank, fence, take_uuid,
                session_uuid, taken_at, withholding_micros, taken_number, is_counted, progress, progress_number,
                last_fence, last_take_uuid, last_session_uuid, last_taken_at, last_withholding_micros, last_taken_number,
                last_is_counted, last_end, last_ended_at, updated_at)
            SELECT n.queue, n.key, n.list, n.is_paused, n.waiting, n.last_number, n.create_uuid, n.not_before, n.rank,
                CASE WHEN n.fence < 0 THEN fences[-n.fence] ELSE n.fence END, n.take_uuid, n.session_uuid, n.taken_at,
                n.withholding_micros, n.taken_number, n.is_counted, n.progress, n.progress_number,
                CASE WHEN n.last_fence < 0 THEN fences[-n.last_fence] ELSE n.last_fence END, n.last_take_uuid,
                n.last_session_uuid, n.last_taken_at, n.last_withholding_micros, n.last_taken_number, n.last_is_counted,
                n.last_end, n.last_ended_at, n.updated_at
            FROM unnest(made_lanes) AS n ON CONFLICT DO NOTHING;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(made_lanes));
        END IF;
        IF cardinality(closed) > 0 THEN
            DELETE FROM open_requests r USING unnest(closed) AS n (u) WHERE r.uuid = n.u;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(closed));
        END IF;
        IF cardinality(reopened) > 0 THEN
            DELETE FROM settled_requests r USING unnest(reopened) AS n (u) WHERE r.uuid = n.u;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(reopened));
        END IF;
        IF cardinality(changed) > 0 THEN
            UPDATE open_requests r SET number = n.number, not_before = n.not_before, attempts = n.attempts,
                updated_at = n.updated_at, state = n.state
            FROM unnest(changed) AS n WHERE r.uuid = n.uuid;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(changed));
        END IF;
        IF cardinality(opened) > 0 THEN
            INSERT INTO open_requests SELECT * FROM unnest(opened) ON CONFLICT DO NOTHING;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(opened));
        END IF;
        IF cardinality(settled) > 0 THEN
            INSERT INTO settled_requests SELECT * FROM unnest(settled) ON CONFLICT DO NOTHING;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(settled));
        END IF;
        IF cardinality(removed_bodies) > 0 THEN
            DELETE FROM request_bodies b USING unnest(removed_bodies) AS n (u) WHERE b.uuid = n.u;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(removed_bodies));
        END IF;
        -- The body of a request stays until the request is forgotten. So its primary key also finds an id that another
        -- transaction has used since this one began, and whose request is settled already.
        IF cardinality(bodies) > 0 THEN
            INSERT INTO request_bodies SELECT * FROM unnest(bodies) ON CONFLICT DO NOTHING;
            GET DIAGNOSTICS written = ROW_COUNT;
            PERFORM expect_rows(written, cardinality(bodies));
        END IF;
        RETURN QUERY SELECT unnest(fences);
    EXCEPTION
        -- The DETAIL of a violated constraint shows the row, and keys must not appear in the log.
        WHEN integrity_constraint_violation THEN
            RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
    END;
END $$;

COMMENT ON FUNCTION save_queues IS
    'Writes the changes of a group to the tables of queues. Puts the fences, which the caller has drawn, in the place of '
    'negative ones and returns them';
