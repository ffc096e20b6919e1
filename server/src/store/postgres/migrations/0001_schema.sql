-- Version 1 of the tables. The functions that servers call are in 0001_functions.sql.
--
-- Columns with values in canonical form have the collation "C": values are compared byte by byte,
-- with the same result on every operating system.

COMMENT ON TABLE leasehold_migrations IS 'The versions that these tables have been migrated to';
COMMENT ON COLUMN leasehold_migrations.version IS 'The version: the number at the front of its files of statements';
COMMENT ON COLUMN leasehold_migrations.applied_at IS 'When the tables were migrated to this version';

-- The table has one row for each owned name. Its primary key keeps names unique.
--
-- The fill factor leaves room on each page for a new version of each row. So a settle can update a
-- row in place (HOT, https://www.postgresql.org/docs/15/storage-hot.html), provided that no index
-- has a column that the settle changes.
CREATE TABLE claims (
    bucket_type     integer     NOT NULL,
    bucket_value    text        NOT NULL COLLATE "C",
    bucket_spelling text        COLLATE "C",
    uuid            uuid        NOT NULL,
    creator_id      bigint      NOT NULL,
    subject_type    integer     NOT NULL,
    subject_id      bigint      NOT NULL,
    source_type     integer     NOT NULL,
    source_id       bytea       NOT NULL,
    user_data       bytea,
    status          smallint    NOT NULL CHECK (status BETWEEN 1 AND 4),
    lease_uuid      uuid,
    leased_at       timestamptz,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    replaced        json,
    PRIMARY KEY (bucket_type, bucket_value),
    CHECK ((status = 1) = (lease_uuid IS NULL) AND (lease_uuid IS NULL) = (leased_at IS NULL)),
    CHECK ((status = 4) = (replaced IS NOT NULL))
) WITH (fillfactor = 60);

-- ListRecords reads claims in the order of this index. None of its columns changes when a claim
-- becomes active, so this update stays in place.
CREATE INDEX claims_source ON claims (creator_id, source_type, source_id);

COMMENT ON TABLE claims IS 'Names and the cells that own them';
COMMENT ON COLUMN claims.bucket_type IS
    'The kind of name: a number of claims.v1.Bucket.Type in the protos, which is the wire contract. Built in are '
    '1 ROUTES, 2 ORGANIZATION_PATH, 3 REDIRECT_ROUTES, 4 USERNAMES, 5 EMAILS, 6 PROJECT_IDS, 7 NAMESPACE_IDS, 8 GPG_KEYS, '
    '9 SSH_KEYS, 10 USER_IDS, 11 ORGANIZATION_IDS, 12 SERVICE_DESK_CUSTOM_EMAILS, 13 GPG_KEY_FINGERPRINTS, '
    '15 SSH_KEY_FINGERPRINTS, 16 SNIPPET_IDS, 17 PAGES_DOMAINS, 18 PAGES_UNIQUE_DOMAINS; the table bucket_types lists '
    'the configured ones';
COMMENT ON COLUMN claims.bucket_value IS
    'The name in canonical form, which decides whether two names are the same: if the bucket type folds case, Alice and '
    'ALICE are both stored as alice';
COMMENT ON COLUMN claims.bucket_spelling IS 'The name as the cell spelled it; NULL if that equals bucket_value';
COMMENT ON COLUMN claims.uuid IS 'The id of the record; a replace keeps it';
COMMENT ON COLUMN claims.creator_id IS 'The cell that owns the name: the id of its [[cells]] entry in the configuration';
COMMENT ON COLUMN claims.subject_type IS
    'The kind of subject: 1 organization, 2 namespace, 3 project, 4 user (claims.v1.Subject.Type in the protos)';
COMMENT ON COLUMN claims.subject_id IS 'The id of the subject in the cell''s database';
COMMENT ON COLUMN claims.source_type IS
    'The table of the cell''s database that the name comes from: a number of claims.v1.Source.Type in the protos, such as '
    '1 users, 2 emails, 3 routes';
COMMENT ON COLUMN claims.source_id IS
    'The primary key of the row that the name comes from, written so that byte order is key order: an integer as 8 bytes, '
    'big-endian (read it with (''x'' || encode(source_id, ''hex''))::bit(64)::bigint), a UUID as its 16 bytes, any other '
    'text as its own bytes';
COMMENT ON COLUMN claims.user_data IS
    'Data that the cell attached, returned unchanged: a google.protobuf.Any in its binary form; NULL if there is none';
COMMENT ON COLUMN claims.status IS
    '1 active, 2 being created, 3 being destroyed, 4 being replaced; a claim in status 2 to 4 is held by lease_uuid';
COMMENT ON COLUMN claims.lease_uuid IS
    'The lease in claim_leases that holds the claim until it is committed or rolled back; NULL while the claim is active';
COMMENT ON COLUMN claims.leased_at IS 'When the lease took hold of the claim; NULL while the claim is active';
COMMENT ON COLUMN claims.created_at IS 'When this record was created';
COMMENT ON COLUMN claims.updated_at IS 'When this record last changed';
COMMENT ON COLUMN claims.replaced IS
    'In status 4, the record that a rollback restores; the other columns have the record that a commit leaves. NULL '
    'otherwise';

-- The table of outstanding leases. It stays small, because a row is deleted when its lease is
-- settled. Servers vacuum the table every few seconds; its autovacuum settings are for roles that
-- may not vacuum.
CREATE TABLE claim_leases (
    uuid            uuid        PRIMARY KEY,
    creator_id      bigint      NOT NULL,
    fence           bigint      NOT NULL,
    created_at      timestamptz NOT NULL,
    idempotency_key text        COLLATE "C",
    bucket_types    integer[]   NOT NULL,
    bucket_values   text[]      NOT NULL COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- ListLeases reads leases in the order of this index. The index has the expression uuid_send(uuid)
-- instead of the column uuid, so that the planner can't use the index to look leases up by uuid. A
-- session plans a function's statements once and keeps the plans. While the table is small, the
-- planner prefers a scan of a whole index to ten lookups by key, and would then scan this index for
-- every later group. The byte order of uuid_send(uuid) is the order of the UUIDs.
CREATE INDEX claim_leases_listed ON claim_leases (creator_id, created_at, uuid_send(uuid));

COMMENT ON INDEX claim_leases_listed IS
    'The order of lists; over an expression, so that leases are looked up by their primary key only';
COMMENT ON TABLE claim_leases IS 'Outstanding leases; settled ones are in settled_leases';
COMMENT ON COLUMN claim_leases.uuid IS 'The id of the lease, which commit and rollback name';
COMMENT ON COLUMN claim_leases.creator_id IS 'The cell that began the update';
COMMENT ON COLUMN claim_leases.fence IS
    'The number of the lease from the sequence lease_fences, larger than that of every lease begun before it: a reader that '
    'remembers the largest fence can refuse messages that arrive late';
COMMENT ON COLUMN claim_leases.created_at IS 'When the update began';
COMMENT ON COLUMN claim_leases.idempotency_key IS
    'The idempotency key of the begin; a repeated begin with this key gets the same lease. NULL if it had none';
COMMENT ON COLUMN claim_leases.bucket_types IS
    'The bucket types of the claims that the lease holds, one for each entry of bucket_values';
COMMENT ON COLUMN claim_leases.bucket_values IS
    'The canonical names of the claims that the lease holds, one for each entry of bucket_types';

-- The table of settled leases, which are kept so that a repeated commit or rollback gets a true
-- answer. Each forgotten lease leaves a dead row. At PostgreSQL's default scale factor a fifth of
-- the table would be dead before autovacuum ran, and every statement that forgets leases would step
-- over those rows.
CREATE TABLE settled_leases (
    uuid            uuid        PRIMARY KEY,
    creator_id      bigint      NOT NULL,
    fence           bigint      NOT NULL,
    committed       boolean     NOT NULL,
    created_at      timestamptz NOT NULL,
    settled_at      timestamptz NOT NULL,
    idempotency_key text        COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000);

CREATE INDEX settled_leases_settled ON settled_leases (settled_at, uuid);

COMMENT ON TABLE settled_leases IS 'Committed and rolled back leases, for settled_retention_seconds';
COMMENT ON COLUMN settled_leases.uuid IS 'The id of the lease';
COMMENT ON COLUMN settled_leases.creator_id IS 'The cell that began the update';
COMMENT ON COLUMN settled_leases.fence IS 'The fence of the lease, as it was in claim_leases';
COMMENT ON COLUMN settled_leases.committed IS 'True if the lease was committed, false if it was rolled back';
COMMENT ON COLUMN settled_leases.created_at IS 'When the update began';
COMMENT ON COLUMN settled_leases.settled_at IS
    'When the lease was committed or rolled back; the row is deleted settled_retention_seconds later';
COMMENT ON COLUMN settled_leases.idempotency_key IS 'The idempotency key of the begin; NULL if it had none';

-- The idempotency keys of begins. They have a table of their own, so that a key stays in use while
-- its lease moves from claim_leases to settled_leases.
CREATE TABLE idempotency_keys (
    creator_id      bigint      NOT NULL,
    idempotency_key text        NOT NULL COLLATE "C",
    lease_uuid      uuid        NOT NULL,
    fingerprint     bytea       NOT NULL,
    PRIMARY KEY (creator_id, idempotency_key)
);

COMMENT ON TABLE idempotency_keys IS 'The leases that begins with an idempotency key got, for as long as the leases are kept';
COMMENT ON COLUMN idempotency_keys.creator_id IS 'The cell that sent the begin; each cell has its own keys';
COMMENT ON COLUMN idempotency_keys.idempotency_key IS 'The key that the cell chose';
COMMENT ON COLUMN idempotency_keys.lease_uuid IS 'The lease that the begin got, in claim_leases or settled_leases';
COMMENT ON COLUMN idempotency_keys.fingerprint IS
    'Hashes of the update that was sent with the key, by which another update under the same key is refused; no name can '
    'be read from it';

-- Groups of commands whose server lost the connection before it knew the outcome, and then decided
-- the commands again. If a statement of such a group arrives later, it finds the group's number
-- here and has no effect.
CREATE TABLE abandoned_groups (
    number       bigint      PRIMARY KEY,
    abandoned_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE abandoned_groups IS
    'Groups of commands that were decided again, so that a late statement of theirs does nothing; kept for a day';
COMMENT ON COLUMN abandoned_groups.number IS 'The random number of the group, which is also the number of its advisory lock';
COMMENT ON COLUMN abandoned_groups.abandoned_at IS 'When a server gave the group up';

CREATE TABLE bucket_types (
    number    integer PRIMARY KEY,
    name      text    NOT NULL,
    form      text    NOT NULL,
    fold_case boolean NOT NULL
);

COMMENT ON TABLE bucket_types IS 'The configured bucket types, and the rules under which their claims were made';
COMMENT ON COLUMN bucket_types.number IS 'The number used in claims.bucket_type; built-in types have no row here';
COMMENT ON COLUMN bucket_types.name IS 'The name of the bucket type in the configuration';
COMMENT ON COLUMN bucket_types.form IS 'The allowed form of names: decimal, word, email, line or block';
COMMENT ON COLUMN bucket_types.fold_case IS 'True if names that differ in upper and lower case only are the same name';

CREATE SEQUENCE lease_fences;

COMMENT ON SEQUENCE lease_fences IS 'The fences of leases, each larger than all before it';

-- The composite types in which servers send rows. They are separate from the tables' row types, so
-- that a later version can add columns to a table while servers of this version are running.
CREATE TYPE new_claim AS (
    bucket_type integer, bucket_value text, bucket_spelling text, uuid uuid, creator_id bigint, subject_type integer,
    subject_id bigint, source_type integer, source_id bytea, user_data bytea, status smallint, lease_uuid uuid,
    leased_at timestamptz, created_at timestamptz, updated_at timestamptz, replaced json
);
CREATE TYPE new_lease AS (
    uuid uuid, creator_id bigint, created_at timestamptz, idempotency_key text, bucket_types integer[], bucket_values text[]
);
CREATE TYPE new_key AS (creator_id bigint, idempotency_key text, lease_uuid uuid, fingerprint bytea);

COMMENT ON TYPE new_claim IS 'A row of claims, as a server writes it';
COMMENT ON TYPE new_lease IS 'A row of claim_leases, as a server writes it; the database adds the fence';
COMMENT ON TYPE new_key IS 'A row of idempotency_keys, as a server writes it';
