"""What is to become of a lease, by what became of the caller's own work."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from leasehold.claims import Claim, Lease
from leasehold.errors import LeaseholdError, UnavailableError

_LOG = logging.getLogger("leasehold")


class Fate(enum.Enum):
    """What is to be done with a lease when its block ends."""

    COMMIT = 1
    ROLL_BACK = 2
    LEAVE = 3


class Held:
    """A lease for a block, and what is known of the transaction that goes with it."""

    def __init__(self, creates: Sequence[Claim], destroys: Sequence[Claim], key: str, timeout_seconds: float | None) -> None:
        self._wanted = (creates, destroys, key, timeout_seconds)
        self._timeout_seconds = timeout_seconds
        self._lease: Lease | None = None
        self._fate: Fate | None = None

    @property
    def lease(self) -> Lease:
        """The lease, once the block has begun."""
        if self._lease is None:
            raise RuntimeError("there is no lease before the block begins: enter it by `with`")
        return self._lease

    @property
    def uuid(self) -> str:
        """The name by which the lease is settled; the row for it in the cell's database has it, too."""
        return self.lease.uuid

    @property
    def fence(self) -> int:
        """The lease's number, larger than that of every lease before."""
        return self.lease.fence

    @contextmanager
    def local_commit(self) -> Iterator[None]:
        """Surround the COMMIT of the caller's own transaction, and nothing else."""
        # Whoever is interrupted from here on does not know what became of it.
        self._fate = Fate.LEAVE
        yield
        self._fate = Fate.COMMIT

    def _fate_after(self, error: BaseException | None) -> Fate:
        if self._fate is not None:
            return self._fate
        return Fate.COMMIT if error is None else Fate.ROLL_BACK


def may_have_begun(error: BaseException) -> bool:
    """Whether a begin that failed like this may have taken effect: no answer came, or nobody waited for it."""
    if isinstance(error, LeaseholdError):
        return error.outcome_is_unknown
    return not isinstance(error, Exception)


def given_up(lease_uuid: str) -> LeaseholdError:
    """Make the error for a lease whose settling nobody waited for to its end."""
    error = UnavailableError("nobody waited for the answer", code="CANCELLED")
    error.lease_uuid = lease_uuid
    error.outcome_is_unknown = True
    return error


def note_unsettled(error: BaseException, failed: LeaseholdError) -> None:
    """Tell of a lease that could not be settled while something else, which is raised, was wrong already."""
    name = f"the lease {failed.lease_uuid}" if failed.lease_uuid else f"a lease begun as {failed.idempotency_key}"
    message = f"{name} may be outstanding, for reconciliation to settle: {failed}"
    _LOG.warning(message)
    if hasattr(error, "add_note"):
        error.add_note(message)
