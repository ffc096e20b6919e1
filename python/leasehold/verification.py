"""The claims of one table compared with its rows, and corrected."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from leasehold import _native, times
from leasehold._engine_claims import EngineClaims
from leasehold.claims import Claim, RecordPage
from leasehold.errors import LeaseholdError


class ArrowStream(Protocol):
    """Whatever streams an Arrow table: tables of polars, pandas, pyarrow, duckdb and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None, /) -> object:
        """Export the stream as a capsule."""


@dataclass(frozen=True)
class ClaimColumns:
    """Which columns of a table say what its rows claim of one bucket type.

    Attributes
    ----------
    bucket_type : int
        A `BucketType`.
    value : str
        The column of values: texts, or integers, which are claimed in decimal. A row whose value is null claims nothing.
    subject_type : int
        A `SubjectType`.
    subject : str
        The column of subjects' ids: integers.
    """

    bucket_type: int
    value: str
    subject_type: int
    subject: str


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table are read.

    Attributes
    ----------
    key : str
        The primary key: integers of 0 or more, texts, or bytes as `encode_source_id` gives them. Rows have to come in the
        order of their encoded keys, which is that of integers, of UUIDs, and of the bytes of texts.
    claims : sequence of ClaimColumns
        What rows claim.
    updated_at : str, optional
        When a row was last changed: times with a time zone. Null where that is not known.
    assume_utc : bool, optional
        Whether times without a time zone are taken for UTC, and not refused.
    """

    key: str
    claims: Sequence[ClaimColumns]
    updated_at: str | None = None
    assume_utc: bool = False


@dataclass(frozen=True)
class Row:
    """A row with its claims, where rows are few.

    Attributes
    ----------
    source_id : bytes
        Its key, as `encode_source_id` gives it.
    claims : sequence of Claim
        What it claims; sources are not looked at.
    updated_at : datetime, optional
        When it was last changed, where that is known.
    """

    source_id: bytes
    claims: Sequence[Claim] = ()
    updated_at: datetime | None = None

    @property
    def updated_micros(self) -> int | None:
        """When it was last changed, in microseconds since 1970."""
        return None if self.updated_at is None else times.micros(self.updated_at)


@dataclass(frozen=True)
class FindBound:
    """Find the source id of the row that is `rows` rows after `after`; answer `bound`."""

    after: bytes
    rows: int


@dataclass(frozen=True)
class ListRecords:
    """List a page of the service's records beyond `after` and up to `upto`; answer `records` or `encoded_records`."""

    after: bytes
    upto: bytes


@dataclass(frozen=True)
class ReadRows:
    """Read the rows beyond `after` and up to `upto`; answer `rows`, `arrow` or `arrow_rows`."""

    after: bytes
    upto: bytes


@dataclass(frozen=True)
class ReadAgain:
    """Read these rows once more, from where nothing lags behind, those that are out of scope too, which claim nothing.

    Answer `rows` or `arrow`; once an update is begun, where nobody can have changed them, `unchanged`. A row that is being
    written counts as changed just now.
    """

    ids: tuple[bytes, ...]


@dataclass(frozen=True)
class Begin:
    """Begin an update; answer `begun`, `refused` or `failed`."""

    creates: Sequence[Claim]
    destroys: Sequence[Claim]


@dataclass(frozen=True)
class Commit:
    """Commit what was begun; answer `settled` or `failed`."""


@dataclass(frozen=True)
class RollBack:
    """Roll back what was begun; answer `settled` or `failed`."""


@dataclass(frozen=True)
class PageDone:
    """A page is compared: `proceed`, or `stop`."""


@dataclass(frozen=True)
class Done:
    """The run is over, or has stopped."""


Step = FindBound | ListRecords | ReadRows | ReadAgain | Begin | Commit | RollBack | PageDone | Done
"""What a run asks for. An empty source id bounds nothing."""

Outcome = Literal[
    "created",
    "replaced",
    "destroyed",
    "gone",
    "invalid",
    "other_cell",
    "other_row",
    "busy",
    "changed",
    "recent",
    "failed",
]
"""What can become of a claim."""


@dataclass(frozen=True)
class Finding:
    """What became of one claim. It shows no value.

    Attributes
    ----------
    outcome : str
        What became of it.
    bucket_type : int
        Its bucket type.
    source_id : str
        Its row, in hexadecimal.
    value_hash : str
        The canonical value's hash under the run's seed, as 16 hexadecimal digits.
    """

    outcome: Outcome
    bucket_type: int
    source_id: str
    value_hash: str


@dataclass(frozen=True)
class Report:
    """What a run has seen and done, in counts; in a dry run, what it would do.

    Attributes
    ----------
    dry_run : bool
        Whether nothing was changed.
    pages, rows, claims, records, updates : int
        Ranges that were compared, rows that were read, claims that they call for, records that the service listed, and
        updates that were sent. What had to be looked at again counts twice.
    rows_recent, records_recent, records_held : int
        What was left alone: changed lately, or under a lease.
    missing, different, extra : int
        Claims that the service lacks, that it has otherwise, and that no row calls for.
    created, replaced, destroyed : int
        Claims that were corrected.
    gone, invalid, other_cell, other_row, busy, changed, recent, failed : int
        Claims that were not, by why.
    """

    dry_run: bool
    pages: int
    rows: int
    claims: int
    records: int
    updates: int
    rows_recent: int
    records_recent: int
    records_held: int
    missing: int
    different: int
    extra: int
    created: int
    replaced: int
    destroyed: int
    gone: int
    invalid: int
    other_cell: int
    other_row: int
    busy: int
    changed: int
    recent: int
    failed: int


class ArrowRows:
    """The rows of a table as an Arrow stream brings them, from first to last.

    Memory is that of a page, and of what the stream brings at a time. Columns go into the engine without an object a row,
    while other threads run. Where so many names have moved that a run looks at rows again, the data is asked for its stream
    once more.

    Parameters
    ----------
    data : ArrowStream
        The table, in the order of its encoded keys.
    columns : TableColumns
        Which of its columns are read.

    Raises
    ------
    ColumnError
        A column is missing, or of a type that can't be read. What is wrong with single values is told when they are reached.
    TypeError
        The data is no Arrow stream.
    """

    def __init__(self, data: ArrowStream, columns: TableColumns) -> None:
        self._rows = _native.ArrowRows(data, columns)

    def bound(self, after: bytes, rows: int) -> bytes | None:
        """Return the answer to `FindBound`: the key of the row that is so many rows on, None where fewer are left.

        Parameters
        ----------
        after : bytes
            Count the rows after this source id.
        rows : int
            How many.

        Returns
        -------
        bytes or None
            The encoded key.

        Raises
        ------
        ColumnError
            A value can't be read, or rows are not in order.
        RowsError
            The stream fails, or rows are to be read again and the data gives its stream only once.
        """
        return self._rows.bound(after, rows)


class Verification:
    """A run that compares the claims of one table with its rows, and corrects them.

    It never calls out: take the step that `step` says, feed back what came of it, until it is `Done`. One thread at a time.

    Parameters
    ----------
    source_type : int
        The table: a `SourceType`.
    bucket_types : iterable of int
        What its rows claim.
    recent_within_seconds : float
        What was changed within this time is left alone.
    rows_per_page : int, optional
        How many rows to compare at a time.
    dry_run : bool, optional
        Whether to report only.
    hash_seed : int, optional
        Keys the hashes of values in findings, from 0 to 2**64 - 1; random unless told.
    checkpoint : str, optional
        Where another run has stopped.

    Raises
    ------
    InvalidError
        The checkpoint is none.

    Examples
    --------
    A table with two rows, and a service that knows of none.

    >>> from datetime import datetime, timezone
    >>> import pyarrow as pa
    >>> from leasehold import BucketType, RecordPage, SourceType, SubjectType, verification
    >>> now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    >>> table = pa.table({"id": [7, 8], "username": ["alice", "bob"]})
    >>> username = verification.ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "id")
    >>> rows = verification.ArrowRows(table, verification.TableColumns(key="id", claims=[username]))
    >>> run = verification.Verification(
    ...     source_type=SourceType.USERS, bucket_types=[BucketType.USERNAMES], recent_within_seconds=3600
    ... )
    >>> while not isinstance(step := run.step(), verification.Done):
    ...     match step:
    ...         case verification.FindBound(after, count):
    ...             run.bound(rows.bound(after, count))
    ...         case verification.ListRecords():
    ...             run.records(RecordPage((), False, now))
    ...         case verification.ReadRows():
    ...             run.arrow_rows(rows, now=now)
    ...         case verification.Begin(creates=creates):
    ...             print([claim.bucket_value for claim in creates])
    ...             run.begun()
    ...         case verification.ReadAgain():
    ...             run.unchanged()
    ...         case verification.Commit():
    ...             run.settled()
    ...         case _:
    ...             run.proceed()
    ['alice', 'bob']
    >>> run.report().created
    2
    """

    def __init__(
        self,
        *,
        source_type: int,
        bucket_types: Iterable[int],
        recent_within_seconds: float,
        rows_per_page: int = 1000,
        dry_run: bool = False,
        hash_seed: int | None = None,
        checkpoint: str | None = None,
    ) -> None:
        settings = {
            "source_type": source_type,
            "bucket_types": sorted(set(bucket_types)),
            "recent_within_micros": times.span(recent_within_seconds),
            "rows_per_page": rows_per_page,
            "dry_run": dry_run,
            "hash_seed": secrets.randbits(64) if hash_seed is None else hash_seed,
        }
        self._run = _native.Verification(json.dumps(settings), checkpoint)

    def step(self) -> Step:
        """Return what to do next: the same until it is answered."""
        name, *members = self._run.step()
        step: Step = _STEPS[name](*members)
        return step

    def bound(self, source_id: bytes | None) -> None:
        """Answer `FindBound`.

        Parameters
        ----------
        source_id : bytes or None
            The source id of the row that ends the page; None where fewer rows are left.

        Raises
        ------
        OutOfTurnError
            It was not asked for. The run is as before; so it is with every answer.
        """
        self._run.bound(source_id)

    def records(self, page: RecordPage) -> None:
        """Answer `ListRecords`.

        Parameters
        ----------
        page : RecordPage
            The page, as the service gave it.

        Raises
        ------
        RowsError
            The records are out of order, or out of the range that was asked for.
        """
        self._run.records(list(page.records), page.truncated, times.micros(page.server_time))

    def encoded_records(self, answer: bytes, *, now: datetime) -> None:
        """Answer `ListRecords` with what came off the wire, which costs no object a record.

        Parameters
        ----------
        answer : bytes
            A `ListRecordsResponse`, encoded.
        now : datetime
            The service's time when it answered.

        Raises
        ------
        RowsError
            It is no such answer, or the records are out of order, or out of the range that was asked for.
        """
        self._run.encoded_records(answer, times.micros(now))

    def rows(self, rows: Iterable[Row], *, now: datetime) -> None:
        """Answer `ReadRows` or `ReadAgain`, where rows are few.

        Parameters
        ----------
        rows : iterable of Row
            The rows that are there, in the order of their encoded keys.
        now : datetime
            The database's time when it answered.

        Raises
        ------
        RowsError
            The rows are out of order or range, or claim a bucket type that the run was not set up with.
        """
        self._run.rows(list(rows), times.micros(now))

    def arrow(self, data: ArrowStream, columns: TableColumns, *, now: datetime) -> None:
        """Answer `ReadRows` or `ReadAgain` with a table that has just the rows that were asked for.

        Parameters
        ----------
        data : ArrowStream
            The rows that are there, in the order of their encoded keys.
        columns : TableColumns
            Which of its columns are read.
        now : datetime
            The database's time when it answered.

        Raises
        ------
        RowsError
            As `rows`; a `ColumnError` where a column can't be read.
        """
        self._run.arrow(data, columns, times.micros(now))

    def arrow_rows(self, rows: ArrowRows, *, now: datetime) -> None:
        """Answer `ReadRows` with the next rows of a stream.

        Parameters
        ----------
        rows : ArrowRows
            The stream, which also answers `FindBound`.
        now : datetime
            The database's time: for a dump, when it was made.

        Raises
        ------
        RowsError
            As `rows`; a `ColumnError` where a column can't be read.
        """
        self._run.arrow_rows(rows._rows, times.micros(now))  # noqa: SLF001

    def unchanged(self) -> None:
        """Answer `ReadAgain` once an update is begun: nobody can have changed the rows since, as they are those of a dump."""
        self._run.unchanged()

    def begun(self) -> None:
        """Answer `Begin`: it is begun."""
        self._run.begun()

    def settled(self) -> None:
        """Answer `Commit` or `RollBack`: that is done."""
        self._run.settled()

    def refused(self, error: LeaseholdError) -> None:
        """Answer `Begin`: it was refused.

        Parameters
        ----------
        error : LeaseholdError
            The refusal. Without `details` the update has failed: nobody is known to be in the way.
        """
        if error.details:
            self._run.refused([(one.list, one.position, one.code) for one in error.details])
        else:
            self._run.failed()

    def failed(self) -> None:
        """Answer `Begin`, `Commit` or `RollBack`: it failed otherwise, or nobody knows what came of it."""
        self._run.failed()

    def proceed(self) -> None:
        """Go on after `PageDone`."""
        self._run.proceed()

    def stop(self) -> None:
        """End the run after `PageDone`: go on until it is `Done`, then keep the checkpoint."""
        self._run.stop()

    def checkpoint(self) -> str | None:
        """Return where a run could go on, None where nothing is left to do. It holds values: keep it as user data."""
        return self._run.checkpoint()

    def report(self) -> Report:
        """Return what was seen and done so far."""
        return Report(**json.loads(self._run.report()))

    def take_findings(self) -> list[Finding]:
        """Return what became of single claims since the last call; the run keeps 10,000 at the most."""
        findings: list[dict[str, Any]] = json.loads(self._run.take_findings())
        return [Finding(**members) for members in findings]


_STEPS: dict[str, Any] = {
    "find_bound": FindBound,
    "list_records": ListRecords,
    "read_rows": ReadRows,
    "read_again": lambda ids: ReadAgain(tuple(ids)),
    "begin": lambda creates, destroys: Begin(EngineClaims(creates), EngineClaims(destroys)),
    "commit": Commit,
    "roll_back": RollBack,
    "page_done": PageDone,
    "done": Done,
}
