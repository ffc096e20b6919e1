\set name1 random(1, 9223372036854775807)
\set name2 random(1, 9223372036854775807)
\set name3 random(1, 9223372036854775807)
\set name4 random(1, 9223372036854775807)
BEGIN;
INSERT INTO claim_leases (uuid, creator_id) VALUES (gen_random_uuid(), '1') RETURNING quote_literal(uuid) AS lease \gset
INSERT INTO claims (uuid, bucket_type, bucket_value, subject_type, subject_id, source_type, source_id, creator_id, lease_uuid, status) VALUES (gen_random_uuid(), 4, 'user-' || to_hex(:name1), 4, '1', 1, '1', '1', :lease, 2);
INSERT INTO claims (uuid, bucket_type, bucket_value, subject_type, subject_id, source_type, source_id, creator_id, lease_uuid, status) VALUES (gen_random_uuid(), 4, 'user-' || to_hex(:name2), 4, '1', 1, '1', '1', :lease, 2);
INSERT INTO claims (uuid, bucket_type, bucket_value, subject_type, subject_id, source_type, source_id, creator_id, lease_uuid, status) VALUES (gen_random_uuid(), 4, 'user-' || to_hex(:name3), 4, '1', 1, '1', '1', :lease, 2);
INSERT INTO claims (uuid, bucket_type, bucket_value, subject_type, subject_id, source_type, source_id, creator_id, lease_uuid, status) VALUES (gen_random_uuid(), 4, 'user-' || to_hex(:name4), 4, '1', 1, '1', '1', :lease, 2);
COMMIT;
BEGIN;
DELETE FROM claims WHERE status = 3 AND lease_uuid = :lease AND creator_id = '1';
UPDATE claims SET lease_uuid = NULL, status = 1, updated_at = now() WHERE status = 2 AND lease_uuid = :lease AND creator_id = '1';
DELETE FROM claim_leases WHERE uuid = :lease;
COMMIT;
