-- Version 3 of the tables: the identity of the store.
CREATE TABLE leasehold_store (
    is_only    boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    id         uuid        NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE leasehold_store IS 'The identity of this store, in one row; a restored copy keeps it';
COMMENT ON COLUMN leasehold_store.is_only IS 'Always true, so that there is one row only';
COMMENT ON COLUMN leasehold_store.id IS
    'The id of the store, which servers tell with each answer; a client may be configured to accept this store only';
COMMENT ON COLUMN leasehold_store.created_at IS 'When the store got its id';

INSERT INTO leasehold_store DEFAULT VALUES;
