"""`verify_table`: drives a verification run with a table and a client."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from leasehold import verification
from leasehold.client import Client, ReceivedPage, Update
from leasehold.errors import (
    CommittedError,
    DeniedError,
    LeaseholdError,
    MisconfiguredError,
    UnauthenticatedError,
)
from leasehold.tables._checkpoint import RunIdentity
from leasehold.tables._keys import TEXTS, is_of_kind, kind_of
from leasehold.tables._samples import Sample, Sampler
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
    Refused,
    Report,
    RollBack,
    Verification,
)

_LOG = logging.getLogger("leasehold")

OnFailure = Callable[["VerificationResult"], None]
"""A function that receives the partial result of a verification that fails before its end."""

OnProgress = Callable[[Report], None]
"""A function that receives the counts of a verification after each page."""

# Exceptions that every later update of the run would raise too. They end the run instead of being counted per claim.
_FATAL = (MisconfiguredError, UnauthenticatedError, DeniedError)

# The tolerated difference between the database's clock and the server's clock, in seconds.
_MAX_CLOCK_SKEW_SECONDS = 300.0


@dataclass(frozen=True)
class VerificationResult:
    """The result of `verify_table`.

    Attributes
    ----------
    report : Report
        The counts of the run. A dry run counts the corrections that it would make.
    samples : tuple of Sample
        The first findings of each outcome. Created claims appear only in a dry run.
    checkpoint : str or None
        The position for a later run; None if the run is complete. It contains values of claims: protect it like user
        data.
    """

    report: Report
    samples: tuple[Sample, ...]
    checkpoint: str | None = field(repr=False)

    @property
    def is_finished(self) -> bool:
        """True if the verification reached the end of the table."""
        return self.checkpoint is None

    @property
    def is_clean(self) -> bool:
        """True if the table and the service agree, apart from rows that changed recently."""
        return not (self.report.missing or self.report.different or self.report.extra or self.report.invalid)


def verify_table(
    client: Client,
    table: Table,
    *,
    source_type: int,
    apply: bool = False,
    allow_empty: bool = False,
    max_destroy_share: float = 0.1,
    recent_within_seconds: float = 3600.0,
    rows_per_page: int = 1000,
    samples_per_outcome: int = 10,
    show_values: bool = False,
    checkpoint: str | None = None,
    time_budget_seconds: float | None = None,
    stop: threading.Event | None = None,
    on_progress: OnProgress | None = None,
    on_failure: OnFailure | None = None,
) -> VerificationResult:
    """Compare a table with the claims of its cell, and correct the claims if `apply` is set. The table never changes.

    A correcting run first reads and validates all rows, so that an unreadable column raises before any correction. Run
    one verification per table at a time: concurrent runs would block each other's claims.

    Each update re-reads its database rows under its lease, and commits only corrections that the rows still require. The
    run writes nothing to the database. If the process is killed between begin and commit, reconciliation rolls the lease
    back. Until then, other runs count the lease's claims in `records_held` and skip them; a later run corrects them.

    Parameters
    ----------
    client : Client
        The client of the cell that owns the table.
    table : Table
        The table.
    source_type : int
        The source type of the claims: a `SourceType`.
    apply : bool, optional
        True to correct the claims, by updates of at most 2,000 claims, each with its own idempotency key.
    allow_empty : bool, optional
        True to accept a table without rows, and so destroy all of its claims.
    max_destroy_share : float, optional
        The largest share of the table's claims that the run may destroy, from 0 to 1. A run that would destroy more stops
        before that, but may always destroy ten (V11).
    recent_within_seconds : float, optional
        Rows and records that changed within this time are skipped. With `apply`, a dump must not be older.
    rows_per_page : int, optional
        The number of rows per page.
    samples_per_outcome : int, optional
        The maximum number of samples of each outcome.
    show_values : bool, optional
        True to include values in samples. Values may be personal data.
    checkpoint : str, optional
        The checkpoint of an earlier run with the same cell, table, columns, claims and `apply`.
    time_budget_seconds : float, optional
        The time after which the run stops at the end of a page.
    stop : threading.Event, optional
        An event that stops the run at the end of a page, once it is set.
    on_progress : callable, optional
        A function that receives the counts after each page.
    on_failure : callable, optional
        A function that receives the partial result if the run fails, for example because the server goes down. The
        exception is raised afterwards.

    Returns
    -------
    VerificationResult
        The counts, the samples and the checkpoint.

    Raises
    ------
    ColumnError
        A column is missing, of an unsupported type, null, without a time zone, or not sorted. No claim was changed.
    MisconfiguredError
        With `apply`: the age of the dump is unknown, negative or over `recent_within_seconds`, or the table has no rows.
        No claim was changed. Or the run would destroy more than `max_destroy_share` of the claims, and stopped before
        that. Or `max_destroy_share` is not from 0 to 1.
    InvalidError
        The checkpoint is invalid or belongs to a run with other settings. No claim was changed.
    DeniedError, UnauthenticatedError
        The client's certificate does not permit these calls for the cell.
    LeaseholdError
        The server fails to list records.

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
    >>> found.report.missing, found.report.dry_run
    (2, True)
    >>> found.samples[0].key, found.samples[0].reason
    (21, 'the service has no claim for this value')
    """
    if not 0 <= max_destroy_share <= 1:
        raise MisconfiguredError(f"`max_destroy_share` is {max_destroy_share}: set it to a share from 0 to 1")
    identity = RunIdentity(client, table, source_type=source_type, apply=apply)
    position = identity.unpack(checkpoint)
    if apply:
        _check_dump_age(client, table, recent_within_seconds)
        if table.check() == 0:
            if not allow_empty:
                raise MisconfiguredError(
                    "the table has no rows, so all of its claims would be destroyed: check the table, and set `allow_empty` "
                    "to proceed"
                )
            max_destroy_share = 1.0
    bucket_types = sorted({claim.bucket_type for claim in table.columns.claims})
    key_kind = table.key_kind
    _warn_of_other_keys(client.list_records(source_type, bucket_types), key_kind)
    run = Verification(
        source_type=source_type,
        bucket_types=bucket_types,
        recent_within_seconds=recent_within_seconds,
        rows_per_page=rows_per_page,
        dry_run=not apply,
        max_destroy_share=max_destroy_share,
        checkpoint=position,
    )
    sampler = Sampler(table.columns, key_kind, source_type)
    with table.reader() as rows:
        driver = _Driver(client, bucket_types, rows, run, source_type, samples_per_outcome, max_destroy_share)
        try:
            driver.run(time_budget_seconds, stop, on_progress)
            samples = sampler.explained(driver.findings(), rows, client if show_values else None)
        except BaseException:
            if on_failure is not None and (run.report().pages or run.report().updates):
                driver.collect_findings()
                samples = sampler.plain(driver.findings())
                on_failure(VerificationResult(run.report(), samples, identity.pack(run.checkpoint())))
            raise
    return VerificationResult(run.report(), samples, identity.pack(run.checkpoint()))


def _check_dump_age(client: Client, table: Table, recent_within_seconds: float) -> None:
    # A claim that changed after the dump looks like drift, unless it counts as recent: then both sides are skipped (V02).
    # So the dump must not be older than `recent_within_seconds`.
    server_time = client.list_leases(limit=1).server_time
    age_seconds = table.age_seconds(server_time)
    if age_seconds is not None and age_seconds < -_MAX_CLOCK_SKEW_SECONDS:
        raise MisconfiguredError(f"`taken_at` is {-age_seconds:.0f} s ahead of the server's clock: pass the time of the dump")
    if age_seconds is not None and age_seconds > recent_within_seconds:
        raise MisconfiguredError(
            f"the dump is {age_seconds:.0f} s old, so later changes would be reverted: make a new dump, or raise "
            f"`recent_within_seconds` from {recent_within_seconds:.0f}"
        )


def _warn_of_other_keys(page: ReceivedPage, key_kind: str) -> None:
    # A number and its decimal text are different keys. If the numbers of a table arrive as texts, the run replaces each claim.
    ids = [record.claim.source.id for record in page.records if record.claim.source is not None]
    others = [kind_of(source_id, key_kind) for source_id in ids if not is_of_kind(source_id, key_kind)]
    if len(others) * 2 > len(ids):
        _LOG.warning(
            "the keys of the table are %s, but those of most claims are %s: read the key column in the type that the cell's "
            "own program uses, or the run replaces these claims",
            # A string in the form of a UUID is encoded as that UUID.
            "strings" if key_kind == TEXTS else key_kind,
            others[0],
        )


class _RowsChangedError(Exception):
    """The rows of an update changed before the lease began, so the lease must be rolled back."""


class _Driver:
    """Executes the steps of one verification run, and reports their results to the run."""

    def __init__(
        self,
        client: Client,
        bucket_types: Sequence[int],
        rows: RowReader,
        run: Verification,
        source_type: int,
        samples_per_outcome: int,
        max_destroy_share: float,
    ) -> None:
        self._client = client
        self._max_destroy_share = max_destroy_share
        self._bucket_types = bucket_types
        self._rows = rows
        self._run = run
        self._source_type = source_type
        self._samples_per_outcome = samples_per_outcome
        self._findings: dict[Outcome, list[Finding]] = {}
        # The monotonic clock's time just before the last request for records.
        self._listed_at = time.monotonic()

    def run(self, time_budget_seconds: float | None, stop: threading.Event | None, on_progress: OnProgress | None) -> None:
        """Execute the run until it ends, the time budget is spent, or the event is set."""
        start = time.monotonic()
        while not isinstance(step := self._run.step(), verification.Done):
            if not isinstance(step, PageDone):
                self._execute(step)
                continue
            self._end_page(on_progress)
            is_over = time_budget_seconds is not None and time.monotonic() - start > time_budget_seconds
            if is_over or (stop is not None and stop.is_set()):
                self._run.stop()
            else:
                self._run.proceed()
        self._end_page(on_progress)

    def findings(self) -> list[Finding]:
        """Return the first findings of each outcome, up to `samples_per_outcome`."""
        return [finding for findings in self._findings.values() for finding in findings]

    def _execute(self, step: verification.Step) -> None:
        match step:
            case FindBound(after, count):
                self._run.bound(self._rows.bound(after, count))
            case ListRecords(after, upto):
                self._listed_at = time.monotonic()
                page = self._client.list_records(self._source_type, self._bucket_types, after=after, upto=upto)
                self._run.encoded_records(page.encoded, now=page.server_time)
            case ReadRows():
                self._rows.feed(self._run, step, seconds_since_listing=time.monotonic() - self._listed_at)
            case ReadAgain(ids):
                self._rows.feed_again(self._run, ids, is_begun=False)
            case Begin():
                self._update(step)
            case Refused(destroys, claims, needed_share):
                raise MisconfiguredError(
                    f"the run would destroy {destroys} of the table's {claims} claims, more than the share of "
                    f"{self._max_destroy_share}: check the table with a dry run, and set `max_destroy_share` to "
                    f"{needed_share} to proceed",
                    code="TOO_MANY_DESTROYS",
                )

    def _update(self, step: Begin) -> None:
        update = self._client.update(creates=step.creates, destroys=step.destroys)
        try:
            with update:
                self._run.begun()
                self._recheck_rows()
        except _RowsChangedError:
            # The end of the `with` block has rolled the lease back. Report this to the run.
            self._run.settled()
        except LeaseholdError as error:
            self._report_failure(update, error)
        except BaseException:
            # An interrupt before the step `Commit` made the `with` statement roll the lease back. An interrupt during the
            # commit leaves its outcome unknown, so try a rollback before the exception propagates.
            if isinstance(self._run.step(), Commit):
                self._was_committed(update)
            raise
        else:
            self._run.settled()

    def _recheck_rows(self) -> None:
        # The run read the rows before the lease began, so they may have changed since. From now on the lease holds the claims,
        # and a save that changes one of the rows is refused as busy (B03). A second read under the lease is therefore final.
        while isinstance(step := self._run.step(), ReadAgain):
            self._rows.feed_again(self._run, step.ids, is_begun=True)
        if isinstance(step, RollBack):
            raise _RowsChangedError

    def _report_failure(self, update: Update, error: LeaseholdError) -> None:
        """Report a failed `Begin` or `Commit` to the run. Raise the error if another step failed, or all updates would."""
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
        # The outcome of the commit is unknown. A rollback decides it: the rollback fails with `CommittedError` if the commit
        # took effect (B23). The rollback is safe, because no row of the database depends on this lease.
        try:
            self._client.rollback(update.uuid)
        except CommittedError:
            return True
        except LeaseholdError:
            # Neither commit nor rollback got an answer. The lease stays outstanding until reconciliation.
            return False
        return False

    def _end_page(self, on_progress: OnProgress | None) -> None:
        self.collect_findings()
        if on_progress is not None:
            on_progress(self._run.report())

    def collect_findings(self) -> None:
        """Move the run's new findings into the samples, up to the limit of each outcome."""
        for finding in self._run.take_findings():
            findings = self._findings.setdefault(finding.outcome, [])
            if len(findings) < self._samples_per_outcome:
                findings.append(finding)
