INSERT INTO request_queue (request_type, spreadsheet_id, body) VALUES ('create', gen_random_uuid(), decode(repeat('07', 100), 'hex'));
BEGIN;
WITH taken AS (UPDATE request_queue SET request_status = 'in-progress', process_id = gen_random_uuid() WHERE request_queue_id = (SELECT request_queue_id FROM request_queue WHERE request_status = 'new' ORDER BY request_queue_id FETCH FIRST ROW ONLY FOR UPDATE SKIP LOCKED) RETURNING request_queue_id) SELECT coalesce(max(request_queue_id), 0) AS id FROM taken \gset
\startpipeline
UPDATE request_queue SET request_status = 'complete' WHERE request_queue_id = :id;
COMMIT;
\endpipeline
