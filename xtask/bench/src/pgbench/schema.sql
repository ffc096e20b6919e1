-- The tables and indexes of the design documents on which Leasehold is based. Their foreign key is
-- left out, because it would make pgbench slower.
CREATE TABLE claim_leases (
    uuid       uuid         PRIMARY KEY,
    creator_id varchar(128) NOT NULL,
    created_at timestamptz  NOT NULL DEFAULT now(),
    updated_at timestamptz  NOT NULL DEFAULT now()
);
CREATE TABLE claims (
    uuid         uuid          PRIMARY KEY,
    bucket_type  bigint        NOT NULL,
    bucket_value varchar(1024) NOT NULL,
    subject_type bigint        NOT NULL,
    subject_id   varchar(128)  NOT NULL,
    source_type  bigint        NOT NULL,
    source_id    varchar(128)  NOT NULL,
    creator_id   varchar(128)  NOT NULL,
    lease_uuid   uuid,
    status       bigint        NOT NULL DEFAULT 0,
    created_at   timestamptz   NOT NULL DEFAULT now(),
    updated_at   timestamptz   NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX claims_bucket ON claims (bucket_type, bucket_value) INCLUDE (creator_id);
CREATE INDEX claims_lease ON claims (lease_uuid) WHERE lease_uuid IS NOT NULL;
