UPDATE locks SET holder = :client_id, fence = nextval('fences') WHERE key = 'bench/' || :client_id AND holder IS NULL RETURNING fence \gset
UPDATE locks SET holder = NULL WHERE key = 'bench/' || :client_id AND fence = :fence;
