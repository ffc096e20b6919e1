INSERT INTO request_queue (request_type, spreadsheet_id, body) SELECT 'update', sheet, decode(repeat('07', 100), 'hex') FROM gen_random_uuid() AS sheet, generate_series(1, 50);
BEGIN;
SELECT coalesce((SELECT spreadsheet_id FROM request_queue WHERE request_status = 'new' AND pg_try_advisory_xact_lock(hashtextextended(spreadsheet_id::text, 0)) ORDER BY request_queue_id FETCH FIRST ROW ONLY), '00000000-0000-0000-0000-000000000000') AS sheet \gset
UPDATE request_queue SET request_status = 'in-progress', process_id = gen_random_uuid() WHERE spreadsheet_id = :sheet AND request_type = 'update' AND request_status = 'new';
\startpipeline
UPDATE request_queue SET request_status = 'complete' WHERE spreadsheet_id = :sheet AND request_type = 'update' AND request_status = 'in-progress';
COMMIT;
\endpipeline
