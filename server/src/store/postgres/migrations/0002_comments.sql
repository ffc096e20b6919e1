-- Version 2 of the tables: the comment lists bucket type 14, which the wire contract has got.
COMMENT ON COLUMN claims.bucket_type IS
    'The kind of name: a number of claims.v1.Bucket.Type in the protos, which is the wire contract. Built in are '
    '1 ROUTES, 2 ORGANIZATION_PATH, 3 REDIRECT_ROUTES, 4 USERNAMES, 5 EMAILS, 6 PROJECT_IDS, 7 NAMESPACE_IDS, 8 GPG_KEYS, '
    '9 SSH_KEYS, 10 USER_IDS, 11 ORGANIZATION_IDS, 12 SERVICE_DESK_CUSTOM_EMAILS, 13 GPG_KEY_FINGERPRINTS, '
    '14 SERVICE_DESK_PROJECT_KEY_ADDRESS_SLUGS, 15 SSH_KEY_FINGERPRINTS, 16 SNIPPET_IDS, 17 PAGES_DOMAINS, '
    '18 PAGES_UNIQUE_DOMAINS; the table bucket_types lists the configured ones';
