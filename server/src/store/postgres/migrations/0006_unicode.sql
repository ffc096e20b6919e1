-- Version 6 of the tables: the version of Unicode of the canonical names.
ALTER TABLE leasehold_store ADD COLUMN unicode_version text;

COMMENT ON COLUMN leasehold_store.unicode_version IS
    'The version of Unicode by whose tables each claims.bucket_value is a canonical form, such as 18.0; a server with a newer '
    'version checks all names before it replaces this. NULL counts as the version of the server that starts';

-- The comment of version 1 lists the first five forms.
COMMENT ON COLUMN bucket_types.form IS
    'The form of names: decimal, word, email, line or block; or one that knows several spellings of one name: domain, address, '
    'path, fingerprint, public_key or armor';
