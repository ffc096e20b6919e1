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
);
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

CREATE INDEX settled_requests_age ON settled_requests (updated_at, uuid);
COMMENT ON INDEX settled_requests_age IS 'The order in which settled requests are forgotten';

CREATE TABLE request_bodies (
    uuid uuid PRIMARY KEY,
    body bytea NOT NULL
);
COMMENT ON TABLE request_bodies IS 'The bodies of requests, each written once';
COMMENT ON COLUMN request_bodies.uuid IS 'The id of the request';
COMMENT ON COLUMN request_bodies.body IS 'The bytes of the body';

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
