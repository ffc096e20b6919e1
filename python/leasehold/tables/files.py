"""Tables from dumps: CSV files, Parquet files and Arrow streams, read one batch at a time."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from leasehold._arguments import stream_errors
from leasehold.errors import MisconfiguredError, RowsError
from leasehold.tables._csv import Csv
from leasehold.tables._keys import BYTES, ENCODED_BYTES, INTEGERS, TEXTS, UUIDS, decode_text_keys
from leasehold.tables._table import RowReader, Table, check_columns, check_subjects, column_names, original_errors, recorded
from leasehold.verification import ArrowRows, ArrowStream, ReadRows, TableColumns, Verification

_BATCH_ROWS = 32_768
_PARQUET_BUFFER_BYTES = 1 << 16
# pyarrow cannot filter arrays of view types (pyarrow 26: "Function 'array_filter' has no kernel matching input types").
_FILTERABLE = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def csv_table(
    path: str | PathLike[str],
    columns: TableColumns,
    *,
    text_keys: bool = False,
    null_values: Sequence[str] | None = None,
    taken_at: datetime | None = None,
) -> DumpedTable:
    """Return the table that a CSV file with a header line contains.

    Keys and ids of subjects are integers, values are strings, times are ISO 8601 or `infinity`. An unquoted empty field is
    null. Errors count rows from 0, without the header.

    Parameters
    ----------
    path : path
        The file. Its rows must be sorted by their keys: dump them with `ORDER BY`.
    columns : TableColumns
        The columns to read.
    text_keys : bool, optional
        True if keys are strings.
    null_values : sequence of str, optional
        Further texts that stand for null unless quoted, such as `NULL`. Without it, texts that programs write for null are
        refused, because a name can be spelled so too. An empty list reads them as names.
    taken_at : datetime, optional
        The time of the dump by the database's clock. Corrections need it; a dry run does not.
        A correction restores the claim of a row that gave up its name after the dump, because the dump still contains the name.

    Raises
    ------
    MisconfiguredError
        The file cannot be read. Or `text_keys` is set, and the key column has the ids of subjects, which are integers.
    """
    csv = Csv(_check_readable(path), columns, text_keys=text_keys, null_values=null_values)
    return DumpedTable(csv, columns, taken_at=taken_at)


def parquet_table(path: str | PathLike[str], columns: TableColumns, *, taken_at: datetime | None = None) -> DumpedTable:
    """Return the table that a Parquet file contains.

    Parameters
    ----------
    path : path
        The file. Its rows must be sorted by their keys.
    columns : TableColumns
        The columns to read.
    taken_at : datetime, optional
        The time of the dump by the database's clock. Corrections need it; a dry run does not.

    Raises
    ------
    MisconfiguredError
        The file cannot be read.
    """
    return DumpedTable(_Parquet(_check_readable(path), columns), columns, taken_at=taken_at)


def arrow_table(data: ArrowStream, columns: TableColumns, *, taken_at: datetime | None = None) -> DumpedTable:
    """Return the table that an Arrow stream contains, such as a table of polars, pandas, pyarrow or duckdb.

    Verification reads the rows more than once, but most streams export their rows only once. Data that is not a
    `pyarrow.Table` is therefore copied to a temporary file.

    Parameters
    ----------
    data : ArrowStream
        The rows, sorted by their keys.
    columns : TableColumns
        The columns to read.
    taken_at : datetime, optional
        The time at which the rows were read, by the database's clock. Corrections need it; a dry run does not.

    Raises
    ------
    RowsError
        The stream fails.
    """
    if isinstance(data, pa.Table):
        return DumpedTable(lambda _: data.to_reader(_BATCH_ROWS), columns, taken_at=taken_at)
    return DumpedTable(_SpooledStream(data, columns), columns, taken_at=taken_at)


class DumpedTable(Table):
    """The rows of a table at one point in time. `csv_table`, `parquet_table` and `arrow_table` create it."""

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
        """Return a stream of all rows of the dump, with only the read columns."""
        failures: list[Exception] = []
        with original_errors(failures), closing(self._open(failures)) as stream:
            check_subjects(self.columns, stream.schema)
            yield stream

    @contextmanager
    def reader(self) -> Iterator[RowReader]:
        """Return a reader of the dump's rows for one verification run."""
        failures: list[Exception] = []
        with original_errors(failures), closing(_ReopenableStream(self._open, failures)) as stream:
            yield _DumpReader(self, ArrowRows(stream, self.columns), self._taken_at or datetime.now(timezone.utc))

    def identity(self) -> Mapping[str, str]:
        """Return the kind of the dump's keys, without the path, so that a newer dump can continue from a checkpoint."""
        with self.scan() as stream:
            index = stream.schema.get_field_index(self.columns.key)
            return {"table": "a dump", "keys": _key_kind(stream.schema.field(index).type) if index >= 0 else BYTES}

    def age_seconds(self, now: datetime) -> float:
        """Return the age of the dump at `now`.

        Raises
        ------
        MisconfiguredError
            `taken_at` is missing or has no time zone.
        """
        if self._taken_at is None:
            raise MisconfiguredError("the time of the dump is unknown: pass it in `taken_at`")
        if self._taken_at.tzinfo is None:
            raise MisconfiguredError("`taken_at` has no time zone: pass an aware `datetime`")
        return (now - self._taken_at).total_seconds()

    def rows_of(self, ids: Sequence[bytes]) -> pa.Table:
        """Return the dump's rows with these keys. The method reads the dump until all are found."""
        batches = []
        with self.scan() as stream:
            schema, missing = stream.schema, len(ids)
            for batch in stream:
                rows = _rows_with_keys(batch, self.columns.key, ids)
                batches.append(rows)
                missing -= rows.num_rows
                if missing <= 0:
                    break
        return pa.Table.from_batches(batches, schema)


class _ReopenableStream:
    """A dump that exports a new Arrow stream, from its first row, on each call. A second scan needs a second stream."""

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

    # The parameter `step` is not used: `ArrowRows` reads the step from the run. A file does not change meanwhile.
    def feed(self, run: Verification, step: ReadRows, *, seconds_since_listing: float) -> None:  # noqa: ARG002
        run.arrow_rows(self._rows, now=self._now)

    def read_again(self, ids: Sequence[bytes]) -> pa.Table:
        return self._table.rows_of(ids)

    def feed_again(self, run: Verification, ids: Sequence[bytes], *, is_begun: bool) -> None:
        if is_begun:
            run.unchanged()
        else:
            run.arrow(self.read_again(ids), self._table.columns, now=self._now)


def _rows_with_keys(batch: pa.RecordBatch, key: str, ids: Sequence[bytes]) -> pa.RecordBatch:
    mask = _is_in(batch.column(key), ids)
    if not pc.any(mask).as_py():
        return batch.slice(0, 0)
    filterable = [pa.field(field.name, _FILTERABLE.get(field.type, field.type)) for field in batch.schema]
    return batch.cast(pa.schema(filterable)).filter(mask).cast(batch.schema)


def _is_in(keys: pa.Array, ids: Sequence[bytes]) -> pa.Array:
    if isinstance(keys, pa.ExtensionArray):
        keys = keys.storage
    if isinstance(keys, pa.DictionaryArray):
        keys = keys.cast(keys.type.value_type)
    if pa.types.is_integer(keys.type):
        # The service may have claims under keys of other kinds. No row has these keys.
        of_integers = [key for key in ids if len(key) == ENCODED_BYTES[INTEGERS]]
        integers = pa.array([int.from_bytes(key, "big") for key in of_integers], pa.uint64())
        return pc.is_in(keys.cast(pa.uint64(), safe=False), integers)
    if _is_text(keys.type):
        texts, uuids = decode_text_keys(ids)
        large = keys.cast(pa.large_string())
        is_text = pc.is_in(large, pa.array(texts, pa.large_string()))
        # Compare in lower case, because a UUID in text form may be spelled in upper case.
        is_uuid = pc.is_in(pc.utf8_lower(large), pa.array(uuids, pa.large_string()))
        return pc.or_(is_text, is_uuid)
    return pc.is_in(keys.cast(pa.large_binary()), pa.array(ids, pa.large_binary()))


def _key_kind(keys: pa.DataType) -> str:
    if pa.types.is_dictionary(keys):
        keys = keys.value_type
    if pa.types.is_integer(keys):
        return INTEGERS
    if keys == pa.uuid():
        return UUIDS
    return TEXTS if _is_text(keys) else BYTES


def _is_text(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type))


def _check_readable(path: str | PathLike[str]) -> Path:
    try:
        with Path(path).open("rb"):
            return Path(path)
    except OSError as error:
        raise MisconfiguredError(f"cannot read `{path}` ({error.strerror}): pass a readable file") from None


class _Parquet:
    """Opens streams of a Parquet file's rows, with only the read columns."""

    def __init__(self, path: Path, columns: TableColumns) -> None:
        self._path = path
        self._columns = columns
        self._names = column_names(columns)

    def __call__(self, failures: list[Exception]) -> pa.RecordBatchReader:
        file = self._open()
        check_columns(self._columns, file.schema_arrow.names)
        schema = pa.schema([file.schema_arrow.field(name) for name in self._names])
        return pa.RecordBatchReader.from_batches(schema, recorded(self._batches(file), failures))

    def _open(self) -> pq.ParquetFile:
        try:
            # A row group can be as large as the table. With `pre_buffer`, pyarrow would load all column chunks of a row group
            # at once. With a buffer size, it reads them page by page (pyarrow.parquet.ParquetFile, `buffer_size` and
            # `pre_buffer`). A damaged page that is not compressed is only noticed by its checksum, if it has one.
            return pq.ParquetFile(
                self._path,
                memory_map=False,
                buffer_size=_PARQUET_BUFFER_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
            )
        except pa.ArrowInvalid:
            raise MisconfiguredError(f"`{self._path}` is not a Parquet file: pass one") from None
        except (pa.ArrowException, OSError):
            raise self._damaged() from None

    def _batches(self, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
        with file:
            try:
                for batch in file.iter_batches(_BATCH_ROWS, columns=self._names):
                    # Select the columns again: for the name `a.b` pyarrow also reads the field `b` of a nested column `a`
                    # (pyarrow.parquet.ParquetFile, `columns`: "a column name may be a prefix of a nested field").
                    yield batch.select(self._names)
            except (pa.ArrowException, OSError):
                raise self._damaged() from None

    def _damaged(self) -> MisconfiguredError:
        return MisconfiguredError(f"`{self._path}` cannot be read to its end, because it is damaged: write the file again")


class _SpooledStream:
    """Copies the read columns of an Arrow stream to a temporary file, and opens streams of that file."""

    def __init__(self, data: ArrowStream, columns: TableColumns) -> None:
        if not hasattr(data, "__arrow_c_stream__"):
            raise TypeError(
                "the data is not an Arrow stream: pass an object with `__arrow_c_stream__`, such as a table of polars"
            )
        opened, self._path = tempfile.mkstemp(prefix="leasehold-rows")
        os.close(opened)
        # The temporary file lives as long as this object. `weakref.finalize` also runs at interpreter exit, unlike `__del__`.
        weakref.finalize(self, os.unlink, self._path)
        schema, batches = _batches(data)
        check_columns(columns, schema.names)
        names = column_names(columns)
        read = pa.schema([schema.field(name) for name in names])
        with pa.OSFile(self._path, "wb") as sink, pa.ipc.new_file(sink, read) as file:
            for batch in batches:
                file.write(batch.select(names))

    def __call__(self, failures: list[Exception]) -> pa.RecordBatchReader:
        file = pa.ipc.open_file(pa.OSFile(self._path))
        batches = (part for index in range(file.num_record_batches) for part in _split(file.get_batch(index)))
        return pa.RecordBatchReader.from_batches(file.schema, recorded(batches, failures))


def _batches(data: ArrowStream) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches of a user's stream."""
    with stream_errors():
        stream = pa.RecordBatchReader.from_stream(data)
    return stream.schema, _read(stream)


def _read(stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        with stream_errors():
            yield from stream
    # pyarrow raises `OSError` for a source that fails, whatever its own exception is.
    except (pa.ArrowException, OSError):
        raise RowsError("the stream failed before its end: check its source", code="INVALID_ROWS") from None


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, _BATCH_ROWS):
        yield batch.slice(start, _BATCH_ROWS)
