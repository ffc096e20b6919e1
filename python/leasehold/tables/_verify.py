"""A table compared with the claims of its cell, and corrected where that is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

import pyarrow as pa

from leasehold import verification
from leasehold.calls import encode_source_id
from leasehold.client import Client, Update
from leasehold.errors import (
    CommittedError,
    DeniedError,
    LeaseholdError,
    MisconfiguredError,
    UnauthenticatedError,
)
from leasehold.tables._checkpoint import Origin
from leasehold.tables._table import RowReader, Table
from leasehold.verification import (
    Begin,
    Commit,
    FindBound,
    Finding,
    ListRecords,
    Outcome,
    PageDone,
    ReadAgain,
    ReadRows,
    Report,
    RollBack,
    TableColumns,
    Verification,
)

Failed = Callable[["Verified"], None]
"""Told what was done by a run that fails before its end."""

Progress = Callable[[Report], None]
"""Told after each page what was seen and done so far."""

# No row of any table would get through after these.
_FATAL = (MisconfiguredError, UnauthenticatedError, DeniedError)

# As far as the database's clock and the server's may differ.
_CLOCKS_APART_SECONDS = 300.0


@dataclass(frozen=True)
class Sample:
    """One claim of which a run has told.

    Attributes
    ----------
    finding : Finding
        What became of it, with its row in hexadecimal and its value as a hash.
    in_table, in_service : tuple of str
        What its row and the service have of that type now, the run being over; empty unless values were asked for.
    """

    finding: Finding
    in_table: tuple[str, ...] = ()
    in_service: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verified:
    """What came of a verification.

    Attributes
    ----------
    report : Report
        What was seen and done, in counts; in a dry run, what would be done.
    samples : tuple of Sample
        The first findings of each outcome. Claims that were created are told of in a dry run only.
    checkpoint : str or None
        Where another run can go on; None where nothing is left to do. It holds values of claims: keep it as user data.
    """

    report: Report
    samples: tuple[Sample, ...]
    checkpoint: str | None = field(repr=False)

    @property
    def is_finished(self) -> bool:
        """Whether the run got to the end of the table."""
        return self.checkpoint is None

    @property
    def is_clean(self) -> bool:
        """Whether the table and the service agree, as far as rows were not changed lately."""
        return not (self.report.missing or self.report.different or self.report.extra or self.report.invalid)


def verify_table(
    client: Client,
    table: Table,
    *,
    source_type: int,
    apply: bool = False,
    allow_empty: bool = False,
    recent_within_seconds: float = 3600.0,
    rows_per_page: int = 1000,
    samples_per_outcome: int = 10,
    show_values: bool = False,
    checkpoint: str | None = None,
    time_budget_seconds: float | None = None,
    progress: Progress | None = None,
    failed: Failed | None = None,
) -> Verified:
    """Compare a table with the claims of its cell; correct the claims only where that is asked for.

    Before anything is corrected, all rows are read once, so that a column that can't be read is told of before. One run at
    a time for one table: two would get in each other's way.

    Rows of a database are read again under the lease of each update; it is committed only for those that still bear it out.
    Nothing is written to the database: a run that is killed between begin and commit leaves a lease, which reconciliation
    rolls back. Until then its claims count as `records_held`, and a later run corrects them.

    Parameters
    ----------
    client : Client
        The way to the server, with the cell.
    table : Table
        The rows.
    source_type : int
        Which table it is to the server: a `SourceType`.
    apply : bool, optional
        Whether to correct the claims, by updates of 2,000 claims at most, each under an idempotency key of its own.
    allow_empty : bool, optional
        Whether a table without a row is believed, so that every claim made for it is given up.
    recent_within_seconds : float, optional
        What was changed within this time is left alone, on both sides. A dump that is corrected by may not be older.
    rows_per_page : int, optional
        How many rows to compare at a time.
    samples_per_outcome : int, optional
        How many findings to keep of each outcome.
    show_values : bool, optional
        Whether samples show values: names of people, perhaps. Else they are hashed, under a seed of the run.
    checkpoint : str, optional
        Where another run for the same cell, table, columns and claims has stopped, which corrected, or not, as this one.
    time_budget_seconds : float, optional
        After how long to stop, at the end of a page.
    progress : callable, optional
        Told after each page.
    failed : callable, optional
        Told what was done where the run fails after it has begun: the server has gone, for example. Then that is raised.

    Returns
    -------
    Verified
        Counts and samples.

    Raises
    ------
    ColumnError
        A column is missing, of another type, null, without a time zone, or not in order. Nothing was applied.
    MisconfiguredError
        The dump is too old to correct by, or nobody has said how old it is, or that is ahead, or there are no rows.
        Nothing was applied.
    InvalidError
        The checkpoint is none, or one of another run. Nothing was applied.
    DeniedError, UnauthenticatedError
        The client's certificate may not do this for its cell.
    LeaseholdError
        Records can't be listed.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from leasehold.tables import verify_table
    >>> from leasehold.tables.files import arrow_table
    >>> from leasehold.verification import ClaimColumns, TableColumns
    >>> columns = TableColumns(
    ...     key="id", claims=[ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "id")]
    ... )
    >>> users = arrow_table(pa.table({"id": [21, 22], "username": ["dan", "erin"]}), columns)
    >>> found = verify_table(client, users, source_type=SourceType.USERS)
    >>> found.report.missing, found.report.dry_run, found.samples[0].finding.outcome
    (2, True, 'created')
    """
    origin = Origin(client, table, source_type=source_type, apply=apply)
    run = Verification(
        source_type=source_type,
        bucket_types={claim.bucket_type for claim in table.columns.claims},
        recent_within_seconds=recent_within_seconds,
        rows_per_page=rows_per_page,
        dry_run=not apply,
        checkpoint=origin.unpack(checkpoint),
    )
    if apply:
        _check_age(client, table, recent_within_seconds)
        if table.check() == 0 and not allow_empty:
            raise MisconfiguredError(
                "the table has no rows, so that every claim made for it would be given up: see that it is the right one, "
                "and say `allow_empty` if so"
            )
    with table.reader() as rows:
        host = _Host(client, table.columns, rows, run, source_type, samples_per_outcome)
        try:
            host.follow(time_budget_seconds, progress)
        except BaseException:
            if failed is not None and (run.report().pages or run.report().updates):
                host.keep(None)
                found = tuple(Sample(finding) for finding in host.findings())
                failed(Verified(run.report(), found, origin.pack(run.checkpoint())))
            raise
        samples = tuple(host.shown() if show_values else (Sample(finding) for finding in host.findings()))
    return Verified(run.report(), samples, origin.pack(run.checkpoint()))


def _check_age(client: Client, table: Table, recent_within_seconds: float) -> None:
    # What was changed since a dump was made is told from drift only where it counts as changed lately.
    server_time = client.list_leases(limit=1).server_time
    age_seconds = table.age_seconds(server_time)
    if age_seconds is not None and age_seconds < -_CLOCKS_APART_SECONDS:
        raise MisconfiguredError(f"`taken_at` is {-age_seconds:.0f} s ahead of the server's clock: say when the dump was made")
    if age_seconds is not None and age_seconds > recent_within_seconds:
        raise MisconfiguredError(
            f"the dump is {age_seconds:.0f} s old, and what was changed since would be undone: make a new one, or raise "
            f"`recent_within_seconds`, which is {recent_within_seconds:.0f}"
        )


class _OvertakenError(Exception):
    """Rows no longer bear out what was begun for them."""


class _Host:
    """Does what a run asks for, and feeds back what came of it."""

    def __init__(
        self,
        client: Client,
        columns: TableColumns,
        rows: RowReader,
        run: Verification,
        source_type: int,
        samples_per_outcome: int,
    ) -> None:
        self._client = client
        self._columns = columns
        self._bucket_types = sorted({claim.bucket_type for claim in columns.claims})
        self._rows = rows
        self._run = run
        self._source_type = source_type
        self._limit = samples_per_outcome
        self._kept: dict[Outcome, list[Finding]] = {}

    def follow(self, time_budget_seconds: float | None, progress: Progress | None) -> None:
        """Go to the end, or as far as the budget goes."""
        start = time.monotonic()
        while not isinstance(step := self._run.step(), verification.Done):
            if not isinstance(step, PageDone):
                self._take(step)
                continue
            self.keep(progress)
            is_over = time_budget_seconds is not None and time.monotonic() - start > time_budget_seconds
            if is_over:
                self._run.stop()
            else:
                self._run.proceed()
        self.keep(progress)

    def findings(self) -> Iterator[Finding]:
        """Give the first findings of each outcome."""
        for some in self._kept.values():
            yield from some

    def shown(self) -> Iterator[Sample]:
        """Give the same with what the table and the service have now."""
        found = list(self.findings())
        ids = sorted({bytes.fromhex(finding.source_id) for finding in found})
        in_table = self._values(self._rows.read_again(ids)) if ids else {}
        for finding in found:
            place = (bytes.fromhex(finding.source_id), finding.bucket_type)
            yield Sample(finding, tuple(in_table.get(place, ())), self._in_service(*place))

    def _take(self, step: verification.Step) -> None:
        match step:
            case FindBound(after, count):
                self._run.bound(self._rows.bound(after, count))
            case ListRecords(after, upto):
                page = self._client.list_records(self._source_type, self._bucket_types, after=after, upto=upto)
                self._run.encoded_records(page.encoded, now=page.server_time)
            case ReadRows():
                self._rows.feed(self._run, step)
            case ReadAgain(ids):
                self._rows.feed_again(self._run, ids, is_begun=False)
            case Begin():
                self._update(step)

    def _update(self, step: Begin) -> None:
        update = self._client.update(creates=step.creates, destroys=step.destroys)
        try:
            with update:
                self._run.begun()
                self._bear_out()
        except _OvertakenError:
            self._run.settled()
        except LeaseholdError as error:
            self._fail(update, error)
        except BaseException:
            # The block has rolled back what was not to be committed yet.
            if isinstance(self._run.step(), Commit):
                self._was_committed(update)
            raise
        else:
            self._run.settled()

    def _bear_out(self) -> None:
        # The rows were read before the lease was taken. Who changes one of them from now on finds its claim under it.
        while isinstance(step := self._run.step(), ReadAgain):
            self._rows.feed_again(self._run, step.ids, is_begun=True)
        if isinstance(step, RollBack):
            raise _OvertakenError

    def _fail(self, update: Update, error: LeaseholdError) -> None:
        """Tell the run of a begin or a commit that failed; raise what else has."""
        if isinstance(error, _FATAL):
            raise error
        match self._run.step():
            case Begin():
                self._run.refused(error)
            case Commit() if self._was_committed(update):
                self._run.settled()
            case Commit():
                self._run.failed()
            case _:
                raise error

    def _was_committed(self, update: Update) -> bool:
        # No row depends on this lease, so that a rollback is right wherever the commit was not done: and it tells.
        try:
            self._client.rollback(update.uuid)
        except CommittedError:
            return True
        except LeaseholdError:
            # It is left to reconciliation.
            return False
        return False

    def keep(self, progress: Progress | None) -> None:
        """Take what was found since, and tell how far it is."""
        for finding in self._run.take_findings():
            some = self._kept.setdefault(finding.outcome, [])
            if len(some) < self._limit:
                some.append(finding)
        if progress is not None:
            progress(self._run.report())

    def _values(self, rows: pa.Table) -> dict[tuple[bytes, int], list[str]]:
        found: dict[tuple[bytes, int], list[str]] = {}
        for row in rows.to_pylist():
            key = row[self._columns.key]
            if isinstance(key, UUID):
                key = str(key)
            source_id = key if isinstance(key, bytes) else encode_source_id(key)
            for claim in self._columns.claims:
                if row[claim.value] is not None:
                    found.setdefault((source_id, claim.bucket_type), []).append(str(row[claim.value]))
        return found

    def _in_service(self, source_id: bytes, bucket_type: int) -> tuple[str, ...]:
        pages = self._client.records(self._source_type, [bucket_type], after=_before(source_id), upto=source_id)
        ours = (record for record in pages if record.claim.source is not None and record.claim.source.id == source_id)
        return tuple(record.claim.bucket_value for record in ours)


def _before(source_id: bytes) -> bytes:
    """Give a source id that is a little less."""
    if source_id[-1] == 0:
        return source_id[:-1]
    return source_id[:-1] + bytes([source_id[-1] - 1])
