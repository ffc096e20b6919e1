"""Dumps of tables: CSV and Parquet files, and whatever streams Arrow. They are read a batch at a time."""

from __future__ import annotations

import csv
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from leasehold.errors import ColumnError, MisconfiguredError, RowsError, column_error
from leasehold.tables._table import RowReader, Table, texts_of, told, wanted
from leasehold.verification import ArrowRows, ArrowStream, ReadRows, TableColumns, Verification

_BATCH_ROWS = 32_768
_CSV_BLOCK_BYTES = 1 << 20
_PARQUET_BUFFER_BYTES = 1 << 16
_PLAIN = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_CSV_COLUMN = re.compile(r"In CSV column #(\d+)")


def csv_table(
    path: str | PathLike[str], columns: TableColumns, *, text_keys: bool = False, taken_at: datetime | None = None
) -> DumpedTable:
    """Take a CSV file with a header for a table.

    Keys and subjects' ids are read as integers, values as texts, times as ISO 8601. An empty field is null, unless it is
    quoted.

    Parameters
    ----------
    path : path
        The file. Its rows have to be in the order of their keys: dump them with `ORDER BY`.
    columns : TableColumns
        Which columns are read.
    text_keys : bool, optional
        Whether keys are texts.
    taken_at : datetime, optional
        When the dump was made, by the database's clock. Without it the table is compared, but not corrected by.
        A row that has lost its name since, and its claim with it, is claimed for as the dump has it.

    Raises
    ------
    MisconfiguredError
        The file can't be read.
    """
    return DumpedTable(_Csv(_readable(path), columns, text_keys=text_keys), columns, taken_at=taken_at)


def parquet_table(path: str | PathLike[str], columns: TableColumns, *, taken_at: datetime | None = None) -> DumpedTable:
    """Take a Parquet file for a table.

    Parameters
    ----------
    path : path
        The file. Its rows have to be in the order of their keys.
    columns : TableColumns
        Which columns are read.
    taken_at : datetime, optional
        When the dump was made, by the database's clock. Without it the table is compared, but not corrected by.

    Raises
    ------
    MisconfiguredError
        The file can't be read.
    """
    return DumpedTable(_Parquet(_readable(path), columns), columns, taken_at=taken_at)


def arrow_table(data: ArrowStream, columns: TableColumns, *, taken_at: datetime | None = None) -> DumpedTable:
    """Take whatever streams Arrow for a table: of polars, pandas, pyarrow, duckdb and others.

    What is no table of pyarrow is written to a temporary file first, since most streams can be read only once.

    Parameters
    ----------
    data : ArrowStream
        The rows, in the order of their keys.
    columns : TableColumns
        Which columns are read.
    taken_at : datetime, optional
        When the rows were read, by the database's clock. Without it the table is compared, but not corrected by.

    Raises
    ------
    RowsError
        The stream fails.
    """
    if isinstance(data, pa.Table):
        return DumpedTable(lambda _: data.to_reader(_BATCH_ROWS), columns, taken_at=taken_at)
    return DumpedTable(_Spooled(data, columns), columns, taken_at=taken_at)


class DumpedTable(Table):
    """A table as it was at some time."""

    def __init__(
        self,
        open_stream: Callable[[list[Exception]], pa.RecordBatchReader],
        columns: TableColumns,
        *,
        taken_at: datetime | None,
    ) -> None:
        self.columns = columns
        self._open = open_stream
        self._taken_at = taken_at

    @contextmanager
    def scan(self) -> Iterator[pa.RecordBatchReader]:
        """Stream the columns that are read."""
        failures: list[Exception] = []
        with told(failures), closing(self._open(failures)) as stream:
            yield stream

    @contextmanager
    def reader(self) -> Iterator[RowReader]:
        """Open the dump for one run."""
        failures: list[Exception] = []
        with told(failures), closing(_Streams(self._open, failures)) as streams:
            yield _DumpReader(self, ArrowRows(streams, self.columns), self._taken_at or datetime.now(timezone.utc))

    def origin(self) -> Mapping[str, str]:
        """Tell the kind of keys: a newer dump of a table may go on where one stopped."""
        with self.scan() as stream:
            keys = stream.schema.get_field_index(self.columns.key)
            return {"table": "a dump", "keys": _kind(stream.schema.field(keys).type) if keys >= 0 else ""}

    def age_seconds(self, now: datetime) -> float:
        """Tell how old the dump is.

        Raises
        ------
        MisconfiguredError
            Nobody has said when it was made.
        """
        if self._taken_at is None:
            raise MisconfiguredError("nobody has said when the dump was made: say so in `taken_at`")
        if self._taken_at.tzinfo is None:
            raise MisconfiguredError("`taken_at` has no time zone: say which")
        return (now - self._taken_at).total_seconds()

    def rows_of(self, ids: Sequence[bytes]) -> pa.Table:
        """Find single rows, by reading as much of the dump as has to be."""
        found = []
        with self.scan() as stream:
            schema, left = stream.schema, len(ids)
            for batch in stream:
                some = _among(batch, self.columns.key, ids)
                found.append(some)
                left -= some.num_rows
                if left <= 0:
                    break
        return pa.Table.from_batches(found, schema)


class _Streams:
    """A dump that can be read from its first row on as often as it is asked."""

    def __init__(self, open_stream: Callable[[list[Exception]], pa.RecordBatchReader], failures: list[Exception]) -> None:
        self._open = open_stream
        self._failures = failures
        self._opened: list[pa.RecordBatchReader] = []

    def __arrow_c_stream__(self, requested_schema: object | None = None, /) -> object:
        stream = self._open(self._failures)
        self._opened.append(stream)
        return stream.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        for stream in self._opened:
            stream.close()


class _DumpReader(RowReader):
    def __init__(self, table: DumpedTable, rows: ArrowRows, now: datetime) -> None:
        self._table = table
        self._rows = rows
        self._now = now

    def bound(self, after: bytes, rows: int) -> bytes | None:
        return self._rows.bound(after, rows)

    def feed(self, run: Verification, step: ReadRows) -> None:  # noqa: ARG002 - the run says it to the stream
        run.arrow_rows(self._rows, now=self._now)

    def read_again(self, ids: Sequence[bytes]) -> pa.Table:
        return self._table.rows_of(ids)

    def feed_again(self, run: Verification, ids: Sequence[bytes], *, is_begun: bool) -> None:
        if is_begun:
            run.unchanged()
        else:
            run.arrow(self.read_again(ids), self._table.columns, now=self._now)


def _among(batch: pa.RecordBatch, key: str, ids: Sequence[bytes]) -> pa.RecordBatch:
    is_wanted = _mask(batch.column(key), ids)
    if not pc.any(is_wanted).as_py():
        return batch.slice(0, 0)
    # Views can't be filtered.
    plain = [pa.field(field.name, _PLAIN.get(field.type, field.type)) for field in batch.schema]
    return batch.cast(pa.schema(plain)).filter(is_wanted).cast(batch.schema)


def _mask(keys: pa.Array, ids: Sequence[bytes]) -> pa.Array:
    if isinstance(keys, pa.ExtensionArray):
        keys = keys.storage
    if isinstance(keys, pa.DictionaryArray):
        keys = keys.cast(keys.type.value_type)
    if pa.types.is_integer(keys.type):
        integers = pa.array([int.from_bytes(one, "big") for one in ids], pa.uint64())
        return pc.is_in(keys.cast(pa.uint64(), safe=False), integers)
    if _is_text(keys.type):
        texts, uuids = texts_of(ids)
        large = keys.cast(pa.large_string())
        same = pc.is_in(large, pa.array(texts, pa.large_string()))
        return pc.or_(same, pc.is_in(pc.utf8_lower(large), pa.array(uuids, pa.large_string())))
    return pc.is_in(keys.cast(pa.large_binary()), pa.array(ids, pa.large_binary()))


def _kind(keys: pa.DataType) -> str:
    if pa.types.is_dictionary(keys):
        keys = keys.value_type
    if pa.types.is_integer(keys):
        return "integers"
    return "texts" if _is_text(keys) else "bytes"


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _readable(path: str | PathLike[str]) -> Path:
    try:
        with Path(path).open("rb"):
            return Path(path)
    except OSError as error:
        raise MisconfiguredError(f"cannot read `{path}`: {error.strerror}") from None


class _Parquet:
    def __init__(self, path: Path, columns: TableColumns) -> None:
        self._path = path
        self._wanted = wanted(columns)

    def __call__(self, _: list[Exception]) -> pa.RecordBatchReader:
        try:
            # By the page: a row group's column may be as large as the table.
            file = pq.ParquetFile(self._path, memory_map=False, buffer_size=_PARQUET_BUFFER_BYTES, pre_buffer=False)
        except pa.ArrowInvalid:
            raise MisconfiguredError(f"`{self._path}` is no Parquet file") from None
        schema = file.schema_arrow
        # Of what is nested, Parquet takes `a.b` for the member `b` of `a`, too, and brings both.
        batches = file.iter_batches(_BATCH_ROWS, columns=[name for name in self._wanted if name in schema.names])
        fields = [schema.field(at) for at in _places(schema, self._wanted)]
        return pa.RecordBatchReader.from_batches(pa.schema(fields), _closing(file, self._wanted, batches))


def _closing(file: pq.ParquetFile, names: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with file:
        for batch in batches:
            yield batch.select(_places(batch.schema, names))


def _places(schema: pa.Schema, names: Sequence[str]) -> list[int]:
    """Find columns, those that are there twice, too: that is told of where columns are read."""
    return [at for name in names for at in schema.get_all_field_indices(name)]


class _Csv:
    def __init__(self, path: Path, columns: TableColumns, *, text_keys: bool) -> None:
        self._path = path
        self._columns = columns
        zone = None if columns.assume_utc else "UTC"
        types = {claim.value: pa.string() for claim in columns.claims}
        types.update({claim.subject: pa.int64() for claim in columns.claims})
        types[columns.key] = pa.string() if text_keys else pa.int64()
        if columns.updated_at is not None:
            types[columns.updated_at] = pa.timestamp("us", tz=zone)
        self._types = types

    def __call__(self, failures: list[Exception]) -> pa.RecordBatchReader:
        names = wanted(self._columns)
        header = self._header()
        for name in names:
            if header.count(name) != 1:
                what = "is missing" if name not in header else "is there twice: which one is meant?"
                raise column_error("COLUMN_MISSING", name, f"the column `{name}` {what}")
        schema = pa.schema([(name, self._types[name]) for name in names])
        return pa.RecordBatchReader.from_batches(schema, self._batches(header, failures))

    def _header(self) -> list[str]:
        # More than the header is decoded here; text that is not UTF-8 is told of where its column is read.
        with self._path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            try:
                return next(csv.reader(file), [])
            except csv.Error:
                raise self._unreadable() from None

    def _batches(self, header: list[str], failures: list[Exception]) -> Iterator[pa.RecordBatch]:
        options = {
            "read_options": pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False),
            "parse_options": pyarrow.csv.ParseOptions(newlines_in_values=True),
            "convert_options": pyarrow.csv.ConvertOptions(
                column_types=self._types,
                include_columns=wanted(self._columns),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        }
        try:
            with pyarrow.csv.open_csv(self._path, **options) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            failures.append(self._failure(header, str(error)))
            raise failures[0] from None

    def _failure(self, header: list[str], message: str) -> RowsError | ColumnError:
        # Its own words quote the value.
        found = _CSV_COLUMN.search(message)
        if found is None and "straddl" in message:
            what = f"a row longer than {_CSV_BLOCK_BYTES:,} bytes, or a quote that is not closed"
            return RowsError(f"`{self._path}` has {what}: leave out columns that are not needed", code="INVALID_ROWS")
        if found is None:
            return self._unreadable()
        name = header[int(found[1])]
        if "zone offset" in message:
            hint = "no time zone, or not all of them do" if not self._columns.assume_utc else "a time zone, some of them"
            advice = "give all of them one" if not self._columns.assume_utc else "leave out `assume_utc`"
            return column_error("COLUMN_TIME_ZONE", name, f"times in the column `{name}` have {hint}: {advice}")
        if "UTF8" in message:
            return column_error("COLUMN_VALUE", name, f"the column `{name}` has text that is not UTF-8: convert the file")
        return column_error("COLUMN_TYPE", name, f"the column `{name}` has a field that is no `{self._types[name]}`: mend it")

    def _unreadable(self) -> RowsError:
        return RowsError(f"`{self._path}` is no CSV file that can be read: check quotes and columns", code="INVALID_ROWS")


class _Spooled:
    def __init__(self, data: ArrowStream, columns: TableColumns) -> None:
        if not hasattr(data, "__arrow_c_stream__"):
            raise TypeError("the data is no Arrow stream: it has to have `__arrow_c_stream__`, as a table of polars has")
        opened, self._path = tempfile.mkstemp(prefix="leasehold-rows")
        os.close(opened)
        # It goes when the table does.
        weakref.finalize(self, os.unlink, self._path)
        try:
            stream = pa.RecordBatchReader.from_stream(data)
            there = [name for name in wanted(columns) if stream.schema.names.count(name) == 1]
            schema = pa.schema([stream.schema.field(name) for name in there])
            with pa.OSFile(self._path, "wb") as sink, pa.ipc.new_file(sink, schema) as file:
                for batch in stream:
                    file.write(batch.select(there))
        except pa.ArrowException:
            raise RowsError("the stream can't be read to its end", code="INVALID_ROWS") from None

    def __call__(self, _: list[Exception]) -> pa.RecordBatchReader:
        file = pa.ipc.open_file(pa.OSFile(self._path))
        batches = (part for at in range(file.num_record_batches) for part in _parts(file.get_batch(at)))
        return pa.RecordBatchReader.from_batches(file.schema, batches)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for at in range(0, batch.num_rows, _BATCH_ROWS):
        yield batch.slice(at, _BATCH_ROWS)
