"""Tables in PostgreSQL, read by ranges of their primary key."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa
from typing_extensions import LiteralString

from leasehold._extras import importing
from leasehold.calls import encode_source_id
from leasehold.errors import MisconfiguredError, RowsError, column_error
from leasehold.tables._keys import ENCODED_BYTES, INTEGERS, TEXTS, UUIDS
from leasehold.tables._row_names import RowNames
from leasehold.tables._table import RowReader, Table, check_columns, check_subjects, column_names, original_errors, recorded
from leasehold.verification import ReadRows, TableColumns, Verification

with importing("postgres"):
    import psycopg
    from psycopg import errors as database
    from psycopg import sql

_BATCH_ROWS = 8192

# OIDs of PostgreSQL's built-in types, first those of the integer types (src/include/catalog/pg_type.dat).
_INTEGERS = {20, 21, 23}
_UUID = 2950
_TIMESTAMP = 1114
_TIMESTAMP_WITH_TIME_ZONE = 1184

# Selects name, type and type category of each column of a table. A domain counts as its base type.
_COLUMNS = """
SELECT a.attname, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END, t.typcategory, t.typname
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""

# Selects a table's oid, its quoted name for queries, its full name, its database and its kind.
_TABLE = """
SELECT c.oid, c.oid::regclass::text, format('%%I.%%I', n.nspname, c.relname), current_database(), c.relkind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""

# The errors of `to_regclass` for a text that is no name of a table.
_NOT_A_NAME = (database.InvalidName, database.SyntaxError, database.FeatureNotSupported)

_NO_UNICODE = "the table has text that is not valid Unicode: correct it, or leave these rows out by a condition"

# The errors of a server that sends text which is not valid in UTF-8. Their messages quote its bytes (V09).
_NOT_UNICODE = (database.CharacterNotInRepertoire, database.UntranslatableCharacter)

# The column name under which queries select the time of a row's last change. The space avoids a clash with real columns.
_CHANGED_AT = "leasehold changed"

# SQL condition: true if an open transaction may be writing the row. It takes no lock.
#
# `xmax` is the id of the transaction that updated, deleted or locked the row version (PostgreSQL documentation, "System
# Columns"). That transaction may be open if its id is not older than the snapshot's `xmin`, the oldest open transaction. The
# condition also matches transactions that only lock the row, and aborted writers. The next run verifies those rows.
#
# If several transactions lock the row, `xmax` is a multixact id, which comes from another counter. SQL does not show the
# infomask bit that tells the two apart (HEAP_XMAX_IS_MULTI in src/include/access/htup_details.h). The condition therefore tests
# the number as both: within the range of live multixacts, it also looks for the writer among the members.
_MAY_BE_WRITTEN = """
(xmax::text <> '0' AND (
  age(xmax) <= age(pg_snapshot_xmin(pg_current_snapshot())::xid)
  OR CASE
    WHEN mxid_age(xmax) > 0 AND mxid_age(xmax) <= (SELECT mxid_age(relminmxid) FROM pg_class WHERE pg_class.oid = {0}.tableoid)
    THEN EXISTS (
      SELECT FROM pg_get_multixact_members(xmax) AS member
      WHERE member.mode IN ('upd', 'nokeyupd') AND age(member.xid) <= age(pg_snapshot_xmin(pg_current_snapshot())::xid))
    ELSE FALSE END))
"""

# Kinds of relations whose `xmax` is a transaction id: tables and partitioned tables (pg_class.relkind). Views have no
# `xmax`, and the `xmax` of a foreign table depends on its wrapper.
_KINDS_WITH_XMAX = ("r", "p")

_Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True)
class _Column:
    """The SQL expression that reads a column, its Arrow type, and the function that encodes its values as keys."""

    name: str
    expression: sql.Composable
    arrow_type: pa.DataType
    encode: Callable[[Any], bytes] | None = None
    is_value: bool = False
    is_encoded: bool = False
    """True if the expression returns the bytes of a text."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        if self.encode is not None:
            values = [None if value is None else self.encode(value) for value in values]
        if self.is_encoded:
            # The bytes enter the extension unchecked. It names the row that has bytes which are not UTF-8.
            return pa.array(values, pa.binary()).view(pa.string())
        return pa.array(values, self.arrow_type)


class PostgresTable(Table):
    """A table in PostgreSQL, read through server-side cursors, one range of keys at a time. The connection is read-only.

    Parameters
    ----------
    conninfo : str
        The connection string of the database: a URL, or `host=… dbname=…`.
    table : str
        The name of the table, with its schema if needed: as it is spelled, or as in SQL.
    columns : TableColumns
        The columns to read. Keys are integers, UUIDs or strings.
    where : str, optional
        An SQL condition. Rows that fail it make no claims.

    Raises
    ------
    MisconfiguredError
        The table does not exist or is not visible, or `where` is no condition on its rows.
    ColumnError
        A column is missing or of an unsupported type.
    psycopg.Error
        The database cannot be reached, or refuses the connection or a query.
    """

    def __init__(self, conninfo: str, table: str, columns: TableColumns, *, where: str | None = None) -> None:
        self.columns = columns
        self._conninfo = conninfo
        with self._connect() as connection:
            oid, quoted_name, full_name, database_name, kind = _find(connection, table)
            types = {name: rest for name, *rest in connection.execute(_COLUMNS, [oid])}
            is_ascii = connection.info.parameter_status("server_encoding") == "SQL_ASCII"
            relation = sql.SQL(quoted_name)
            _check_condition(connection, relation, where)
        check_columns(columns, list(types))
        changed_at = _changed_at(columns, types, relation if kind in _KINDS_WITH_XMAX else None)
        read = _columns(columns, types, is_ascii=is_ascii)
        check_subjects(columns, _schema(read))
        self._queries = _Queries(relation, read, where, changed_at)
        self._identity = {"table": f"{database_name}.{full_name}", "where": where or "", "keys": self._queries.key_kind}

    def identity(self) -> Mapping[str, str]:
        """Return the database and full name of the table, the condition on its rows, and the kind of its keys."""
        return self._identity

    @contextmanager
    def scan(self) -> Iterator[pa.RecordBatchReader]:
        """Return a stream of all rows of the table, with only the read columns, through one server-side cursor."""
        all_rows = self._queries.range(b"", b"")
        with self._connect() as connection, self._queries.stream(connection, all_rows) as stream:
            yield stream

    @contextmanager
    def reader(self) -> Iterator[RowReader]:
        """Return a reader of the table's rows for one verification run. It has its own connection."""
        with self._connect() as connection:
            yield _PostgresReader(connection, self._queries, self.columns)

    def _connect(self) -> _Connection:
        # The server's own encoding may have no codec in Python, and psycopg returns the text of SQL_ASCII as bytes
        # (psycopg documentation, "Adapting basic Python types", strings).
        connection = psycopg.connect(self._conninfo, client_encoding="UTF8")
        connection.read_only = True
        return connection


class _PostgresReader(RowReader):
    def __init__(self, connection: _Connection, queries: _Queries, columns: TableColumns) -> None:
        self._connection = connection
        self._queries = queries
        self._columns = columns

    def bound(self, after: bytes, rows: int) -> bytes | None:
        with self._connection.transaction():
            row = self._connection.execute(self._queries.nth_key(after, rows)).fetchone()
        return None if row is None else self._queries.encode_key(row[0])

    def feed(self, run: Verification, step: ReadRows, *, seconds_since_listing: float) -> None:
        # A row that changed after its records were listed counts as recent, however long the listing took (V02).
        now = self._now() - timedelta(seconds=seconds_since_listing)
        with self._queries.stream(self._connection, self._queries.range(step.after, step.upto)) as stream:
            run.arrow(stream, self._columns, now=now)

    def read_again(self, ids: Sequence[bytes]) -> pa.Table:
        with self._queries.stream_by_keys(self._connection, ids) as stream:
            return stream.read_all()

    def feed_again(self, run: Verification, ids: Sequence[bytes], *, is_begun: bool) -> None:  # noqa: ARG002 - live rows can always change
        now = self._now()
        run.arrow(self.read_again(ids), replace(self._columns, updated_at=_CHANGED_AT), now=now)

    def _now(self) -> datetime:
        # Ages of rows are compared with the database's clock (R03). `clock_timestamp()` advances within a transaction, unlike
        # `now()`.
        with self._connection.transaction():
            row = self._connection.execute("SELECT clock_timestamp()").fetchone()
        if row is None:
            raise MisconfiguredError("the database returned no row for its clock: check the connection")
        now: datetime = row[0]
        return now


class _Queries:
    """Builds and runs the SQL queries that read one table."""

    def __init__(
        self,
        table: sql.Composable,
        columns: Sequence[_Column],
        where: str | None,
        changed_at: _Column,
    ) -> None:
        self._table = table
        self._columns = columns
        self._columns_with_changed_at = [*columns, changed_at]
        self._key = columns[0]
        # Encoded string keys sort by their bytes. The collation "C" gives this order, the collation of a language does not.
        order = sql.SQL('{} COLLATE "C"') if self._key.encode is _encode_text else sql.SQL("{}")
        self._ordered = order.format(sql.Identifier(self._key.name))
        self._where = _condition(where)

    @property
    def key_kind(self) -> str:
        """The kind of the table's keys."""
        if self._key.encode is None:
            return INTEGERS
        return UUIDS if self._key.encode is _encode_uuid else TEXTS

    def range(self, after: bytes, upto: bytes) -> sql.Composed:
        """Return the query for the rows whose encoded keys lie after `after` and up to `upto`."""
        columns = [column.expression for column in self._columns]
        return self._select(columns, [*self._between(after, upto), self._where])

    def _by_keys(self, ids: Sequence[bytes]) -> sql.Composed:
        """Return the query for the rows with these keys, each with the time of its last change.

        A row that fails the table's condition is returned with null values, so that it makes no claims.
        """
        in_scope = sql.SQL("CASE WHEN {} THEN {} END")
        columns = [
            in_scope.format(self._where, column.expression) if column.is_value else column.expression
            for column in self._columns_with_changed_at
        ]
        # The service may have claims under keys of other kinds. No row has these keys.
        decoded = [self._decode_key(key) for key in ids if self._is_key(key)]
        among = sql.SQL("{} = ANY({})").format(sql.Identifier(self._key.name), sql.Literal(decoded))
        # The bounds make the planner use the index. For `= ANY` alone, it scans a table that has no statistics.
        bounds = [sql.SQL("{} >= {}").format(self._ordered, sql.Literal(decoded[0]))] if decoded else []
        bounds += [sql.SQL("{} <= {}").format(self._ordered, sql.Literal(decoded[-1]))] if decoded else []
        return self._select(columns, [among, *bounds])

    def nth_key(self, after: bytes, rows: int) -> sql.Composed:
        """Return the query for the key of the row that is `rows` rows after the key `after`."""
        query = "SELECT {} FROM {} WHERE {} ORDER BY {} OFFSET {} LIMIT 1"
        # A negative key has no encoding, so it ends no page. The query for the rows of the first page selects it, and the run
        # refuses it.
        encodable = [sql.SQL("{} >= 0").format(self._ordered)] if self._key.encode is None else []
        conditions = sql.SQL(" AND ").join([*self._between(after, b""), *encodable, self._where])
        return sql.SQL(query).format(self._key.expression, self._table, conditions, self._ordered, sql.Literal(rows - 1))

    def stream_by_keys(self, connection: _Connection, ids: Sequence[bytes]) -> AbstractContextManager[pa.RecordBatchReader]:
        """Return a stream of the rows with these keys, each with the time of its last change."""
        return self._stream(connection, self._by_keys(ids), self._columns_with_changed_at)

    def stream(self, connection: _Connection, query: sql.Composed) -> AbstractContextManager[pa.RecordBatchReader]:
        """Return a stream of the rows that a query selects, through a server-side cursor."""
        return self._stream(connection, query, self._columns)

    @contextmanager
    def _stream(
        self, connection: _Connection, query: sql.Composed, columns: Sequence[_Column]
    ) -> Iterator[pa.RecordBatchReader]:
        failures: list[Exception] = []
        names = RowNames(self._key.name, self.key_kind)
        batches = recorded(names.noted(_batches(connection, query, columns)), failures)
        schema = _schema(columns)
        # A server-side cursor exists only within a transaction. The order matters: closing the generator closes the cursor, and
        # this must happen before the transaction ends.
        with original_errors(failures), names.in_errors(), connection.transaction(), closing(batches):
            yield pa.RecordBatchReader.from_batches(schema, batches)

    def encode_key(self, key: Any) -> bytes:  # noqa: ANN401 - a value of the database
        """Return a key of the database in the encoded form that claims have as their source id."""
        return self._key.encode(key) if self._key.encode is not None else encode_source_id(key)

    def _decode_key(self, source_id: bytes) -> int | str | UUID:
        if self._key.encode is _encode_uuid:
            return UUID(bytes=source_id)
        return source_id.decode() if self._key.encode is _encode_text else int.from_bytes(source_id, "big")

    def _is_key(self, source_id: bytes) -> bool:
        size = ENCODED_BYTES.get(self.key_kind)
        return _is_text(source_id) if size is None else len(source_id) == size

    def _between(self, after: bytes, upto: bytes) -> list[sql.Composable]:
        conditions = [self._compare(">", after)] if after else []
        return [*conditions, self._compare("<=", upto)] if upto else conditions

    def _compare(self, operator: LiteralString, source_id: bytes) -> sql.Composable:
        """Return the condition that the encoded key of a row is greater (`>`) than a source id, or not greater (`<=`).

        A page of records can end at a claim whose key is of another kind than the table's.
        """
        size = ENCODED_BYTES.get(self.key_kind)
        if size is None and not _is_text(source_id):
            encoded = sql.SQL("convert_to({}::text, 'UTF8')").format(sql.Identifier(self._key.name))
            return sql.SQL("{} {} {}").format(encoded, sql.SQL(operator), sql.Literal(source_id))
        if size is None or len(source_id) == size:
            return sql.SQL("{} {} {}").format(self._ordered, sql.SQL(operator), sql.Literal(self._decode_key(source_id)))
        # A prefix sorts before its extensions, so a key that begins with a shorter source id is greater.
        if len(source_id) < size:
            operator = ">=" if operator == ">" else "<"
        nearest = source_id[:size].ljust(size, b"\0")
        return sql.SQL("{} {} {}").format(self._ordered, sql.SQL(operator), sql.Literal(self._decode_key(nearest)))

    def _select(self, columns: Sequence[sql.Composable], conditions: Sequence[sql.Composable]) -> sql.Composed:
        return sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {}").format(
            sql.SQL(", ").join(columns), self._table, sql.SQL(" AND ").join(conditions), self._ordered
        )


def _schema(columns: Sequence[_Column]) -> pa.Schema:
    return pa.schema([(column.name, column.arrow_type) for column in columns])


def _batches(connection: _Connection, query: sql.Composed, columns: Sequence[_Column]) -> Generator[pa.RecordBatch, None, None]:
    schema = _schema(columns)
    try:
        with connection.cursor("leasehold_rows") as cursor:
            cursor.execute(query, binary=True)
            while rows := cursor.fetchmany(_BATCH_ROWS):
                columns_and_values = zip(columns, zip(*rows, strict=True), strict=True)
                arrays = [column.array(values) for column, values in columns_and_values]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    except _NOT_UNICODE:
        raise RowsError(_NO_UNICODE, code="INVALID_ROWS") from None


def _find(connection: _Connection, table: str) -> tuple[Any, ...]:
    """Return the row of `_TABLE` for a table. Its name may be spelled as it is, or as in SQL, which ignores case."""
    exact = ".".join(f'"{part}"' for part in table.replace('"', '""').split("."))
    for name in (exact, table):
        try:
            with connection.transaction():
                found = connection.execute(_TABLE, [name]).fetchone()
        except _NOT_A_NAME:
            continue
        if found is not None:
            return found
    raise MisconfiguredError(f"the table `{table}` does not exist or is not visible: add its schema to the name")


def _condition(where: str | None) -> sql.SQL:
    # The condition is no injection risk, because it runs on the caller's own connection. The line's end ends a comment.
    return sql.SQL(f"({where}\n)" if where else "TRUE")


def _check_condition(connection: _Connection, relation: sql.Composable, where: str | None) -> None:
    """Check that the database can plan a query with the caller's condition. No row is read.

    Raises
    ------
    MisconfiguredError
        The condition is invalid.
    """
    try:
        with connection.transaction():
            connection.execute(sql.SQL("SELECT FROM {} WHERE {} LIMIT 0").format(relation, _condition(where)))
    except database.InsufficientPrivilege:
        raise
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as error:
        cause = error.diag.message_primary or type(error).__name__
        raise MisconfiguredError(
            f"`where` is no condition on the rows of the table ({cause}): correct it", code="INVALID_CONDITION"
        ) from None


def _encode_text(value: str | bytes) -> bytes:
    """Return a string key as UTF-8. `encode_source_id` would encode a string that looks like a UUID as that UUID."""
    if isinstance(value, str):
        return value.encode()
    try:
        value.decode()
    except UnicodeDecodeError:
        raise RowsError(_NO_UNICODE, code="INVALID_ROWS") from None
    return value


def _is_text(source_id: bytes) -> bool:
    try:
        # PostgreSQL has no text with the character 0.
        return "\0" not in source_id.decode()
    except UnicodeDecodeError:
        return False


def _encode_uuid(value: UUID) -> bytes:
    return encode_source_id(str(value))


def _columns(columns: TableColumns, types: dict[str, list[Any]], *, is_ascii: bool) -> list[_Column]:
    """Return the columns that queries select, the key column first. `is_ascii` is true for a database of SQL_ASCII."""
    values = {claim.value for claim in columns.claims}
    selected = []
    for name in column_names(columns):
        oid, category, type_name = types[name]
        selected.append(_column(name, oid, category, type_name, is_key=name == columns.key, is_ascii=is_ascii))
    return [replace(column, is_value=column.name in values and column.name != columns.key) for column in selected]


def _changed_at(columns: TableColumns, types: dict[str, list[Any]], relation: sql.Composable | None) -> _Column:
    """Return the column with the time of a row's last change. If the row may be being written, the time is in the year 9999."""
    changed: sql.Composable = sql.SQL("NULL::timestamptz")
    if columns.updated_at is not None and columns.updated_at in types:
        changed = _clamped(sql.Identifier(columns.updated_at))
        if types[columns.updated_at][0] == _TIMESTAMP:
            changed = sql.SQL("({} AT TIME ZONE 'UTC')").format(changed)
    if relation is not None:
        may_be_written = sql.SQL(_MAY_BE_WRITTEN).format(relation)
        changed = sql.SQL("CASE WHEN {} THEN '9999-12-30' ELSE {} END").format(may_be_written, changed)
    return _Column(_CHANGED_AT, changed, pa.timestamp("us", tz="UTC"))


def _clamped(time: sql.Composable) -> sql.Composed:
    """Return the SQL expression of a time, limited to 1970 to 9999.

    psycopg raises `DataError` for times outside the range of `datetime` and for `infinity` (psycopg/types/datetime.py).
    The last day of 9999 is excluded, because a conversion to another time zone would overflow.
    """
    case = "CASE WHEN {0} < '1970-01-01' THEN '1970-01-01' WHEN {0} > '9999-12-30' THEN '9999-12-30' ELSE {0} END"
    return sql.SQL(case).format(time)


def _column(name: str, oid: int, category: str, type_name: str, *, is_key: bool, is_ascii: bool) -> _Column:
    identifier = sql.Identifier(name)
    as_text = sql.SQL("{}::text").format(identifier)
    if oid in _INTEGERS:
        return _Column(name, identifier, pa.int64())
    if oid == _UUID:
        return _Column(name, identifier, pa.binary(), _encode_uuid) if is_key else _Column(name, as_text, pa.string())
    if category == "S":
        # In a database of SQL_ASCII the server does not know the encoding of a text, so it returns the bytes. The run refuses
        # those that are not UTF-8.
        text = sql.SQL("convert_to({}, 'SQL_ASCII')").format(as_text) if is_ascii else as_text
        arrow_type, encode = (pa.binary(), _encode_text) if is_key else (pa.string(), None)
        return _Column(name, text, arrow_type, encode, is_encoded=is_ascii and not is_key)
    if oid == _TIMESTAMP_WITH_TIME_ZONE:
        return _Column(name, _clamped(identifier), pa.timestamp("us", tz="UTC"))
    if oid == _TIMESTAMP:
        return _Column(name, _clamped(identifier), pa.timestamp("us"))
    message = f"the column `{name}` has the type `{type_name}`: use integers, strings, UUIDs or times"
    raise column_error("COLUMN_TYPE", name, message)
