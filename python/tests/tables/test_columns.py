"""Tests of unreadable tables: each raises one exception that names the column, and changes no claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet
import pytest
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.postgres_cluster import PostgresCluster
from support.users import COLUMNS, LONG_AGO, User, as_arrow, claim, just_now
from typing_extensions import LiteralString

from leasehold import BucketType, SourceType, SubjectType, errors
from leasehold.client import Client
from leasehold.tables import Table, verify_table
from leasehold.tables.files import arrow_table, csv_table, parquet_table
from leasehold.tables.postgres import PostgresTable
from leasehold.verification import ClaimColumns, TableColumns

GOOD = [User(1, "ann"), User(2, "bob")]
USERNAME = [ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "owner")]
OWNED = TableColumns(key="id", claims=USERNAME, updated_at="updated_at")


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url, cell_id=1) as client:
        yield client


def applying(client: Client, make: Callable[[], Table]) -> errors.ColumnError:
    """Run a correcting verification whose last rows are invalid. Return its error, after asserting that no claim changed."""
    claim(client, [User(9, "extra")])
    error = raised_by(
        lambda: verify_table(client, make(), source_type=SourceType.USERS, apply=True, recent_within_seconds=0, rows_per_page=1)
    )
    held = [record.claim.bucket_value for record in client.records(SourceType.USERS, [BucketType.USERNAMES])]
    assert (held, list(client.leases())) == (["extra"], []), "a claim was changed"
    assert isinstance(error, errors.ColumnError)
    assert f"`{error.column}`" in str(error)
    assert "secret" not in str(error)
    return error


def owned(**columns: Any) -> pa.Table:
    """Return a table of two valid rows, with these columns in place of the valid ones."""
    right: dict[str, Any] = {
        "id": [1, 2],
        "username": ["ann", "bob"],
        "owner": [1, 2],
        "updated_at": pa.array([LONG_AGO, LONG_AGO], pa.timestamp("us", "UTC")),
    }
    return pa.table({**right, **columns})


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize(
    ("columns", "expected", "column"),
    [
        ({"id": [1, None]}, errors.ColumnNullError, "id"),
        ({"id": [2, 1]}, errors.ColumnOrderError, "id"),
        ({"id": [1, 1]}, errors.ColumnOrderError, "id"),
        ({"id": [1.0, 2.0]}, errors.ColumnTypeError, "id"),
        ({"username": [1.5, 2.5]}, errors.ColumnTypeError, "username"),
        ({"username": pa.array([b"ann", b"\xff secret"])}, errors.ColumnTypeError, "username"),
        ({"owner": [1, None]}, errors.ColumnNullError, "owner"),
        ({"owner": ["1", "secret"]}, errors.ColumnTypeError, "owner"),
        ({"updated_at": [LONG_AGO.replace(tzinfo=None)] * 2}, errors.ColumnTimeZoneError, "updated_at"),
        ({"updated_at": ["2026-01-01", "2026-01-01"]}, errors.ColumnTypeError, "updated_at"),
    ],
)
def test_an_unreadable_arrow_column_raises_and_changes_nothing(
    client: Client, tmp_path: Path, kind: str, columns: dict[str, Any], expected: type[errors.ColumnError], column: str
) -> None:
    def make() -> Table:
        if kind == "arrow":
            return arrow_table(owned(**columns), OWNED, taken_at=just_now())
        pyarrow.parquet.write_table(owned(**columns), tmp_path / "users.parquet")
        return parquet_table(tmp_path / "users.parquet", OWNED, taken_at=just_now())

    error = applying(client, make)
    assert (type(error), error.column) == (expected, column)


@pytest.mark.parametrize("kind", ["arrow", "stream", "parquet"])
def test_a_missing_column_raises_and_changes_nothing(client: Client, tmp_path: Path, kind: str) -> None:
    data = owned().drop_columns(["owner"])

    def make() -> Table:
        if kind == "parquet":
            pyarrow.parquet.write_table(data, tmp_path / "users.parquet")
            return parquet_table(tmp_path / "users.parquet", OWNED, taken_at=just_now())
        return arrow_table(data if kind == "arrow" else data.to_reader(), OWNED, taken_at=just_now())

    error = applying(client, make)
    assert (type(error), error.column) == (errors.ColumnMissingError, "owner")


@pytest.mark.parametrize(
    ("lines", "expected", "column"),
    [
        (["id,username,owner,updated_at", "1,ann,1,2026-01-01T00:00:00Z", "x,secret,2,2026-01-01T00:00:00Z"], "Type", "id"),
        (["id,username,owner,updated_at", "1,ann,1,2026-01-01T00:00:00Z", ",secret,2,2026-01-01T00:00:00Z"], "Null", "id"),
        (["id,username,owner,updated_at", "2,ann,1,2026-01-01T00:00:00Z", "1,bob,2,2026-01-01T00:00:00Z"], "Order", "id"),
        (["id,username,owner,updated_at", "1,ann,1,2026-01-01T00:00:00Z", "2,bob,,2026-01-01T00:00:00Z"], "Null", "owner"),
        (["id,username,owner,updated_at", "1,a,1,2026-01-01T00:00:00Z", "2,b,2,2026-01-01T00:00:00"], "TimeZone", "updated_at"),
        (["id,username,owner,updated_at", "1,ann,1,secret", "2,bob,2,2026-01-01T00:00:00Z"], "Type", "updated_at"),
        (["id,username,updated_at", "1,ann,2026-01-01T00:00:00Z"], "Missing", "owner"),
        (["id,owner,username,owner,updated_at", "1,1,ann,1,2026-01-01T00:00:00Z"], "Missing", "owner"),
    ],
)  # fmt: skip
def test_an_unreadable_csv_column_raises_and_changes_nothing(
    client: Client, tmp_path: Path, lines: list[str], expected: str, column: str
) -> None:
    path = tmp_path / "users.csv"
    path.write_text("\n".join(lines) + "\n")
    error = applying(client, lambda: csv_table(path, OWNED, taken_at=just_now()))
    assert (type(error).__name__, error.column) == (f"Column{expected}Error", column)


def test_assume_utc_accepts_csv_times_without_a_zone_only(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text("id,username,owner,updated_at\n1,ann,1,2026-01-01 00:00:00\n2,bob,2,2026-01-01 00:00:00Z\n")
    utc = replace(OWNED, assume_utc=True)
    error = applying(client, lambda: csv_table(path, utc, taken_at=just_now()))
    assert (type(error), error.column) == (errors.ColumnTimeZoneError, "updated_at")
    path.write_text("id,username,owner,updated_at\n1,ann,1,2026-01-01 00:00:00\n")
    assert verify_table(client, csv_table(path, utc), source_type=SourceType.USERS).report.missing == 1


def test_unquoted_empty_csv_fields_are_null(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text('id,username,owner,updated_at\n1,,1,2026-01-01Z\n2,"",2,2026-01-01Z\n3,"b\nob",3,2026-01-01Z\n')
    path.write_text(path.read_text().replace("2026-01-01Z", "2026-01-01T00:00:00Z"))
    report = verify_table(client, csv_table(path, OWNED), source_type=SourceType.USERS).report
    assert (report.rows, report.claims, report.invalid) == (3, 2, 2)


def test_invalid_utf_8_in_a_csv_file_names_the_column(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_bytes(b"id,username,owner,updated_at\n1,secret\xe9,1,2026-01-01T00:00:00Z\n")
    error = applying(client, lambda: csv_table(path, OWNED, taken_at=just_now()))
    assert (error.code, error.column) == ("COLUMN_VALUE", "username")


def test_a_csv_header_with_an_unclosed_quote_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text('id,"username,' + "owner,updated_at\n" * 10_000)
    with pytest.raises(errors.RowsError, match="CSV"):
        csv_table(path, OWNED).check()


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "users"
    for make in (csv_table, parquet_table):
        assert f"`{path}`" in str(raised_by(lambda make=make: make(path, OWNED)))  # type: ignore[misc]
    path.write_text("rubbish")
    with pytest.raises(errors.MisconfiguredError, match="Parquet"):
        parquet_table(path, OWNED).check()
    path.write_text('id,username,owner,updated_at\n1,"ann')
    with pytest.raises(errors.RowsError, match="CSV"):
        csv_table(path, OWNED).check()
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        arrow_table([1, 2], OWNED)  # type: ignore[arg-type]


@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_a_damaged_parquet_file_is_named(client: Client, tmp_path: Path, compression: str) -> None:
    path = tmp_path / "users.parquet"
    names = [f"user{key}" for key in range(20_000)]
    data = pa.table({"id": range(20_000), "username": names, "owner": range(20_000)})
    pyarrow.parquet.write_table(data, path, compression=compression, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    middle = slice(len(content) // 2, len(content) // 2 + 100)
    content[middle] = bytes(byte ^ 0x5A for byte in content[middle])
    path.write_bytes(content)
    table = parquet_table(path, replace(OWNED, updated_at=None), taken_at=just_now())
    for call in (table.check, lambda: verify_table(client, table, source_type=SourceType.USERS)):
        error = raised_by(call)
        assert isinstance(error, errors.MisconfiguredError)
        assert str(error) == f"`{path}` cannot be read to its end, because it is damaged: write the file again"


CREATE: LiteralString = "CREATE TABLE users (id bigint, username text, owner bigint, updated_at timestamptz)"
INSERT: LiteralString = "INSERT INTO users VALUES (1, 'ann', 1, '2026-01-01Z'), "


@pytest.mark.parametrize(
    ("statements", "expected", "column"),
    [
        ([CREATE, "ALTER TABLE users DROP owner"], "Missing", "owner"),
        ([CREATE, "ALTER TABLE users ALTER owner TYPE numeric"], "Type", "owner"),
        ([CREATE, "ALTER TABLE users ALTER username TYPE bytea USING username::bytea"], "Type", "username"),
        ([CREATE, "ALTER TABLE users ALTER id TYPE double precision"], "Type", "id"),
        ([CREATE, INSERT + "(NULL, 'secret', 2, '2026-01-01Z')"], "Null", "id"),
        ([CREATE, INSERT + "(1, 'secret', 2, '2026-01-01Z')"], "Order", "id"),
        ([CREATE, INSERT + "(2, 'secret', NULL, '2026-01-01Z')"], "Null", "owner"),
        ([CREATE, INSERT + "(2, 'x', 2, NULL)", "ALTER TABLE users ALTER updated_at TYPE timestamp"], "TimeZone", "updated_at"),
    ],
)  # fmt: skip
def test_an_unreadable_postgres_column_raises_and_changes_nothing(
    client: Client, cluster: PostgresCluster, statements: list[LiteralString], expected: str, column: str
) -> None:
    url = cluster.create_database()
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement)
    error = applying(client, lambda: PostgresTable(url, "users", OWNED))
    assert (type(error).__name__, error.column) == (f"Column{expected}Error", column)


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp"])
@pytest.mark.parametrize(("time", "is_recent"), [("infinity", 1), ("12000-01-01", 1), ("-infinity", 0), ("0044-03-15 BC", 0)])
def test_v02_postgres_times_outside_the_range_of_datetime_are_clamped(
    client: Client, cluster: PostgresCluster, kind: LiteralString, time: str, is_recent: int
) -> None:
    url = cluster.create_database()
    with psycopg.connect(url) as connection:
        connection.execute(
            psycopg.sql.SQL("CREATE TABLE users (id int, username text, owner int, updated_at {})").format(
                psycopg.sql.SQL(kind)
            )
        )
        connection.execute("INSERT INTO users VALUES (1, 'ann', 1, %s), (2, 'bob', 2, NULL)", [time])
    table = PostgresTable(url, "users", replace(OWNED, assume_utc=True))
    report = verify_table(client, table, source_type=SourceType.USERS).report
    assert (report.rows, report.rows_recent, report.missing) == (2, is_recent, 2 - is_recent)


def test_a_struct_field_is_not_read_as_a_column_with_its_path(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "users.parquet"
    columns = TableColumns("a.b", [ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "a.b")])
    pyarrow.parquet.write_table(pa.table({"a": [{"b": 7}, {"b": 8}], "username": ["ann", "bob"], "a.b": [1, 2]}), path)
    found = verify_table(client, parquet_table(path, columns), source_type=SourceType.USERS, show_values=True)
    assert [(int(sample.finding.source_id, 16), *sample.in_table) for sample in found.samples] == [(1, "ann"), (2, "bob")]


def test_columns_of_a_parquet_file_can_have_any_order(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "users.parquet"
    pyarrow.parquet.write_table(owned().select(["updated_at", "owner", "username", "id"]), path)
    found = verify_table(client, parquet_table(path, OWNED), source_type=SourceType.USERS, show_values=True)
    assert [sample.in_table for sample in found.samples] == [("ann",), ("bob",)]


def test_dictionary_columns_are_read_as_their_values(client: Client) -> None:
    plain = owned(id=["a", "b"], username=["ann", "ann"])
    data = pa.table(
        {name: plain[name].dictionary_encode() if name != "updated_at" else plain[name] for name in plain.schema.names}
    )
    found = verify_table(client, arrow_table(data, OWNED), source_type=SourceType.USERS, show_values=True)
    assert [sample.in_table for sample in found.samples][:1] == [("ann",)]
    nothing = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([None, "bob"]))
    report = verify_table(client, arrow_table(owned(username=nothing), OWNED), source_type=SourceType.USERS).report
    assert (report.claims, report.missing) == (1, 1)
    for empty in (pa.array([None, None], pa.dictionary(pa.int32(), pa.string())), pa.array([None, None], pa.string())):
        assert verify_table(client, arrow_table(owned(username=empty), OWNED), source_type=SourceType.USERS).report.claims == 0
    error = applying(
        client, lambda: arrow_table(owned(owner=plain["username"].dictionary_encode()), OWNED, taken_at=just_now())
    )
    assert (type(error), error.column) == (errors.ColumnTypeError, "owner")


def test_an_overlong_key_names_its_column(client: Client) -> None:
    error = applying(client, lambda: arrow_table(owned(id=["a", "secret" * 30]), OWNED, taken_at=just_now()))
    assert (type(error), error.column) == (errors.ColumnValueError, "id")
    assert "128" in str(error)


def test_an_overlong_csv_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text(
        "id,username,owner,updated_at,note\n1,ann,1,2026-01-01T00:00:00Z,"
        + "x" * 3_000_000
        + "\n2,bob,2,2026-01-01T00:00:00Z,\n"
    )
    with pytest.raises(errors.RowsError, match="a row over"):
        csv_table(path, OWNED).check()


def test_a_missing_postgres_table_is_named(cluster: PostgresCluster) -> None:
    url = cluster.create_database()
    assert "`userz`" in str(raised_by(lambda: PostgresTable(url, "userz", OWNED)))
    with pytest.raises(psycopg.OperationalError):
        PostgresTable(url + "_absent", "users", OWNED)


@pytest.mark.parametrize("kind", ["uuid", "text", "integer", "smallint", "char(3)", "varchar"])
def test_v03_keys_of_every_type_are_sorted_and_read_again(client: Client, cluster: PostgresCluster, kind: str) -> None:
    url = cluster.create_database()
    keys: dict[str, list[Any]] = {
        "uuid": ["f0000000-0000-4000-8000-000000000000", "0a000000-0000-4000-8000-000000000000"],
        "integer": [2_000_000_000, 7],
        "smallint": [300, 7],
        "char(3)": ["zzz", "ABC"],
    }
    with psycopg.connect(url) as connection:
        connection.execute(psycopg.sql.SQL(f"CREATE TABLE users (id {kind} PRIMARY KEY, username text, owner int)"))
        # A language's collation sorts "a" before "B"; bytes sort "B" first. A string that looks like a UUID must stay a string.
        texts = ["a", "B", "f0000000-0000-4000-8000-000000000000", "z"]
        for number, key in enumerate(keys.get(kind, texts), 1):
            connection.execute("INSERT INTO users VALUES (%s, %s, %s)", [key, f"user{number}", number])
    table = PostgresTable(url, "users", replace(OWNED, updated_at=None))
    options: dict[str, Any] = {"source_type": SourceType.USERS, "apply": True, "recent_within_seconds": 0, "rows_per_page": 1}
    options["max_destroy_share"] = 1.0
    count = len(keys.get(kind, texts))
    assert verify_table(client, table, **options).report.created == count
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE users SET username = 'renamed' || owner")
    again = verify_table(client, table, **options).report
    assert (again.created, again.destroyed, again.failed) == (count, count, 0)
    assert verify_table(client, table, **{**options, "apply": False}).is_clean


def test_taken_at_without_a_time_zone_is_refused() -> None:
    table = arrow_table(as_arrow(GOOD), COLUMNS, taken_at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake
    assert "time zone" in str(raised_by(lambda: table.age_seconds(datetime.now(timezone.utc))))
