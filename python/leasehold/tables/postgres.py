"""A table of a cell's own PostgreSQL database, read by ranges of its primary key."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import psycopg
import pyarrow as pa
from psycopg import sql

from leasehold.calls import encode_source_id
from leasehold.errors import ColumnMissingError, MisconfiguredError, column_error
from leasehold.tables._table import RowReader, Table, told, wanted
from leasehold.verification import ReadRows, TableColumns, Verification

_BATCH_ROWS = 8192

# By PostgreSQL's own numbers of types.
_INTEGERS = {20, 21, 23}
_UUID = 2950
_TIMESTAMP = 1114
_TIMESTAMP_WITH_TIME_ZONE = 1184

_COLUMNS = """
SELECT a.attname, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END, t.typcategory, t.typname
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""

# A table's name as queries are to have it, its full name, and its database.
_NAMES = """
SELECT c.oid::regclass::text, format('%%I.%%I', n.nspname, c.relname), current_database(), c.relkind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""

# The column that says when a row was changed that is read again.
_CHANGED = "leasehold changed"

# Whether a row may be being written, or was since the query began, as far as one can tell that writes nothing: its `xmax`
# is no older than the oldest transaction that was under way. A mere locker, and who has failed since, count as well: such
# rows are left to the next run. Of rows that several have locked, `xmax` may be a multixact: a number of another kind,
# which nothing tells from the first. Read as one, too, it has the writer among its members.
_BEING_WRITTEN = """
(xmax::text <> '0' AND (
  age(xmax) <= age(pg_snapshot_xmin(pg_current_snapshot())::xid)
  OR CASE
    WHEN mxid_age(xmax) > 0 AND mxid_age(xmax) <= (SELECT mxid_age(relminmxid) FROM pg_class WHERE pg_class.oid = {0}.tableoid)
    THEN EXISTS (
      SELECT FROM pg_get_multixact_members(xmax) AS member
      WHERE member.mode IN ('upd', 'nokeyupd') AND age(member.xid) <= age(pg_snapshot_xmin(pg_current_snapshot())::xid))
    ELSE FALSE END))
"""

# Views and foreign tables have no `xmax` that says this; of others it is their storage's.
_WITH_XMAX = ("r", "p")

_Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True)
class _Column:
    """How a column is selected, and what it becomes."""

    name: str
    selected: sql.Composable
    arrow: pa.DataType
    encoded: Callable[[Any], bytes] | None = None
    is_value: bool = False

    def array(self, values: Sequence[Any]) -> pa.Array:
        if self.encoded is not None:
            values = [None if value is None else self.encoded(value) for value in values]
        return pa.array(values, self.arrow)


class PostgresTable(Table):
    """A table in PostgreSQL, read through server-side cursors, a range of keys at a time. Nothing is written to it.

    Parameters
    ----------
    conninfo : str
        Where the database is, as psycopg takes it: a URL, or `host=… dbname=…`.
    table : str
        The table's name, with its schema where that is needed; quoted as in SQL where it has capitals.
    columns : TableColumns
        Which columns are read. Keys are integers, UUIDs or texts.
    where : str, optional
        A condition in SQL: rows for which it does not hold claim nothing.

    Raises
    ------
    MisconfiguredError
        There is no such table.
    ColumnError
        A column is missing, or of a type that can't be read.
    psycopg.Error
        The database can't be reached, or refuses.
    """

    def __init__(self, conninfo: str, table: str, columns: TableColumns, *, where: str | None = None) -> None:
        self.columns = columns
        self._conninfo = conninfo
        with self._connect() as connection:
            types = {name: rest for name, *rest in connection.execute(_COLUMNS, [table])}
            name = connection.execute(_NAMES, [table]).fetchone()
        if name is None:
            raise MisconfiguredError(f"there is no table `{table}`, or it may not be seen: name its schema as well")
        relation = sql.SQL(name[0])
        changed = _changed(columns, types, relation if name[3] in _WITH_XMAX else None)
        self._selected = _Selection(relation, _columns(columns, types), where, changed)
        self._origin = {"table": f"{name[2]}.{name[1]}", "where": where or "", "keys": self._selected.keys}

    def origin(self) -> Mapping[str, str]:
        """Tell the table by its database and schema, which rows of it are in scope, and the kind of keys."""
        return self._origin

    @contextmanager
    def scan(self) -> Iterator[pa.RecordBatchReader]:
        """Stream the columns that are read, through one server-side cursor."""
        whole = self._selected.range(b"", b"")
        with self._connect() as connection, self._selected.stream(connection, whole) as stream:
            yield stream

    @contextmanager
    def reader(self) -> Iterator[RowReader]:
        """Open the table for one run, with a connection of its own."""
        with self._connect() as connection:
            yield _PostgresReader(connection, self._selected, self.columns)

    def _connect(self) -> _Connection:
        connection = psycopg.connect(self._conninfo)
        connection.read_only = True
        return connection


class _PostgresReader(RowReader):
    def __init__(self, connection: _Connection, selected: _Selection, columns: TableColumns) -> None:
        self._connection = connection
        self._selected = selected
        self._columns = columns

    def bound(self, after: bytes, rows: int) -> bytes | None:
        with self._connection.transaction():
            found = self._connection.execute(self._selected.nth(after, rows)).fetchone()
        return None if found is None else self._selected.encode(found[0])

    def feed(self, run: Verification, step: ReadRows) -> None:
        now = self._now()
        with self._selected.stream(self._connection, self._selected.range(step.after, step.upto)) as stream:
            run.arrow(stream, self._columns, now=now)

    def read_again(self, ids: Sequence[bytes]) -> pa.Table:
        with self._selected.stream_again(self._connection, ids) as stream:
            return stream.read_all()

    def feed_again(self, run: Verification, ids: Sequence[bytes], *, is_begun: bool) -> None:  # noqa: ARG002 - rows may change
        now = self._now()
        run.arrow(self.read_again(ids), replace(self._columns, updated_at=_CHANGED), now=now)

    def _now(self) -> datetime:
        with self._connection.transaction():
            row = self._connection.execute("SELECT clock_timestamp()").fetchone()
        if row is None:
            raise MisconfiguredError("the database does not tell its time")
        now: datetime = row[0]
        return now


class _Selection:
    """What is selected of a table, by ranges of its key."""

    def __init__(
        self,
        table: sql.Composable,
        columns: Sequence[_Column],
        where: str | None,
        changed: _Column,
    ) -> None:
        self._table = table
        self._columns = columns
        self._again = [*columns, changed]
        self._key = columns[0]
        # Texts are ordered by their bytes, as encoded keys are.
        order = sql.SQL('{} COLLATE "C"') if self._key.encoded is _text else sql.SQL("{}")
        self._ordered = order.format(sql.Identifier(self._key.name))
        # It is the caller's, who may read the table anyway.
        self._where = sql.SQL(f"({where})" if where else "TRUE")

    @property
    def keys(self) -> str:
        """Of which kind keys are."""
        if self._key.encoded is None:
            return "integers"
        return "UUIDs" if self._key.encoded is _uuid else "texts"

    def range(self, after: bytes, upto: bytes) -> sql.Composed:
        """Select the rows of a range of encoded keys."""
        columns = [column.selected for column in self._columns]
        return self._select(columns, [*self._between(after, upto), self._where])

    def _among(self, ids: Sequence[bytes]) -> sql.Composed:
        """Select single rows, and when they were changed; those that are out of scope claim nothing."""
        within = sql.SQL("CASE WHEN {} THEN {} END")
        columns = [
            within.format(self._where, column.selected) if column.is_value else column.selected for column in self._again
        ]
        decoded = [self._decode(one) for one in ids]
        among = sql.SQL("{} = ANY({})").format(sql.Identifier(self._key.name), sql.Literal(decoded))
        # A list alone has a table without statistics read from end to end.
        bounds = [sql.SQL("{} >= {}").format(self._ordered, sql.Literal(decoded[0]))] if decoded else []
        bounds += [sql.SQL("{} <= {}").format(self._ordered, sql.Literal(decoded[-1]))] if decoded else []
        return self._select(columns, [among, *bounds])

    def nth(self, after: bytes, rows: int) -> sql.Composed:
        """Select the key of the row that is so many rows on."""
        query = "SELECT {} FROM {} WHERE {} ORDER BY {} OFFSET {} LIMIT 1"
        conditions = sql.SQL(" AND ").join([*self._between(after, b""), self._where])
        return sql.SQL(query).format(self._key.selected, self._table, conditions, self._ordered, sql.Literal(rows - 1))

    def stream_again(self, connection: _Connection, ids: Sequence[bytes]) -> AbstractContextManager[pa.RecordBatchReader]:
        """Read single rows once more, with when they were changed."""
        return self._stream(connection, self._among(ids), self._again)

    def stream(self, connection: _Connection, query: sql.Composed) -> AbstractContextManager[pa.RecordBatchReader]:
        """Read rows through a server-side cursor, some at a time."""
        return self._stream(connection, query, self._columns)

    @contextmanager
    def _stream(
        self, connection: _Connection, query: sql.Composed, columns: Sequence[_Column]
    ) -> Iterator[pa.RecordBatchReader]:
        failures: list[Exception] = []
        batches = _batches(connection, query, columns, failures)
        schema = _schema(columns)
        with told(failures), connection.transaction(), closing(batches):
            yield pa.RecordBatchReader.from_batches(schema, batches)

    def encode(self, key: Any) -> bytes:  # noqa: ANN401 - as the database has it
        """Encode a key."""
        return self._key.encoded(key) if self._key.encoded is not None else encode_source_id(key)

    def _decode(self, source_id: bytes) -> int | str | UUID:
        if self._key.encoded is _uuid:
            return UUID(bytes=source_id)
        return source_id.decode() if self._key.encoded is _text else int.from_bytes(source_id, "big")

    def _between(self, after: bytes, upto: bytes) -> list[sql.Composable]:
        conditions: list[sql.Composable] = []
        if after:
            conditions.append(sql.SQL("{} > {}").format(self._ordered, sql.Literal(self._decode(after))))
        elif self._key.encoded is None:
            # Keys below 0 have no bytes, so what has one is never claimed. What has none is told of.
            conditions.append(sql.SQL("({0} >= 0 OR {0} IS NULL)").format(self._ordered))
        if upto:
            conditions.append(sql.SQL("{} <= {}").format(self._ordered, sql.Literal(self._decode(upto))))
        return conditions

    def _select(self, columns: Sequence[sql.Composable], conditions: Sequence[sql.Composable]) -> sql.Composed:
        return sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {}").format(
            sql.SQL(", ").join(columns), self._table, sql.SQL(" AND ").join(conditions), self._ordered
        )


def _schema(columns: Sequence[_Column]) -> pa.Schema:
    return pa.schema([(column.name, column.arrow) for column in columns])


def _batches(
    connection: _Connection, query: sql.Composed, columns: Sequence[_Column], failures: list[Exception]
) -> Generator[pa.RecordBatch, None, None]:
    schema = _schema(columns)
    try:
        with connection.cursor("leasehold_rows") as cursor:
            cursor.execute(query, binary=True)
            while rows := cursor.fetchmany(_BATCH_ROWS):
                values = zip(columns, zip(*rows, strict=True), strict=True)
                yield pa.RecordBatch.from_arrays([column.array(some) for column, some in values], schema=schema)
    except psycopg.Error as error:
        failures.append(error)
        raise


def _text(value: str) -> bytes:
    """Let a text stand for itself, even if it reads as a UUID."""
    return value.encode()


def _uuid(value: UUID) -> bytes:
    return encode_source_id(str(value))


def _columns(columns: TableColumns, types: dict[str, list[Any]]) -> list[_Column]:
    """Say how each column is selected, the key first."""
    for name in wanted(columns):
        if name not in types:
            raise ColumnMissingError(f"the column `{name}` is missing", code="COLUMN_MISSING", column=name)
    values = {claim.value for claim in columns.claims}
    found = []
    for name in wanted(columns):
        oid, category, type_name = types[name]
        found.append(_column(name, oid, category, type_name, is_key=name == columns.key))
    return [replace(column, is_value=column.name in values and column.name != columns.key) for column in found]


def _changed(columns: TableColumns, types: dict[str, list[Any]], relation: sql.Composable | None) -> _Column:
    """Say when a row was changed: far ahead, which counts as lately, where it is being written."""
    changed: sql.Composable = sql.SQL("NULL::timestamptz")
    if columns.updated_at is not None and columns.updated_at in types:
        changed = _bounded(sql.Identifier(columns.updated_at))
        if types[columns.updated_at][0] == _TIMESTAMP:
            changed = sql.SQL("({} AT TIME ZONE 'UTC')").format(changed)
    if relation is not None:
        written = sql.SQL(_BEING_WRITTEN).format(relation)
        changed = sql.SQL("CASE WHEN {} THEN '9999-12-30' ELSE {} END").format(written, changed)
    return _Column(_CHANGED, changed, pa.timestamp("us", tz="UTC"))


def _bounded(time: sql.Composable) -> sql.Composed:
    """Have times that Python can't say be some that it can: of long ago, and of far ahead, which count as lately."""
    case = "CASE WHEN {0} < '1970-01-01' THEN '1970-01-01' WHEN {0} > '9999-12-30' THEN '9999-12-30' ELSE {0} END"
    return sql.SQL(case).format(time)


def _column(name: str, oid: int, category: str, type_name: str, *, is_key: bool) -> _Column:
    selected = sql.Identifier(name)
    as_text = sql.SQL("{}::text").format(selected)
    if oid in _INTEGERS:
        return _Column(name, selected, pa.int64())
    if oid == _UUID:
        return _Column(name, selected, pa.binary(), _uuid) if is_key else _Column(name, as_text, pa.string())
    if category == "S":
        return _Column(name, as_text, pa.binary(), _text) if is_key else _Column(name, as_text, pa.string())
    if oid == _TIMESTAMP_WITH_TIME_ZONE:
        return _Column(name, _bounded(selected), pa.timestamp("us", tz="UTC"))
    if oid == _TIMESTAMP:
        return _Column(name, _bounded(selected), pa.timestamp("us"))
    message = f"the column `{name}` has the type `{type_name}`: integers, texts, UUIDs and times can be read"
    raise column_error("COLUMN_TYPE", name, message)
