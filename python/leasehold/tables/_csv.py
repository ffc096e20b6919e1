"""CSV files as streams of Arrow batches."""

from __future__ import annotations

import csv
import io
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from leasehold.errors import ColumnError, MisconfiguredError, RowsError, column_error
from leasehold.tables import _csv_times
from leasehold.tables._table import check_columns, column_names, recorded
from leasehold.verification import TableColumns

_BLOCK_BYTES = 1 << 20
_COLUMN = re.compile(r"In CSV column #(\d+)")
_ROW = re.compile(r"Row #(\d+)")
# The refused value, if it is an integer.
_INTEGER = re.compile(r"invalid value '\s*(\d{1,100})\s*'$")
_MAX_INTEGER = 2**63 - 1
# pyarrow counts rows from 1, the header included. The extension counts them from 0, without the header.
_FIRST_ROW = 2
# Texts that programs write in place of a null: MySQL and PostgreSQL, SQL Server, R, pandas, Python. They are no Arrow
# array: making one imports pandas, if it is installed, which takes longer than all else at the start of a command.
_NULL_MARKERS = ("\\N", "NULL", "null", "NA", "<NA>", "NaN", "nan", "None")


class _TerminatedFile(io.RawIOBase):
    """The bytes of a file, and a last line that the file does not have."""

    def __init__(self, path: Path, last_line: str) -> None:
        self._file = path.open("rb", buffering=0)
        # Lines without a character are no rows, so the file may end with a line's end or without one.
        self._end = io.BytesIO(f"\n{last_line}\n".encode())

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._file.readinto(buffer) or self._end.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class Csv:
    """Opens streams of a CSV file's rows, with only the read columns."""

    def __init__(self, path: Path, columns: TableColumns, *, text_keys: bool, null_values: Sequence[str] | None) -> None:
        if text_keys and any(claim.subject == columns.key for claim in columns.claims):
            raise MisconfiguredError(
                f"the column `{columns.key}` is the key and a subject, whose ids are integers: omit `text_keys`, or name the "
                "column with the ids of the subjects"
            )
        self._path = path
        self._columns = columns
        self._null_values = null_values
        types = {claim.value: pa.string() for claim in columns.claims}
        types.update({claim.subject: pa.int64() for claim in columns.claims})
        types[columns.key] = pa.string() if text_keys else pa.int64()
        if columns.updated_at is not None:
            types[columns.updated_at] = pa.string()
        self._types = types
        # A key that no row has: integers of rows are not negative, and nobody guesses the text.
        self._end_key = secrets.token_hex() if text_keys else -(2**63) + secrets.randbits(62)

    def __call__(self, failures: list[Exception]) -> pa.RecordBatchReader:
        header, has_rows = self._begin()
        check_columns(self._columns, header)
        schema = pa.schema([(name, self._types[name]) for name in column_names(self._columns)])
        if self._columns.updated_at is not None:
            at = schema.get_field_index(self._columns.updated_at)
            schema = schema.set(at, pa.field(self._columns.updated_at, self._time_type))
        batches = self._converted(self._batches(header)) if has_rows else iter(())
        return pa.RecordBatchReader.from_batches(schema, recorded(batches, failures))

    @property
    def _time_type(self) -> pa.DataType:
        return pa.timestamp("us", tz=None if self._columns.assume_utc else "UTC")

    def _begin(self) -> tuple[list[str], bool]:
        """Return the header, and False if no row follows it: pyarrow refuses a header without a line's end."""
        # This read needs the first two lines only, but the file object decodes a whole buffer. `replace` ignores invalid UTF-8
        # here; the parser reports it later, with the name of the column.
        with self._path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            # A header that ends within quotes is an error in the strict mode only.
            rows = filter(None, csv.reader(file, strict=True))
            try:
                header = next(rows, [])
            except csv.Error:
                raise self._unreadable("in its header") from None
            try:
                return header, next(rows, None) is not None
            except csv.Error:
                return header, True

    def _batches(self, header: list[str]) -> Iterator[pa.RecordBatch]:
        options = {
            "read_options": pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            "parse_options": pyarrow.csv.ParseOptions(newlines_in_values=True),
            "convert_options": pyarrow.csv.ConvertOptions(
                column_types=self._types,
                include_columns=column_names(self._columns),
                null_values=["", *(self._null_values or ())],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        }
        try:
            with _TerminatedFile(self._path, self._end_row(header)) as file, pyarrow.csv.open_csv(file, **options) as reader:
                yield from self._complete(reader)
        except pa.ArrowInvalid as error:
            raise self._parse_error(header, str(error)) from None

    def _end_row(self, header: list[str]) -> str:
        """Return a line with the key of the end row, and no other value."""
        return ",".join(str(self._end_key) if name == self._columns.key else "" for name in header)

    def _complete(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that ends with the end row, without the end row.

        pyarrow closes an open quote at the end of a file. The end row is then a part of the quoted text.
        """
        last, rows = None, 0
        for batch in filter(len, batches):
            if last is not None:
                yield last
            last, rows = batch, rows + batch.num_rows
        if last is None or last[self._columns.key][-1].as_py() != self._end_key:
            advice = "make the dump again if it was cut off, or close the quote"
            raise RowsError(f"`{self._path}` ends within quotes in row {max(rows - 1, 0)}: {advice}", code="INVALID_ROWS")
        yield last.slice(0, last.num_rows - 1)

    def _converted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Refuse texts that may stand for nulls, and convert the times of the batches."""
        first = 0
        for batch in batches:
            if self._null_values is None:
                self._check_null_markers(batch, first)
            yield self._with_times(batch, first)
            first += batch.num_rows

    def _check_null_markers(self, batch: pa.RecordBatch, first: int) -> None:
        for name in (field.name for field in batch.schema if field.type == pa.string()):
            row = pc.index(pc.is_in(batch[name], pa.array(_NULL_MARKERS)), pa.scalar(value=True)).as_py()
            if row >= 0:
                raise column_error(
                    "COLUMN_VALUE",
                    name,
                    f"the column `{name}` has `{batch[name][row]}` in row {first + row}: set `null_values` to the texts that "
                    "stand for null, or to an empty list if it is a name",
                )

    def _with_times(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        name = self._columns.updated_at
        if name is None:
            return batch
        times = _csv_times.parse(batch[name], self._time_type, name, first)
        return batch.set_column(batch.schema.get_field_index(name), pa.field(name, self._time_type), times)

    def _parse_error(self, header: list[str], message: str) -> RowsError | ColumnError:
        # No error may contain a claimed value (V09), but pyarrow's message quotes it ("invalid value '…'"). pyarrow raises
        # `ArrowInvalid` for every parse error, so the column, the row and the cause must be read from the message.
        column, row = _COLUMN.search(message), _ROW.search(message)
        place = f"in row {int(row[1]) - _FIRST_ROW}" if row else ""
        if column is None and "straddl" in message:
            problem = f"a row over {_BLOCK_BYTES:,} bytes or an unclosed quote"
            return RowsError(f"`{self._path}` has {problem}: omit large columns, or close the quote", code="INVALID_ROWS")
        if column is None:
            return self._unreadable(place)
        name = header[int(column[1])]
        if "UTF8" in message:
            problem = "has text that is not UTF-8"
            return column_error("COLUMN_VALUE", name, f"the column `{name}` {problem} {place}: convert the file to UTF-8")
        integer = _INTEGER.search(message)
        if integer is not None and int(integer[1]) > _MAX_INTEGER:
            problem = f"has an integer that is too large {place}: the largest is 2^63-1, {_MAX_INTEGER}"
            return column_error("COLUMN_VALUE", name, f"the column `{name}` {problem}")
        advice = "correct it, or set `text_keys` if keys are strings" if name == self._columns.key else "correct it"
        return column_error("COLUMN_TYPE", name, f"the column `{name}` has a value that is no integer {place}: {advice}")

    def _unreadable(self, place: str) -> RowsError:
        where = f" {place}" if place else ""
        return RowsError(f"`{self._path}` is not a valid CSV file{where}: check quotes and columns", code="INVALID_ROWS")
