"""A table of users for tests: in a database, in dump files, and in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from leasehold import BucketType, Claim, Source, SourceType, Subject, SubjectType
from leasehold.client import Client
from leasehold.tables import Table
from leasehold.tables.files import DumpedTable, arrow_table, csv_table, parquet_table
from leasehold.tables.postgres import PostgresTable
from leasehold.verification import ClaimColumns, TableColumns

COLUMNS = TableColumns(
    key="id",
    claims=[
        ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "id"),
        ClaimColumns(BucketType.EMAILS, "email", SubjectType.USER, "id"),
    ],
    updated_at="updated_at",
)
LONG_AGO = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class User:
    """A row of the table of users."""

    id: int
    username: str
    email: str | None = None
    updated_at: datetime = LONG_AGO

    def claims(self) -> list[Claim]:
        """Return the claims that the user's row makes."""
        subject, source = Subject(SubjectType.USER, self.id), Source.of(SourceType.USERS, self.id)
        names = [(BucketType.USERNAMES, self.username), (BucketType.EMAILS, self.email)]
        return [Claim(kind, name, subject, source) for kind, name in names if name is not None]


def claim(client: Client, users: Sequence[User]) -> None:
    """Create and commit the claims of these users on the server."""
    for start in range(0, len(users), 900):
        with client.update(creates=[claim for user in users[start : start + 900] for claim in user.claims()]):
            pass


def as_arrow(users: Sequence[User]) -> pa.Table:
    """Return the users as a pyarrow table."""
    schema = pa.schema(
        [("id", pa.int64()), ("username", pa.string()), ("email", pa.string()), ("updated_at", pa.timestamp("us", "UTC"))]
    )
    return pa.Table.from_pylist([vars(user) for user in users], schema)


def in_postgres(url: str, users: Sequence[User]) -> str:
    """Create the table of users in a database. Return the database's URL."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE users (id bigint PRIMARY KEY, username text, email varchar, updated_at timestamptz, note bytea)"
        )
        with connection.cursor() as cursor:
            rows = [(user.id, user.username, user.email, user.updated_at) for user in users]
            cursor.executemany("INSERT INTO users VALUES (%s, %s, %s, %s)", rows)
    return url


def just_now() -> datetime:
    """Return the time for a dump that is made now. It is a minute ahead, as if the database's clock were."""
    return datetime.now(timezone.utc) + timedelta(minutes=1)


def renew(table: Table) -> None:
    """Give the table the present time if it is a dump. A dump ages while a test runs, for minutes on a busy machine."""
    if isinstance(table, DumpedTable):
        table._taken_at = just_now()


def csv(directory: Path, users: Sequence[User]) -> Table:
    """Dump the users into a CSV file. Return the `Table` over that file."""
    path = directory / "users.csv"
    pyarrow.csv.write_csv(as_arrow(users), path)
    return csv_table(path, COLUMNS, taken_at=just_now())


def parquet(directory: Path, users: Sequence[User]) -> Table:
    """Dump the users into a Parquet file with small row groups. Return the `Table` over that file."""
    path = directory / "users.parquet"
    pyarrow.parquet.write_table(as_arrow(users), path, row_group_size=100)
    return parquet_table(path, COLUMNS, taken_at=just_now())


def pyarrow_table(_: Path, users: Sequence[User]) -> Table:
    """Return a `Table` over the users as a pyarrow table."""
    return arrow_table(as_arrow(users), COLUMNS, taken_at=just_now())


def pyarrow_stream(_: Path, users: Sequence[User]) -> Table:
    """Return a `Table` over an Arrow stream of the users that can be read only once."""
    return arrow_table(as_arrow(users).to_reader(7), COLUMNS, taken_at=just_now())


def polars_frame(_: Path, users: Sequence[User]) -> Table:
    """Return a `Table` over the users as a polars data frame."""
    return arrow_table(pl.DataFrame(as_arrow(users)), COLUMNS, taken_at=just_now())


def pandas_frame(_: Path, users: Sequence[User]) -> Table:
    """Return a `Table` over the users as a pandas data frame."""
    return arrow_table(as_arrow(users).to_pandas(), COLUMNS, taken_at=just_now())


def duckdb_relation(_: Path, users: Sequence[User]) -> Table:
    """Return a `Table` over a duckdb query that returns the users."""
    data = as_arrow(users)  # noqa: F841 - duckdb finds `data` by its name
    relation = duckdb.sql("SELECT * FROM data ORDER BY id")
    assert relation is not None
    return arrow_table(relation, COLUMNS, taken_at=just_now())


DUMPS: list[Callable[[Path, Sequence[User]], Table]] = [
    csv,
    parquet,
    pyarrow_table,
    pyarrow_stream,
    polars_frame,
    pandas_frame,
    duckdb_relation,
]


def postgres_table(url: str) -> Table:
    """Return a `Table` over the table of users in a database."""
    return PostgresTable(url, "users", COLUMNS)
