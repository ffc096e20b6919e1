-- Version 9 of the tables: the addresses at which servers ring each other.
--
-- A server that writes a grant rings the server whose call attends to the ask. Servers of version 9
-- set `leasehold.server` for each write, so the rows of their new asks name them. The row of an ask
-- that a server of version 8 wrote names no server: then the home of the session is rung.
ALTER TABLE lock_servers ADD COLUMN address text;
ALTER TABLE lock_asks ALTER COLUMN attendant SET DEFAULT nullif(current_setting('leasehold.server', true), '')::bigint;

COMMENT ON COLUMN lock_servers.address IS
    'The address at which other servers ring this one when they have written a grant for which a call there may wait; NULL if '
    'they do not';
COMMENT ON COLUMN lock_asks.attendant IS
    'The server whose call attends to the ask; NULL if it is the server that wrote the row, and that has version 8';
