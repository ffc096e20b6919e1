-- What each column and function is for, in the words of whoever looks at the tables with psql. Nothing else changes, so that
-- servers of the version before go on working.

COMMENT ON COLUMN claims.bucket_type IS
    'What kind of name it is: a number of claims.v1.Bucket.Type in the protos, which is the wire contract. Built in are '
    '1 ROUTES, 2 ORGANIZATION_PATH, 3 REDIRECT_ROUTES, 4 USERNAMES, 5 EMAILS, 6 PROJECT_IDS, 7 NAMESPACE_IDS, 8 GPG_KEYS, '
    '9 SSH_KEYS, 10 USER_IDS, 11 ORGANIZATION_IDS, 12 SERVICE_DESK_CUSTOM_EMAILS, 13 GPG_KEY_FINGERPRINTS, '
    '15 SSH_KEY_FINGERPRINTS, 16 SNIPPET_IDS, 17 PAGES_DOMAINS, 18 PAGES_UNIQUE_DOMAINS; further ones are in the table '
    'bucket_types';
COMMENT ON COLUMN claims.bucket_value IS
    'The name in canonical form, which decides whether two names are the same: where the bucket type folds case, Alice and '
    'ALICE both are alice here';
COMMENT ON COLUMN claims.bucket_spelling IS 'The name as the cell wrote it; NULL where that is bucket_value itself';
COMMENT ON COLUMN claims.uuid IS 'The id of this record, which a replace keeps';
COMMENT ON COLUMN claims.creator_id IS 'The cell that owns the name, by the id of its [[cells]] in the configuration';
COMMENT ON COLUMN claims.subject_type IS
    'What the name stands for: 1 organization, 2 namespace, 3 project, 4 user (claims.v1.Subject.Type in the protos)';
COMMENT ON COLUMN claims.subject_id IS 'The id of what the name stands for, in the cell''s database';
COMMENT ON COLUMN claims.source_type IS
    'The table that the name comes out of, in the cell''s database: a number of claims.v1.Source.Type in the protos, such as '
    '1 users, 2 emails, 3 routes';
COMMENT ON COLUMN claims.source_id IS
    'The primary key of the row that the name comes out of, so written that byte order is key order: an integer as 8 bytes, '
    'big-endian (read it with (''x'' || encode(source_id, ''hex''))::bit(64)::bigint), a UUID as its 16 bytes, any other '
    'text as its own bytes';
COMMENT ON COLUMN claims.user_data IS
    'What the cell attached, given back as it came: a google.protobuf.Any in its binary form; NULL where there is nothing';
COMMENT ON COLUMN claims.status IS
    '1 active, 2 being created, 3 being destroyed, 4 being replaced: the last three under a lease, lease_uuid';
COMMENT ON COLUMN claims.lease_uuid IS
    'The lease that holds it, in claim_leases, until that is committed or rolled back; NULL while it is active';
COMMENT ON COLUMN claims.leased_at IS 'Since when the lease has held it; NULL while it is active';
COMMENT ON COLUMN claims.created_at IS 'When this record was made';
COMMENT ON COLUMN claims.updated_at IS 'When this record last changed';
COMMENT ON COLUMN claims.replaced IS
    'While it is being replaced (status 4): the record that a rollback brings back; the other columns have the one that a '
    'commit leaves. NULL otherwise';

COMMENT ON COLUMN claim_leases.uuid IS 'The lease''s id, which commit and rollback name';
COMMENT ON COLUMN claim_leases.creator_id IS 'The cell that has begun the update';
COMMENT ON COLUMN claim_leases.fence IS
    'The lease''s number out of the sequence lease_fences, larger than that of every lease begun before it: who keeps the '
    'largest seen can turn away what comes late';
COMMENT ON COLUMN claim_leases.created_at IS 'When the update was begun';
COMMENT ON COLUMN claim_leases.idempotency_key IS
    'The key that the begin was sent with, so that sending it again gets the same lease; NULL where it had none';
COMMENT ON COLUMN claim_leases.bucket_types IS 'The bucket types of the claims that it holds, in step with bucket_values';
COMMENT ON COLUMN claim_leases.bucket_values IS 'The canonical names of the claims that it holds, in step with bucket_types';

COMMENT ON COLUMN settled_leases.uuid IS 'The lease''s id';
COMMENT ON COLUMN settled_leases.creator_id IS 'The cell that had begun the update';
COMMENT ON COLUMN settled_leases.fence IS 'The lease''s number, as it was in claim_leases';
COMMENT ON COLUMN settled_leases.committed IS 'True where it was committed, false where it was rolled back';
COMMENT ON COLUMN settled_leases.created_at IS 'When the update was begun';
COMMENT ON COLUMN settled_leases.settled_at IS
    'When it was committed or rolled back; the row is forgotten settled_retention_seconds later';
COMMENT ON COLUMN settled_leases.idempotency_key IS 'The key that the begin was sent with; NULL where it had none';

COMMENT ON COLUMN idempotency_keys.creator_id IS 'The cell that sent the begin; each has keys of its own';
COMMENT ON COLUMN idempotency_keys.idempotency_key IS 'The key, as the cell chose it';
COMMENT ON COLUMN idempotency_keys.lease_uuid IS 'The lease that the begin got, in claim_leases or settled_leases';
COMMENT ON COLUMN idempotency_keys.fingerprint IS
    'Hashes of the update that was sent with the key, so that another update under the same key is refused; no name can be '
    'read from it';

COMMENT ON COLUMN abandoned_groups.number IS
    'The random number of the group, which it also takes as its advisory lock';
COMMENT ON COLUMN abandoned_groups.abandoned_at IS 'When it was given up';

COMMENT ON COLUMN bucket_types.number IS 'The number that is in claims.bucket_type; the built-in types have no row here';
COMMENT ON COLUMN bucket_types.name IS 'Its name in the configuration';
COMMENT ON COLUMN bucket_types.form IS 'What names may look like: decimal, word, email, line or block';
COMMENT ON COLUMN bucket_types.fold_case IS 'Whether upper and lower case are one name';

COMMENT ON COLUMN leasehold_migrations.version IS 'The version: the number of its file of statements';
COMMENT ON COLUMN leasehold_migrations.applied_at IS 'When the tables were brought to it';

COMMENT ON FUNCTION begin_group IS
    'Begins the transaction of a group of commands: settings that hold for it alone, and the lock by the group''s number, '
    'which a retry of the group waits for';
COMMENT ON FUNCTION begin_presumed_group IS
    'Begins a group that is one statement and was decided without reading first: refuses a group that was given up, and '
    'waits for others 100 ms at the most';
COMMENT ON FUNCTION abandon_group IS
    'Gives up a group whose outcome is not known: waits until it has ended, and keeps it from beginning later';
COMMENT ON FUNCTION expect_rows IS
    'Fails with a serialization failure unless as many rows are there as were expected: another server has changed them';
COMMENT ON FUNCTION read_claims IS 'The claims of these bucket types and canonical names';
COMMENT ON FUNCTION lock_leases IS 'Outstanding leases that are to be settled, locked in the order of their ids';
COMMENT ON FUNCTION lock_claims IS 'Locks claims that are to change, in the order of their keys, so that nobody waits in a circle';
COMMENT ON FUNCTION write_group IS
    'Writes what a group of commands has changed: claims that come to rest (r_), new claims (c_), their idempotency keys '
    '(k_), leases that are begun (l_), whose fences it returns, and leases that are settled (s_); with presumed_lock it is a '
    'transaction of its own';
