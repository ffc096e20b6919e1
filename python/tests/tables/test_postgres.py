"""Tests of tables in PostgreSQL: encodings, names of tables, and keys."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.postgres_cluster import PostgresCluster
from support.users import User, claim
from typing_extensions import LiteralString

from leasehold import BucketType, Claim, Source, SourceType, Subject, SubjectType, errors
from leasehold.client import Client
from leasehold.tables import VerificationResult, verify_table
from leasehold.tables.postgres import PostgresTable
from leasehold.verification import ClaimColumns, TableColumns

USERNAME = ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "owner")
COLUMNS = TableColumns("id", [USERNAME])


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url, cell_id=1) as client:
        yield client


def fill(
    url: str, rows: Sequence[tuple[object, str, int]], *, key: str = "bigint", name: LiteralString = "users"
) -> PostgresTable:
    """Create a table with these rows of key, username and owner. Return the `Table` over it."""
    with psycopg.connect(url, client_encoding="UTF8") as connection:
        connection.execute(psycopg.sql.SQL(f"CREATE TABLE {name} (id {key} PRIMARY KEY, username text, owner bigint)"))
        insert = psycopg.sql.SQL("INSERT INTO {} VALUES (%s, %s, %s)").format(psycopg.sql.SQL(name))
        for row in rows:
            connection.execute(insert, row)
    return PostgresTable(url, name, COLUMNS)


def encoded_database(cluster: PostgresCluster, encoding: str) -> str:
    """Create a database in this encoding. Return its URL."""
    with psycopg.connect(cluster.url("postgres"), autocommit=True) as connection:
        name = f"in_{encoding.lower()}"
        connection.execute(psycopg.sql.SQL(f"DROP DATABASE IF EXISTS {name}"))
        connection.execute(psycopg.sql.SQL(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0"))
    return cluster.url(name)


def verify(client: Client, table: PostgresTable, **options: Any) -> VerificationResult:
    settings = {"source_type": SourceType.USERS, "recent_within_seconds": 0.0, "max_destroy_share": 1.0}
    return verify_table(client, table, **{**settings, **options})


def names(client: Client) -> set[str]:
    return {record.claim.bucket_value for record in client.records(SourceType.USERS, [BucketType.USERNAMES])}


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_TW", "UTF8"])
@pytest.mark.parametrize("key", ["bigint", "text"])
def test_a_database_in_any_encoding_is_read(client: Client, cluster: PostgresCluster, encoding: str, key: str) -> None:
    written = {"SQL_ASCII": "größe", "LATIN1": "größe", "EUC_TW": "國", "UTF8": "größe"}[encoding]
    url = encoded_database(cluster, encoding)
    table = fill(url, [(1, "ann", 1), (2, written, 2)], key=key)
    for _ in range(2):
        verify(client, table, apply=True, rows_per_page=1)
    assert names(client) == {"ann", written}
    with psycopg.connect(url, client_encoding="UTF8") as connection:
        connection.execute("UPDATE users SET username = 'bob' WHERE owner = 2")
    done = verify(client, table, apply=True, show_values=True)
    assert (done.report.created, done.report.destroyed, names(client)) == (1, 1, {"ann", "bob"})


@pytest.mark.parametrize("url_option", ["client_encoding=SQL_ASCII", "client_encoding=LATIN1"])
def test_the_encoding_of_a_url_does_not_matter(cluster: PostgresCluster, url_option: str) -> None:
    url = cluster.create_database()
    fill(url, [(1, "größe 丂", 1)])
    assert PostgresTable(f"{url}?{url_option}", "users", COLUMNS).check() == 1


def test_v09_text_that_is_not_utf_8_names_its_column_and_the_key_of_its_row(client: Client, cluster: PostgresCluster) -> None:
    url = encoded_database(cluster, "SQL_ASCII")
    table = fill(url, [(1, "ann", 1), (7, "bob", 2)])
    with psycopg.connect(url) as connection:
        connection.execute(rb"UPDATE users SET username = E'secret\xe9' WHERE owner = 2")
    for call in (table.check, lambda: verify(client, table, rows_per_page=1)):
        error = raised_by(call)
        assert isinstance(error, errors.ColumnValueError)
        assert str(error) == "the column `username` is not valid UTF-8 in the row with `id` 7"
    by_name = fill(url, [("ann", "ann", 1), ("bob", "bob", 2)], key="text", name="people")
    with psycopg.connect(url) as connection:
        connection.execute(rb"UPDATE people SET id = E'secret\xe9' WHERE owner = 2")
    assert isinstance(raised_by(by_name.check), errors.RowsError)


@pytest.mark.parametrize("created", ['"User"', '"sales.2026"', "app.people", 'app."User"', '"a ""quoted"" name"', '"order"'])
def test_a_table_is_found_by_its_name_as_spelled_or_as_in_sql(cluster: PostgresCluster, created: str) -> None:
    url = cluster.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA app")
    fill(url, [(1, "ann", 1)], name=created)
    assert PostgresTable(url, created, COLUMNS).check() == 1
    if created != '"sales.2026"':
        spelled = created.replace('""', "\0").replace('"', "").replace("\0", '"')
        assert PostgresTable(url, spelled, COLUMNS).check() == 1


def test_a_name_as_spelled_comes_before_one_that_differs_in_case(cluster: PostgresCluster) -> None:
    url = cluster.create_database()
    fill(url, [(1, "ann", 1)], name='"User"')
    fill(url, [], name='"user"')
    assert [PostgresTable(url, name, COLUMNS).check() for name in ("User", "user", "USER")] == [1, 0, 0]


@pytest.mark.parametrize("name", ["", "no table", "a.b.c.d", "other.public.users", '"', "users;"])
def test_a_text_that_names_no_table_is_refused(cluster: PostgresCluster, name: str) -> None:
    with pytest.raises(errors.MisconfiguredError, match="does not exist"):
        PostgresTable(cluster.create_database(), name, COLUMNS)


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        ("id >", "syntax error"),
        ("nosuch > 1", 'column "nosuch" does not exist'),
        ("username > 1", "operator does not exist"),
        ("id", "argument of WHERE must be type boolean"),
        ("id = 'x'", "invalid input syntax"),
        ("count(*) > 1", "aggregate functions are not allowed"),
        ("1 / 0 = 1", "division by zero"),
        ("true; SELECT 1", "syntax error"),
    ],
)
def test_a_condition_that_is_none_is_refused_with_its_cause(cluster: PostgresCluster, where: str, cause: str) -> None:
    url = cluster.create_database()
    fill(url, [])
    error = raised_by(lambda: PostgresTable(url, "users", COLUMNS, where=where))
    assert isinstance(error, errors.MisconfiguredError)
    assert error.code == "INVALID_CONDITION"
    assert str(error).startswith(f"`where` is no condition on the rows of the table ({cause}")


def test_a_condition_may_end_in_a_comment(cluster: PostgresCluster) -> None:
    url = cluster.create_database()
    fill(url, [(1, "ann", 1), (2, "bob", 2)])
    assert PostgresTable(url, "users", COLUMNS, where="id > 1 -- not the first").check() == 1


def test_a_missing_column_lists_the_columns_of_the_table(cluster: PostgresCluster) -> None:
    url = cluster.create_database()
    fill(url, [])
    wrong = TableColumns("id", [ClaimColumns(BucketType.USERNAMES, "user_name", SubjectType.USER, "id")])
    error = raised_by(lambda: PostgresTable(url, "users", wrong))
    assert str(error) == "the column `user_name` is missing: the table has the columns `id`, `username`, `owner`"


@pytest.mark.parametrize("rows_per_page", [1, 1000])
def test_a_negative_key_is_refused_as_in_a_dump(client: Client, cluster: PostgresCluster, rows_per_page: int) -> None:
    table = fill(cluster.create_database(), [(-2, "secret", 1), (-1, "secret2", 2), (1, "ann", 3), (2, "bob", 4)])
    for apply in (False, True):
        error = raised_by(lambda apply=apply: verify(client, table, apply=apply, rows_per_page=rows_per_page))  # type: ignore[misc]
        assert isinstance(error, errors.ColumnValueError)
        assert (error.column, "is negative" in str(error)) == ("id", True)
    assert names(client) == set()


@pytest.mark.parametrize(
    ("kind", "keys", "shown"),
    [
        ("bigint", list(range(1, 3001)), "1500"),
        (
            "uuid",
            [f"01a1fefb-0383-7360-95c3-{number:012}" for number in range(1, 3001)],
            "`01a1fefb-0383-7360-95c3-000000001500`",
        ),
        ("text", [f"{number:04}" for number in range(1, 3001)], "`1500`"),
    ],
)
def test_an_unreadable_row_is_named_by_its_key_on_any_page(
    client: Client, cluster: PostgresCluster, kind: str, keys: list[Any], shown: str
) -> None:
    url = cluster.create_database()
    table = fill(url, [(key, f"user{number}", number) for number, key in enumerate(keys, 1)], key=kind)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE users SET owner = NULL WHERE username = 'user1500'")
    said = f"the column `owner` is null in the row with `id` {shown}: omit the row, or fill the column"
    assert str(raised_by(table.check)) == said
    for rows_per_page in (100, 1000, 5000):
        assert str(raised_by(lambda rows=rows_per_page: verify(client, table, rows_per_page=rows))) == said  # type: ignore[misc]


def test_a_row_without_a_key_has_no_name(cluster: PostgresCluster) -> None:
    url = cluster.create_database()
    fill(url, [(1, "ann", 1)])
    with psycopg.connect(url) as connection:
        connection.execute("CREATE VIEW members AS SELECT NULLIF(id, 1) AS id, username, owner FROM users")
    said = str(raised_by(PostgresTable(url, "members", COLUMNS).check))
    assert said == "the column `id` is null in a row: omit the row, or fill the column"


FOREIGN: dict[str, list[int | str]] = {
    "bigint": ["31", "31-text", "long text key of more bytes", "01a1fefb-0383-7360-95c3-3b4e0d5dfab0"],
    "uuid": ["31", 31, "long text key of more bytes"],
    "text": [31, 2**40, "fffefefb-0383-7360-95c3-3b4e0d5dfab0"],
}
KEYS: dict[str, list[Any]] = {
    "bigint": [1, 31, 13105, 2**62],
    "uuid": ["01a1fefb-0383-7360-95c3-3b4e0d5dfab0", "f1a1fefb-0383-7360-95c3-3b4e0d5dfab0"],
    "text": ["1", "31", "ann"],
}


@pytest.mark.parametrize("kind", KEYS)
def test_v05_claims_under_keys_of_other_kinds_are_destroyed(
    client: Client, cluster: PostgresCluster, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = fill(
        cluster.create_database(), [(key, f"user{number}", number) for number, key in enumerate(KEYS[kind], 1)], key=kind
    )
    # The claims fill more than a page of records, so that pages end at keys of the other kinds.
    for number, key in enumerate(FOREIGN[kind]):
        source = Source.of(SourceType.USERS, key)
        values = [f"extra{number}-{index}" for index in range(600)]
        with client.update(
            creates=[Claim(BucketType.USERNAMES, value, Subject(SubjectType.USER, 1), source) for value in values]
        ):
            pass
    with caplog.at_level(logging.WARNING):
        done = verify(client, table, apply=True, rows_per_page=1, show_values=True).report
    assert (done.created, done.destroyed, done.failed) == (len(KEYS[kind]), 600 * len(FOREIGN[kind]), 0)
    assert verify(client, table).is_clean
    assert "those of most claims are" in caplog.text


def test_numbers_that_arrive_as_texts_are_warned_of(
    client: Client, cluster: PostgresCluster, caplog: pytest.LogCaptureFixture
) -> None:
    users = [User(1, "ann"), User(2, "bob")]
    claim(client, users)
    url = cluster.create_database()
    fill(url, [(user.id, user.username, user.id) for user in users])
    assert verify(client, PostgresTable(url, "users", COLUMNS)).is_clean
    assert caplog.text == ""
    table = fill(url, [(str(user.id), user.username, user.id) for user in users], key="text", name="people")
    with caplog.at_level(logging.WARNING):
        verify(client, table)
    assert "the keys of the table are strings, but those of most claims are integers:" in caplog.text


@pytest.mark.parametrize(("key", "one"), [("bigint", 7), ("text", "seven"), ("uuid", "01a1fefb-0383-7360-95c3-3b4e0d5dfab0")])
def test_a_key_of_two_rows_is_no_disorder(cluster: PostgresCluster, client: Client, key: str, one: object) -> None:
    url = cluster.create_database()
    table = fill(url, [(one, "ann", 1)], key=key)
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE users DROP CONSTRAINT users_pkey")
        connection.execute("INSERT INTO users SELECT id, 'bob', owner FROM users")
    error = raised_by(lambda: verify(client, table))
    shown = one if isinstance(one, int) else f"`{one}`"
    said = f"has the same value in the row with `id` {shown} and in the one before it: choose a key column"
    assert (type(error), str(error)) == (errors.ColumnOrderError, f"the column `id` {said} whose values are unique")
