"""The interface of the tables that `verify_table` reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone

import pyarrow as pa

from leasehold import verification
from leasehold.claims import RecordPage
from leasehold.errors import RowsError, column_error
from leasehold.verification import ArrowRows, FindBound, ListRecords, ReadRows, TableColumns, Verification

# The most columns that the error of a missing column lists, as in `python/src/columns.rs`.
_MAX_LISTED_COLUMNS = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class RowReader(ABC):
    """Reads the rows of a table for one run, in key order."""

    @abstractmethod
    def bound(self, after: bytes, rows: int) -> bytes | None:
        """Return the source id of the row that is `rows` rows after `after`; None if fewer rows follow."""

    @abstractmethod
    def feed(self, run: Verification, step: ReadRows, *, seconds_since_listing: float) -> None:
        """Answer `ReadRows` of the run with the rows in the requested range.

        The records of the range were requested `seconds_since_listing` ago.
        """

    @abstractmethod
    def read_again(self, ids: Sequence[bytes]) -> pa.Table:
        """Return the rows that now have these keys, sorted by their encoded keys. Deleted rows are missing."""

    @abstractmethod
    def feed_again(self, run: Verification, ids: Sequence[bytes], *, is_begun: bool) -> None:
        """Answer `ReadAgain` of the run with the rows with these keys.

        `is_begun` is true if the run holds a lease. Rows that an open transaction is writing count as changed now.
        """


class Table(ABC):
    """A table whose rows make claims.

    Attributes
    ----------
    columns : TableColumns
        The columns to read.
    """

    columns: TableColumns

    @abstractmethod
    def scan(self) -> AbstractContextManager[pa.RecordBatchReader]:
        """Return a stream of all rows of the table, with only the read columns, sorted by their encoded keys."""

    @abstractmethod
    def reader(self) -> AbstractContextManager[RowReader]:
        """Return a reader of the table's rows for one verification run."""

    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Return the name of the table and the kind of its keys. A checkpoint is valid only for an equal identity."""

    @property
    def key_kind(self) -> str:
        """The kind of the table's keys, on which their encoding depends: "integers", "UUIDs", "texts" or "bytes"."""
        return self.identity()["keys"]

    def age_seconds(self, now: datetime) -> float | None:
        """Return the age of the table's rows at `now`; None if the rows are read live from the database.

        Raises
        ------
        MisconfiguredError
            The table is a dump whose time is unknown.
        """
        del now
        return None

    def check(self) -> int:
        """Read and validate all rows of the table without comparing them. Return the number of rows.

        Raises
        ------
        ColumnError
            A column is missing, of an unsupported type, null, without a time zone, or not sorted.
        """
        bucket_types = {claim.bucket_type for claim in self.columns.claims}
        # Run a dry run against an empty service: it validates every row like the correcting run, and begins no update.
        run = Verification(source_type=1, bucket_types=bucket_types, recent_within_seconds=0, rows_per_page=8192, dry_run=True)
        no_records = RecordPage((), False, _EPOCH)  # noqa: FBT003 - a field of a value
        with self.scan() as stream:
            rows = ArrowRows(stream, self.columns)
            while not isinstance(step := run.step(), verification.Done):
                match step:
                    case FindBound(after, count):
                        run.bound(rows.bound(after, count))
                    case ListRecords():
                        run.records(no_records)
                    case ReadRows():
                        run.arrow_rows(rows, now=_EPOCH)
                    case _:
                        run.proceed()
        return run.report().rows


def recorded(batches: Iterable[pa.RecordBatch], failures: list[Exception]) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of a stream, and append the exception that ends it to `failures`; see `original_errors`."""
    try:
        yield from batches
    except Exception as error:
        failures.append(error)
        raise


@contextmanager
def original_errors(failures: list[Exception]) -> Iterator[None]:
    """Raise the original exception of a failed stream instead of a `RowsError` that only contains its text.

    The C interface of an Arrow stream returns an error code and a message (`get_last_error`), so the exception object is
    lost. The stream therefore appends the exception to `failures`, with `recorded`.
    """
    try:
        yield
    except RowsError:
        if failures:
            raise failures[0] from None
        raise


def column_names(columns: TableColumns) -> list[str]:
    """Return the names of the columns to read, each once. The first is the key column."""
    names = [columns.key, *(name for claim in columns.claims for name in (claim.value, claim.subject))]
    return list(dict.fromkeys([*names, *([columns.updated_at] if columns.updated_at else [])]))


def check_columns(columns: TableColumns, found: Sequence[str]) -> None:
    """Check that a table with the columns `found` has each of the columns to read, once.

    Raises
    ------
    ColumnMissingError
        A column is missing or duplicated.
    """
    for name in column_names(columns):
        if name not in found:
            raise column_error("COLUMN_MISSING", name, f"the column `{name}` is missing: the table has {_list(found)}")
        if found.count(name) > 1:
            raise column_error("COLUMN_MISSING", name, f"the column `{name}` is duplicated: rename one of them")


def check_subjects(columns: TableColumns, schema: pa.Schema) -> None:
    """Check that the columns with the ids of subjects have integers, before anything is said about the keys.

    Raises
    ------
    ColumnTypeError
        A column has another type. A missing column is the fault of `check_columns`.
    """
    for name in {claim.subject: None for claim in columns.claims}:
        index = schema.get_field_index(name)
        found = schema.field(index).type if index >= 0 else pa.null()
        values = found.value_type if pa.types.is_dictionary(found) else found
        if not pa.types.is_integer(values) and not pa.types.is_null(values):
            message = f"the column `{name}` has the ids of subjects, so it must contain integers, not `{found}`: cast it"
            raise column_error("COLUMN_TYPE", name, message)


def _list(names: Sequence[str]) -> str:
    if not names:
        return "no columns"
    more = len(names) - _MAX_LISTED_COLUMNS
    listed = ", ".join(f"`{name}`" for name in names[:_MAX_LISTED_COLUMNS])
    return f"the columns {listed} and {more} more" if more > 0 else f"the columns {listed}"
