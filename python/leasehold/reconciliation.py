"""Reconciliation of a cell: commits or rolls back the leases that its crashed processes left outstanding.

`Reconciliation` is a state machine without I/O. The caller executes each step and reports the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from leasehold import _kinds as kinds
from leasehold import _native, times
from leasehold.claims import LeasePage

_DATED_LEASES = kinds.items(kinds.members({"lease": kinds.uuid, "created_at": kinds.UINT64}))
_ANSWER = kinds.word("done", "rolled_back", "committed", "not_found")


@dataclass(frozen=True)
class ListLeases:
    """A step of `Reconciliation`: list a page of the cell's outstanding leases from `cursor`. Answer with `leases`."""

    cursor: str | None


@dataclass(frozen=True)
class FindRows:
    """A step of `Reconciliation`: look up the local rows of these leases. Answer with `rows`: the rows that exist."""

    leases: tuple[str, ...]


@dataclass(frozen=True)
class LocalRow:
    """The row that a cell writes in the transaction of a save: the lease, and the database's time of the write."""

    uuid: str
    created_at: datetime


@dataclass(frozen=True)
class ListRows:
    """A step of `Reconciliation`: list local rows of at least `min_age_seconds`, by time and lease, after `after`.

    Answer with `rows`.
    """

    after: LocalRow | None
    min_age_seconds: float
    limit: int


@dataclass(frozen=True)
class Settle:
    """A step of `Reconciliation`: commit a lease or roll it back. Answer with `settled`."""

    lease: str
    outcome: Literal["committed", "rolled_back"]


@dataclass(frozen=True)
class DeleteRow:
    """A step of `Reconciliation`: delete the local row of a lease, if it exists. Answer with `deleted`.

    If `fate` is "lost", alert an operator first: the local transaction committed, but its claims were rolled back.
    """

    lease: str
    fate: Literal["committed", "lost", "forgotten"]


@dataclass(frozen=True)
class Done:
    """The last step of `Reconciliation`: the run has ended."""


Step = ListLeases | FindRows | ListRows | Settle | DeleteRow | Done
"""A step of `Reconciliation`: a request that the caller must execute and answer."""


@dataclass(frozen=True)
class Summary:
    """The counts of the actions of one reconciliation run.

    Attributes
    ----------
    leases_seen : int
        Leases that the service listed.
    committed, rolled_back : int
        Leases that the run settled.
    settled_meanwhile : int
        Leases that another process had settled in the meantime.
    looked_up : int
        Local rows whose lease the service no longer listed as outstanding.
    forgotten : int
        The subset of `looked_up` whose outcome the service no longer remembers.
    lost : tuple of str
        Leases that were rolled back although their local transaction committed. Their claims are gone.
    rows_deleted : int
        Deleted local rows.
    failed : int
        Failed steps. The next run repeats them.
    incomplete : bool
        True if a list step failed, so that the run did not see every lease or row.
    """

    leases_seen: int
    committed: int
    rolled_back: int
    settled_meanwhile: int
    looked_up: int
    forgotten: int
    lost: tuple[str, ...]
    rows_deleted: int
    failed: int
    incomplete: bool


class Reconciliation:
    """A run that settles the outstanding leases of a cell.

    The object does no I/O. Execute the step that `step` returns and report its result, until the step is `Done`.
    Use the object in one thread at a time.

    Parameters
    ----------
    stale_after_seconds : float
        The age at which a lease or a local row counts as abandoned.
    rows_per_page : int, optional
        The maximum number of local rows per `ListRows`.

    Raises
    ------
    InvalidError
        A number is out of range.

    Examples
    --------
    The service has one outstanding lease. No local row exists, so the run rolls the lease back.

    >>> from datetime import datetime, timedelta, timezone
    >>> from leasehold import LeasePage, OutstandingLease, reconciliation
    >>> now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    >>> old = now - timedelta(hours=1)
    >>> lease = OutstandingLease("01a1fefb-0383-7360-95c3-3b4e0d5dfab0", old, old)
    >>> run = reconciliation.Reconciliation(stale_after_seconds=600)
    >>> while not isinstance(step := run.step(), reconciliation.Done):
    ...     match step:
    ...         case reconciliation.ListLeases():
    ...             run.leases(LeasePage((lease,), None, now))
    ...         case reconciliation.Settle(outcome=outcome):
    ...             print(outcome)
    ...             run.settled("done")
    ...         case _:
    ...             run.rows([], now=now)
    rolled_back
    >>> run.summary().rolled_back
    1
    """

    def __init__(self, *, stale_after_seconds: float, rows_per_page: int = 1000) -> None:
        settings = {
            "stale_after_micros": times.to_micros(kinds.SECONDS(stale_after_seconds, "stale_after_seconds")),
            "rows_per_page": kinds.PAGE_ROWS(rows_per_page, "rows_per_page"),
        }
        self._run = _native.Reconciliation(json.dumps(settings))

    def step(self) -> Step:
        """Return the run's current step. The step stays the same until the caller answers it."""
        step = json.loads(self._run.step())
        match step.pop("step"):
            case "list_leases":
                return ListLeases(step["cursor"])
            case "find_rows":
                return FindRows(tuple(step["leases"]))
            case "list_rows":
                after = step["after"] and LocalRow(step["after"]["lease"], times.from_micros(step["after"]["created_at"]))
                return ListRows(after, step["min_age_micros"] / 1e6, step["limit"])
            case "settle":
                return Settle(step["lease"], "committed" if step["outcome"] == "Committed" else "rolled_back")
            case "delete_row":
                return DeleteRow(step["lease"], step["fate"])
            case _:
                return Done()

    def leases(self, page: LeasePage) -> None:
        """Answer the step `ListLeases` with a page of leases.

        Parameters
        ----------
        page : LeasePage
            The page that the service returned.

        Raises
        ------
        OutOfTurnError
            The current step is not `ListLeases`. The run is unchanged. Every answer raises this error out of turn.
        """
        leases = [{"lease": lease.uuid, "created_at": times.micros(lease.created_at)} for lease in page.leases]
        leases = _DATED_LEASES(leases, "page.leases")
        self._feed(event="leases", leases=leases, now=times.micros(page.server_time), cursor=page.cursor)

    def rows(self, rows: Iterable[LocalRow], *, now: datetime) -> None:
        """Answer the step `FindRows` or `ListRows` with local rows.

        Parameters
        ----------
        rows : iterable of LocalRow
            The rows that exist.
        now : datetime
            The database's clock at the time of the query.
        """
        local_rows = [{"lease": row.uuid, "created_at": times.micros(row.created_at)} for row in rows]
        local_rows = _DATED_LEASES(local_rows, "rows")
        self._feed(event="rows", rows=local_rows, now=times.micros(now))

    def settled(self, answer: Literal["done", "rolled_back", "committed", "not_found"]) -> None:
        """Answer the step `Settle` with the service's answer.

        Parameters
        ----------
        answer : {"done", "rolled_back", "committed", "not_found"}
            "done" if the lease has the requested outcome, from this call or an earlier one. Else the reason of the refusal.
        """
        self._feed(event="settled", answer=_ANSWER(answer, "answer"))

    def deleted(self) -> None:
        """Answer the step `DeleteRow`: the row is deleted, or did not exist."""
        self._feed(event="deleted")

    def failed(self) -> None:
        """Answer any step: it failed, or its outcome is unknown. The next run repeats the work of the step."""
        self._feed(event="failed")

    def summary(self) -> Summary:
        """Return the counts of the run so far."""
        counts: Mapping[str, Any] = json.loads(self._run.summary())
        return Summary(**{**counts, "lost": tuple(counts["lost"])})

    def _feed(self, **event: object) -> None:
        self._run.feed(json.dumps(event))
