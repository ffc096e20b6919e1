-- Version 4 of the tables: ListRecords reads claims in the order of an index and sorts none.
--
-- The index of version 1 ends at source_id, so each part of a list sorted all claims of one source
-- id. The new index may exist already. On a large table, an operator should build it before the
-- migration, with CREATE INDEX CONCURRENTLY, which blocks no writes.
CREATE INDEX IF NOT EXISTS claims_listed ON claims (creator_id, source_type, source_id, bucket_type, bucket_value);

DROP INDEX claims_source;
