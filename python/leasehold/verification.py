"""Verification: compares the claims of one table with its rows and corrects the claims.

`Verification` is a state machine without I/O. The caller executes each step and reports the result.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from leasehold import _kinds as kinds
from leasehold import _native, times
from leasehold._arguments import representable, stream_errors
from leasehold._engine_claims import EngineClaims
from leasehold.claims import Claim, RecordPage
from leasehold.errors import LeaseholdError

_BUCKET_TYPES = kinds.iterable(kinds.INT32)


class ArrowStream(Protocol):
    """An object that exports an Arrow stream through the PyCapsule interface.

    Tables of polars, pandas, pyarrow and duckdb implement it; see "The Arrow PyCapsule Interface" at arrow.apache.org.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None, /) -> object:
        """Export the rows as a PyCapsule named `arrow_array_stream`."""


@dataclass(frozen=True)
class ClaimColumns:
    """The columns from which the claims of one bucket type are made.

    Attributes
    ----------
    bucket_type : int
        A `BucketType`.
    value : str
        The column of values: strings, or integers, which are claimed in decimal. A row whose value is null makes no claim.
    subject_type : int
        A `SubjectType`.
    subject : str
        The column of the ids of the subjects: integers.
    """

    bucket_type: int
    value: str
    subject_type: int
    subject: str


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table that verification reads.

    Attributes
    ----------
    key : str
        The column of the primary key: integers from 0, strings, or bytes from `encode_source_id`. Rows must be sorted by
        their encoded keys: integers and UUIDs by value, strings by their bytes.
    claims : sequence of ClaimColumns
        The claims of each row.
    updated_at : str, optional
        The column of the time of the last change, with a time zone. Null means unknown.
    assume_utc : bool, optional
        True if times without a time zone are UTC. Else they are refused.
    """

    key: str
    claims: Sequence[ClaimColumns]
    updated_at: str | None = None
    assume_utc: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table with the claims that it makes. For large tables, use Arrow instead.

    Attributes
    ----------
    source_id : bytes
        The primary key, encoded by `encode_source_id`.
    claims : sequence of Claim
        The claims of the row. Their sources are ignored.
    updated_at : datetime, optional
        The time of the last change; None means unknown.
    """

    source_id: bytes
    claims: Sequence[Claim] = ()
    updated_at: datetime | None = None

    @property
    def updated_micros(self) -> int | None:
        """The time of the row's last change in microseconds since 1970; None if it is unknown."""
        return None if self.updated_at is None else times.micros(self.updated_at)


@dataclass(frozen=True)
class FindBound:
    """A step of `Verification`: find the source id of the row that is `rows` rows after `after`. Answer with `bound`."""

    after: bytes
    rows: int


@dataclass(frozen=True)
class ListRecords:
    """A step of `Verification`: list the service's records after `after`, up to and including `upto`.

    Answer with `records` or `encoded_records`.
    """

    after: bytes
    upto: bytes


@dataclass(frozen=True)
class ReadRows:
    """A step of `Verification`: read the rows after `after`, up to and including `upto`.

    Answer with `rows`, `arrow` or `arrow_rows`.
    """

    after: bytes
    upto: bytes


@dataclass(frozen=True)
class ReadAgain:
    """A step of `Verification`: read these rows again, from the primary database. A replica may lag behind.

    Include rows outside the scope of the run, without claims. If an open transaction is writing a row, report the row as
    changed now. Answer with `rows` or `arrow`. After `begun`, answer with `unchanged` if the rows cannot have changed,
    as in a dump.
    """

    ids: tuple[bytes, ...]


@dataclass(frozen=True)
class Begin:
    """A step of `Verification`: begin an update. Answer with `begun`, `refused` or `failed`."""

    creates: Sequence[Claim]
    destroys: Sequence[Claim]


@dataclass(frozen=True)
class Commit:
    """A step of `Verification`: commit the lease of the update. Answer with `settled` or `failed`."""


@dataclass(frozen=True)
class RollBack:
    """A step of `Verification`: roll back the lease of the update. Answer with `settled` or `failed`."""


@dataclass(frozen=True)
class PageDone:
    """A step of `Verification`: a page has been compared. Answer with `proceed` or `stop`."""


@dataclass(frozen=True)
class Refused:
    """The last step of a `Verification` that would destroy too many claims. It makes no further correction.

    To let the run go on, pass its checkpoint and a larger `max_destroy_share`.

    Attributes
    ----------
    destroys : int
        The number of claims that the whole run would destroy.
    claims : int
        The number of the table's claims.
    needed_share : float
        The smallest share, in whole percents, that permits the run.
    """

    destroys: int
    claims: int
    needed_share: float


@dataclass(frozen=True)
class Done:
    """The last step of `Verification`: the run has reached the end of the table, or `stop` has ended it."""


Step = FindBound | ListRecords | ReadRows | ReadAgain | Begin | Commit | RollBack | PageDone | Refused | Done
"""A step of `Verification`: a request that the caller must execute and answer. An empty source id is an open bound."""

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
"""The outcome that a verification run reports for one claim."""


@dataclass(frozen=True)
class Finding:
    """The outcome that a verification run reports for one claim. It never contains the value.

    Attributes
    ----------
    outcome : str
        The result.
    bucket_type : int
        The bucket type of the claim.
    source_id : str
        The encoded key of the row, in hexadecimal.
    value_hash : str
        The hash of the canonical value under the seed of the run, as 16 hexadecimal digits.
    """

    outcome: Outcome
    bucket_type: int
    source_id: str
    value_hash: str


@dataclass(frozen=True)
class Report:
    """The counts of one verification run. A dry run counts the corrections that it would make.

    Attributes
    ----------
    dry_run : bool
        True if the run changed nothing.
    over_destroy_limit : bool
        True at the end of a dry run if a correcting run would be refused for `max_destroy_share`.
    pages_surveyed : int
        Key ranges that the run compared to count how many claims it would destroy.
    pages, rows, claims, records, updates : int
        Compared key ranges, rows read, claims that these rows make, records that the service listed, and updates sent.
        If the run scans the table a second time, the rows of that scan count again.
    rows_recent, records_recent, records_held : int
        Rows and records that the run skipped because they changed recently or a lease holds them.
    missing, different, extra : int
        Claims that the service lacks, claims that it stores differently, and stored claims that no row makes.
    created, replaced, destroyed : int
        Corrected claims.
    gone, invalid, other_cell, other_row, busy, changed, recent, failed : int
        Uncorrected claims, by reason.
    """

    dry_run: bool
    over_destroy_limit: bool
    pages: int
    pages_surveyed: int
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
    """The rows of a table, read once from an Arrow stream in key order.

    Memory holds one page and one batch of the stream. The engine reads the columns without a Python object per row and
    without the global interpreter lock. If too many names have moved between rows, the run needs a second scan and
    requests a new stream from the data.

    Parameters
    ----------
    data : ArrowStream
        The table, sorted by its encoded keys.
    columns : TableColumns
        The columns to read.

    Raises
    ------
    ColumnError
        A column is missing or of an unsupported type. Invalid values raise later, when the run reaches their batch.
    TypeError
        The data is not an Arrow stream.
    """

    def __init__(self, data: ArrowStream, columns: TableColumns) -> None:
        with stream_errors():
            self._rows = _native.ArrowRows(data, columns)

    def bound(self, after: bytes, rows: int) -> bytes | None:
        """Return the answer to the step `FindBound`.

        Parameters
        ----------
        after : bytes
            The source id after which rows are counted.
        rows : int
            The number of rows.

        Returns
        -------
        bytes or None
            The encoded key of the last counted row; None if fewer rows follow `after`.

        Raises
        ------
        ColumnError
            A value is invalid, or the rows are not sorted.
        RowsError
            The stream fails, or a second scan is needed and the data exports its stream only once.
        """
        return self._rows.bound(after, rows)


class Verification:
    """A run that compares the claims of one table with its rows and corrects the claims.

    The object does no I/O. Execute the step that `step` returns and report its result, until the step is `Done` or
    `Refused`. Use the object in one thread at a time.

    Parameters
    ----------
    source_type : int
        The table: a `SourceType`.
    bucket_types : iterable of int
        The bucket types that the rows claim.
    recent_within_seconds : float
        Rows and records that changed within this time are skipped: they may belong to an update in progress.
    rows_per_page : int, optional
        The number of rows per page.
    dry_run : bool, optional
        True to report differences without correcting them.
    max_destroy_share : float, optional
        The largest share of the table's claims that the run may destroy, from 0 to 1. Ten claims may be destroyed in any
        table. A run that would exceed both is refused (V11).
    hash_seed : int, optional
        The key of the hashes in findings, from 0 to 2**64 - 1. The default is random.
    checkpoint : str, optional
        The checkpoint of an earlier run, to continue it.

    Raises
    ------
    InvalidError
        The checkpoint is invalid, or a number is out of range.

    Examples
    --------
    The table has two rows. The service has no claims.

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
    >>> while not isinstance(step := run.step(), verification.Done | verification.Refused):
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
        max_destroy_share: float = 0.1,
        hash_seed: int | None = None,
        checkpoint: str | None = None,
    ) -> None:
        settings = {
            "source_type": kinds.INT32(source_type, "source_type"),
            "bucket_types": sorted(set(_BUCKET_TYPES(bucket_types, "bucket_types"))),
            "recent_within_micros": times.to_micros(kinds.SECONDS(recent_within_seconds, "recent_within_seconds")),
            "rows_per_page": kinds.PAGE_ROWS(rows_per_page, "rows_per_page"),
            "dry_run": kinds.flag(dry_run, "dry_run"),
            "max_destroy_share": float(kinds.SHARE(max_destroy_share, "max_destroy_share")),
            "hash_seed": secrets.randbits(64) if hash_seed is None else kinds.UINT64(hash_seed, "hash_seed"),
        }
        position = None if checkpoint is None else kinds.text(checkpoint, "checkpoint")
        self._run = _native.Verification(json.dumps(settings), position)

    def step(self) -> Step:
        """Return the run's current step. The step stays the same until the caller answers it."""
        name, *fields = self._run.step()
        step: Step = _STEPS[name](*fields)
        return step

    def bound(self, source_id: bytes | None) -> None:
        """Answer the step `FindBound` with the last source id of the page.

        Parameters
        ----------
        source_id : bytes or None
            The source id of the last row of the page; None if fewer rows follow.

        Raises
        ------
        OutOfTurnError
            The current step is not `FindBound`. The run is unchanged. Every answer raises this error out of turn.
        """
        self._run.bound(source_id)

    @representable
    def records(self, page: RecordPage) -> None:
        """Answer the step `ListRecords` with a page of records.

        Parameters
        ----------
        page : RecordPage
            The page that the service returned.

        Raises
        ------
        RowsError
            The records are not sorted, or lie outside the requested range.
        """
        self._run.records(list(page.records), page.truncated, times.micros(page.server_time))

    def encoded_records(self, answer: bytes, *, now: datetime) -> None:
        """Answer the step `ListRecords` with an encoded response, which saves a Python object per record.

        Parameters
        ----------
        answer : bytes
            A serialized `ListRecordsResponse`.
        now : datetime
            The service's time when it answered.

        Raises
        ------
        RowsError
            The bytes are not a `ListRecordsResponse`, or its records are not sorted or lie outside the requested range.
        """
        self._run.encoded_records(answer, times.micros(now))

    @representable
    def rows(self, rows: Iterable[Row], *, now: datetime) -> None:
        """Answer the step `ReadRows` or `ReadAgain` with Python objects. For large tables, use `arrow`.

        Parameters
        ----------
        rows : iterable of Row
            The rows that exist, sorted by their encoded keys.
        now : datetime
            The database's time before the page's records were listed, or before rows were read again.

        Raises
        ------
        RowsError
            The rows are not sorted, lie outside the requested range, or claim a bucket type that the run does not verify.
        """
        self._run.rows(list(rows), times.micros(now))

    def arrow(self, data: ArrowStream, columns: TableColumns, *, now: datetime) -> None:
        """Answer the step `ReadRows` or `ReadAgain` with an Arrow table that contains exactly the requested rows.

        Parameters
        ----------
        data : ArrowStream
            The rows that exist, sorted by their encoded keys.
        columns : TableColumns
            The columns to read.
        now : datetime
            The database's time before the page's records were listed, or before rows were read again.

        Raises
        ------
        RowsError
            See `rows`. An unreadable column raises a `ColumnError`.
        """
        with stream_errors():
            self._run.arrow(data, columns, times.micros(now))

    def arrow_rows(self, rows: ArrowRows, *, now: datetime) -> None:
        """Answer the step `ReadRows` with the next rows of an Arrow stream.

        Parameters
        ----------
        rows : ArrowRows
            The stream that also answered `FindBound`.
        now : datetime
            The database's clock; for a dump, the time when it was made.

        Raises
        ------
        RowsError
            See `rows`. An unreadable column raises a `ColumnError`.
        """
        self._run.arrow_rows(rows._rows, times.micros(now))  # noqa: SLF001

    def unchanged(self) -> None:
        """Answer the step `ReadAgain` after `begun`: the rows cannot have changed, for example because they are a dump."""
        self._run.unchanged()

    def begun(self) -> None:
        """Answer the step `Begin`: the service granted a lease."""
        self._run.begun()

    def settled(self) -> None:
        """Answer the step `Commit` or `RollBack`: the lease is settled as requested."""
        self._run.settled()

    def refused(self, error: LeaseholdError) -> None:
        """Answer the step `Begin`: the service refused the update.

        Parameters
        ----------
        error : LeaseholdError
            The refusal. Without `details` the whole update counts as failed, because no single claim is known to conflict.
        """
        if error.details:
            self._run.refused([(detail.list, detail.position, detail.code) for detail in error.details])
        else:
            self._run.failed()

    def failed(self) -> None:
        """Answer the step `Begin`, `Commit` or `RollBack`: the call failed, or its outcome is unknown."""
        self._run.failed()

    def proceed(self) -> None:
        """Answer the step `PageDone`: continue with the next page."""
        self._run.proceed()

    def stop(self) -> None:
        """Answer the step `PageDone`: end the run. Execute the remaining steps until `Done`, then store the checkpoint."""
        self._run.stop()

    def checkpoint(self) -> str | None:
        """Return the position from which a later run can continue; None if this run is complete.

        A checkpoint contains values of claims. Protect it like user data.
        """
        return self._run.checkpoint()

    def report(self) -> Report:
        """Return the counts of the run so far."""
        return Report(**json.loads(self._run.report()))

    def take_findings(self) -> list[Finding]:
        """Return and clear the findings since the last call. The run keeps at most 10,000 of them."""
        findings: list[dict[str, Any]] = json.loads(self._run.take_findings())
        return [Finding(**fields) for fields in findings]


_STEPS: dict[str, Any] = {
    "find_bound": FindBound,
    "list_records": ListRecords,
    "read_rows": ReadRows,
    "read_again": lambda ids: ReadAgain(tuple(ids)),
    "begin": lambda creates, destroys: Begin(EngineClaims(creates), EngineClaims(destroys)),
    "commit": Commit,
    "roll_back": RollBack,
    "page_done": PageDone,
    "refused": Refused,
    "done": Done,
}
