INSERT INTO held_locks (key, holder, fence) VALUES ('bench/' || :client_id, :client_id, nextval('fences')) ON CONFLICT DO NOTHING RETURNING fence \gset
DELETE FROM held_locks WHERE key = 'bench/' || :client_id AND fence = :fence;
