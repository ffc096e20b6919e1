"""What a cell does about leases that were never settled."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from leasehold import _native, times
from leasehold.claims import LeasePage


@dataclass(frozen=True)
class ListLeases:
    """List a page of the cell's outstanding leases, from a cursor on; answer `leases`."""

    cursor: str | None


@dataclass(frozen=True)
class FindRows:
    """Find the local rows of these leases; answer `rows` with those that are there."""

    leases: tuple[str, ...]


@dataclass(frozen=True)
class LocalRow:
    """The row that a cell writes in the transaction of a lease: its uuid, and when it was written, by the database."""

    uuid: str
    created_at: datetime


@dataclass(frozen=True)
class ListRows:
    """List at most `limit` local rows of at least an age, after one by age and lease; answer `rows`."""

    after: LocalRow | None
    min_age_seconds: float
    limit: int


@dataclass(frozen=True)
class Settle:
    """Commit a lease or roll it back; answer `settled`."""

    lease: str
    outcome: Literal["committed", "rolled_back"]


@dataclass(frozen=True)
class DeleteRow:
    """Delete a local row, if it is there; answer `deleted`. Say a lost lease to people before."""

    lease: str
    fate: Literal["committed", "lost", "forgotten"]


@dataclass(frozen=True)
class Done:
    """The run is over."""


Step = ListLeases | FindRows | ListRows | Settle | DeleteRow | Done
"""What a run asks for."""


@dataclass(frozen=True)
class Summary:
    """What a run has done, in counts.

    Attributes
    ----------
    leases_seen : int
        Leases that the service listed.
    committed, rolled_back : int
        Leases that the run settled.
    settled_meanwhile : int
        Leases that somebody else had settled by then.
    looked_up : int
        Local rows whose lease was settled before.
    forgotten : int
        Of these, those of which nobody knows how.
    lost : tuple of str
        Leases that were rolled back though their rows are there: their claims are gone.
    rows_deleted : int
        Local rows that were deleted.
    failed : int
        Steps that failed and are left for the next run.
    incomplete : bool
        Whether a list failed, so that not all was looked at.
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
    """A run that settles what a cell left outstanding.

    It never calls out: take the step that `step` says, feed back what came of it, until it is `Done`. One thread at a time.

    Parameters
    ----------
    stale_after_seconds : float
        The age from which a lease or a local row is given up.
    rows_per_page : int, optional
        How many local rows to list at a time.

    Examples
    --------
    One lease that nobody settled, and no local row: it is rolled back.

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
        settings = {"stale_after_micros": times.span(stale_after_seconds), "rows_per_page": rows_per_page}
        self._run = _native.Reconciliation(json.dumps(settings))

    def step(self) -> Step:
        """Return what to do next: the same until it is answered."""
        step = json.loads(self._run.step())
        match step.pop("step"):
            case "list_leases":
                return ListLeases(step["cursor"])
            case "find_rows":
                return FindRows(tuple(step["leases"]))
            case "list_rows":
                after = step["after"] and LocalRow(step["after"]["lease"], times.at(step["after"]["created_at"]))
                return ListRows(after, step["min_age_micros"] / 1e6, step["limit"])
            case "settle":
                return Settle(step["lease"], "committed" if step["outcome"] == "Committed" else "rolled_back")
            case "delete_row":
                return DeleteRow(step["lease"], step["fate"])
            case _:
                return Done()

    def leases(self, page: LeasePage) -> None:
        """Answer `ListLeases`.

        Parameters
        ----------
        page : LeasePage
            The page, as the service gave it.

        Raises
        ------
        OutOfTurnError
            It was not asked for. The run is as before; so it is with every answer.
        """
        leases = [{"lease": one.uuid, "created_at": times.micros(one.created_at)} for one in page.leases]
        self._feed(event="leases", leases=leases, now=times.micros(page.server_time), cursor=page.cursor)

    def rows(self, rows: Iterable[LocalRow], *, now: datetime) -> None:
        """Answer `FindRows` or `ListRows`.

        Parameters
        ----------
        rows : iterable of LocalRow
            Those that are there.
        now : datetime
            The database's time when it answered.
        """
        given = [{"lease": one.uuid, "created_at": times.micros(one.created_at)} for one in rows]
        self._feed(event="rows", rows=given, now=times.micros(now))

    def settled(self, answer: Literal["done", "rolled_back", "committed", "not_found"]) -> None:
        """Answer `Settle`.

        Parameters
        ----------
        answer : {"done", "rolled_back", "committed", "not_found"}
            "done" where the service did as told, now or before; else how it refused.
        """
        self._feed(event="settled", answer=answer)

    def deleted(self) -> None:
        """Answer `DeleteRow`: the row is gone."""
        self._feed(event="deleted")

    def failed(self) -> None:
        """Answer any step: it failed, or nobody knows what came of it. That is left for the next run."""
        self._feed(event="failed")

    def summary(self) -> Summary:
        """Return what was done so far."""
        members: Mapping[str, Any] = json.loads(self._run.summary())
        return Summary(**{**members, "lost": tuple(members["lost"])})

    def _feed(self, **event: object) -> None:
        self._run.feed(json.dumps(event))
