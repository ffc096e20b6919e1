"""The rule that decides if the end of a `with` block commits its lease, rolls it back, or leaves it outstanding."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from leasehold.claims import Claim, Lease
from leasehold.errors import LeaseholdError, UnavailableError

_LOG = logging.getLogger("leasehold")


class LeaseEnd(enum.Enum):
    """The action that settles a lease, or leaves it outstanding, when its `with` block ends."""

    COMMIT = 1
    ROLL_BACK = 2
    LEAVE_OUTSTANDING = 3


class LeaseScope:
    """State shared by `Update` and `AsyncUpdate`: the lease of a block, and the state of the local transaction."""

    def __init__(
        self,
        creates: Sequence[Claim],
        destroys: Sequence[Claim],
        organization_id: int | None,
        key: str,
        timeout_seconds: float | None,
    ) -> None:
        self._begin_arguments = (creates, destroys, organization_id, key, timeout_seconds)
        self._timeout_seconds = timeout_seconds
        self._lease: Lease | None = None
        self._decided_end: LeaseEnd | None = None

    @property
    def lease(self) -> Lease:
        """The lease. It exists after the block has begun."""
        if self._lease is None:
            raise RuntimeError("the lease has not begun: enter the update by `with`")
        return self._lease

    @property
    def uuid(self) -> str:
        """The id of the lease. Write it into the row of the lease in the cell's own database."""
        return self.lease.uuid

    @property
    def fence(self) -> int:
        """The fencing number of the lease, larger than the fence of every earlier lease."""
        return self.lease.fence

    @contextmanager
    def local_commit(self) -> Iterator[None]:
        """Mark the COMMIT of the caller's own transaction. The block must contain nothing else."""
        # INVARIANT: an interrupted or failed COMMIT is never treated as an abort (R02). While the block runs, the outcome
        # of the COMMIT is unknown, so only reconciliation may settle the lease. No `finally`: an exception must keep
        # this state.
        self._decided_end = LeaseEnd.LEAVE_OUTSTANDING
        yield
        self._decided_end = LeaseEnd.COMMIT

    def _end_after(self, error: BaseException | None) -> LeaseEnd:
        if self._decided_end is not None:
            return self._decided_end
        return LeaseEnd.COMMIT if error is None else LeaseEnd.ROLL_BACK


def may_have_begun(error: BaseException) -> bool:
    """Return True if a begin that raised this error may have created a lease.

    No answer arrived, or an interrupt (`KeyboardInterrupt`, `asyncio.CancelledError`) ended the wait for it.
    """
    if isinstance(error, LeaseholdError):
        return error.outcome_is_unknown
    return not isinstance(error, Exception)


def settlement_abandoned(lease_uuid: str) -> LeaseholdError:
    """Return the error for a lease whose commit or rollback was cancelled before its answer arrived."""
    error = UnavailableError("the call was cancelled before its answer arrived", code="CANCELLED")
    error.lease_uuid = lease_uuid
    error.outcome_is_unknown = True
    return error


def report_unsettled(error: BaseException, failure: LeaseholdError) -> None:
    """Log a lease that could not be settled, and add a note about it to the exception that is being raised."""
    name = (
        f"lease {failure.lease_uuid}" if failure.lease_uuid else f"the lease with the idempotency key {failure.idempotency_key}"
    )
    message = f"{name} may be outstanding until reconciliation settles it: {failure}"
    _LOG.warning(message)
    # `BaseException.add_note` exists since Python 3.11 (PEP 678); the package supports 3.10.
    if hasattr(error, "add_note"):
        error.add_note(message)
