"""What verification asks of a table, wherever that is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from uuid import UUID

import pyarrow as pa

from leasehold import verification
from leasehold.claims import RecordPage
from leasehold.errors import RowsError
from leasehold.verification import ArrowRows, FindBound, ListRecords, ReadRows, TableColumns, Verification

_START = datetime(1970, 1, 1, tzinfo=timezone.utc)


class RowReader(ABC):
    """Reads a table for one run, from first to last."""

    @abstractmethod
    def bound(self, after: bytes, rows: int) -> bytes | None:
        """Find the source id of the row that is so many rows after another; None where fewer are left."""

    @abstractmethod
    def feed(self, run: Verification, step: ReadRows) -> None:
        """Hand the rows of a range to the run."""

    @abstractmethod
    def read_again(self, ids: Sequence[bytes]) -> pa.Table:
        """Read single rows once more, in the order of their encoded keys; those that are gone are not in it."""

    @abstractmethod
    def feed_again(self, run: Verification, ids: Sequence[bytes], *, is_begun: bool) -> None:
        """Hand single rows to the run once more, under a lease or before one; those that are being written are recent."""


class Table(ABC):
    """A table whose rows claim names.

    Attributes
    ----------
    columns : TableColumns
        Which of its columns are read.
    """

    columns: TableColumns

    @abstractmethod
    def scan(self) -> AbstractContextManager[pa.RecordBatchReader]:
        """Stream the columns that are read, of all rows, in the order of their encoded keys."""

    @abstractmethod
    def reader(self) -> AbstractContextManager[RowReader]:
        """Open the table for one run."""

    @abstractmethod
    def origin(self) -> Mapping[str, str]:
        """Tell which table it is, and of which kind its keys are: a checkpoint is for that one alone."""

    def age_seconds(self, now: datetime) -> float | None:
        """Tell how old the rows are; None where they are read as they are, 0 seconds old.

        Raises
        ------
        MisconfiguredError
            Nobody has said it.
        """
        del now
        return None

    def check(self) -> int:
        """Read all rows once, compare them with nothing, and tell how many there are.

        Raises
        ------
        ColumnError
            A column is missing, of another type, null, without a time zone, or not in order.
        """
        bucket_types = {claim.bucket_type for claim in self.columns.claims}
        run = Verification(source_type=1, bucket_types=bucket_types, recent_within_seconds=0, rows_per_page=8192, dry_run=True)
        nothing = RecordPage((), False, _START)  # noqa: FBT003 - a value's member
        with self.scan() as stream:
            rows = ArrowRows(stream, self.columns)
            while not isinstance(step := run.step(), verification.Done):
                match step:
                    case FindBound(after, count):
                        run.bound(rows.bound(after, count))
                    case ListRecords():
                        run.records(nothing)
                    case ReadRows():
                        run.arrow_rows(rows, now=_START)
                    case _:
                        run.proceed()
        return run.report().rows


@contextmanager
def told(failures: list[Exception]) -> Iterator[None]:
    """Raise what a stream has noted: through Arrow's interface an exception comes as a text."""
    try:
        yield
    except RowsError:
        if failures:
            raise failures[0] from None
        raise


def wanted(columns: TableColumns) -> list[str]:
    """Name the columns that are read, each once."""
    names = [columns.key, *(name for claim in columns.claims for name in (claim.value, claim.subject))]
    return list(dict.fromkeys([*names, *([columns.updated_at] if columns.updated_at else [])]))


def texts_of(ids: Iterable[bytes]) -> tuple[list[str], list[str]]:
    """Give the texts that are encoded as these: themselves, and UUIDs in lower case."""
    ids = list(ids)
    return [one.decode(errors="replace") for one in ids], [str(UUID(bytes=one)) for one in ids if len(one) == 16]
