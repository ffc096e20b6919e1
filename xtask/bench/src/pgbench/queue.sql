-- The table of seed 001, as fast as it was found to be: the body is a column, and a partial index has the requests that
-- wait, so that neither a search nor a change of a settled request touches many pages. Only updates are searched by their
-- sheet, so that creates are not in the last index.
CREATE TABLE request_queue (
    request_queue_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_status   text   NOT NULL DEFAULT 'new' CHECK (request_status IN ('complete', 'error', 'in-progress', 'new')),
    request_type     text   NOT NULL DEFAULT 'create' CHECK (request_type IN ('create', 'update')),
    process_id       uuid,
    spreadsheet_id   uuid   NOT NULL,
    body             bytea  NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX ON request_queue (spreadsheet_id) WHERE request_type = 'create';
CREATE INDEX ON request_queue (request_queue_id) WHERE request_status = 'new';
CREATE INDEX ON request_queue (spreadsheet_id) WHERE request_type = 'update' AND request_status IN ('new', 'in-progress');
