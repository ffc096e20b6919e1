"""A claims service in memory, for tests and studies without a server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from leasehold import _native, times
from leasehold._arguments import check_bytes, check_number, check_text, listed, named_claims, representable
from leasehold._kinds import integer, iterable
from leasehold._members import RecordMembers
from leasehold.claims import Claim, Lease, LeasePage, OutstandingLease, Record, RecordPage, Source, Subject
from leasehold.errors import error_for_code

if TYPE_CHECKING:
    from leasehold.client import MemoryClient

_CELLS = iterable(integer(1, 2**63 - 1))


class ClaimsService:
    """A claims service in memory: the engine over its reference store.

    Replies equal those of a server, and `client` returns a `Client` for tests of your own code. The claims vanish with the
    object. Use the object in one thread at a time.

    Parameters
    ----------
    cells : iterable of int, optional
        The ids of the configured cells, each at least 1.
    clock : callable, optional
        A function that returns the current time with a time zone. The default is the local clock.

    Attributes
    ----------
    cells : tuple of int
        The ids of the cells.

    Raises
    ------
    InvalidError
        There is no cell, or an id is out of range.

    Examples
    --------
    >>> from leasehold import BucketType, Claim, ClaimsService, Source, SourceType, Subject, SubjectType, TakenError
    >>> from leasehold import encode_source_id
    >>> def username(name):
    ...     source = Source(SourceType.USERS, encode_source_id(7))
    ...     return Claim(BucketType.USERNAMES, name, Subject(SubjectType.USER, 7), source)
    >>> service = ClaimsService(cells=[1, 2])
    >>> lease = service.begin(1, creates=[username("Alice")])
    >>> service.commit(1, lease.uuid)
    True
    >>> try:
    ...     service.begin(2, creates=[username("alice")])
    ... except TakenError as error:
    ...     error.details[0].code
    'CLAIM_TAKEN'
    """

    def __init__(self, cells: Iterable[int] = (1,), *, clock: Callable[[], datetime] | None = None) -> None:
        self.cells = tuple(_CELLS(cells, "cells"))
        if not self.cells:
            raise error_for_code("INVALID_ARGUMENT", "`cells` is empty: pass the id of at least one cell")
        self._service = _native.ClaimsService(list(self.cells))
        self._clock = clock or times.now

    def client(self, cell_id: int | None = None) -> MemoryClient:
        """Return a client of the service, which stands in for a `leasehold.client.Client` in tests.

        Parameters
        ----------
        cell_id : int, optional
            The cell that the client claims and lists for.

        Returns
        -------
        MemoryClient
            A `Client` whose calls for claims the service answers.
        """
        # gRPC takes a moment to load, and a service without clients does not need it.
        from leasehold.client import MemoryClient

        return MemoryClient(self, cell_id)

    def now(self) -> datetime:
        """Return the time of the service's clock."""
        return self._clock()

    @representable
    def begin(
        self,
        cell_id: int,
        creates: Iterable[Claim] = (),
        destroys: Iterable[Claim] = (),
        *,
        organization_id: int | None = None,
        idempotency_key: str | None = None,
    ) -> Lease:
        """Begin an update. Either all of its creates and destroys take effect, or none.

        Parameters
        ----------
        cell_id : int
            The cell that owns the claims.
        creates, destroys : iterable of Claim
            The claims to create and to destroy: at most 2,000 in total.
        organization_id : int, optional
            The organization that the update is for, which the service keeps with the lease.
        idempotency_key : str, optional
            A key that makes the begin safe to repeat: at most 128 printable ASCII characters.

        Returns
        -------
        Lease
            The lease. Commit it or roll it back.

        Raises
        ------
        LeaseholdError
            The service refuses the update: `InvalidError`, `TakenError`, `BusyError`, `ChangedError`, `NotFoundError` or
            `NotOwnerError`.
        """
        check_number("cell_id", cell_id, 63)
        if organization_id is not None:
            check_number("organization_id", organization_id, 63)
        if idempotency_key is not None:
            check_text("idempotency_key", idempotency_key)
        # The engine draws no random numbers, so this method draws the id of the lease.
        lease = uuid.uuid4().int
        taken, freed = listed("creates", creates), listed("destroys", destroys)
        with named_claims(creates=taken, destroys=freed):
            begun = self._service.begin(cell_id, taken, freed, organization_id or 0, idempotency_key, lease, self._now())
        return Lease(*begun)

    @representable
    def commit(self, cell_id: int, lease_uuid: str) -> bool:
        """Commit a lease.

        Parameters
        ----------
        cell_id : int
            The cell whose lease it is.
        lease_uuid : str
            The lease, in the 36-character form.

        Returns
        -------
        bool
            True if this call committed the lease, False if an earlier call did.

        Raises
        ------
        NotFoundError, NotOwnerError, RolledBackError
            The service refuses the request.
        """
        return self._settle(cell_id, lease_uuid, commit=True)

    @representable
    def rollback(self, cell_id: int, lease_uuid: str) -> bool:
        """Roll back a lease.

        Parameters
        ----------
        cell_id : int
            The cell whose lease it is.
        lease_uuid : str
            The lease, in the 36-character form.

        Returns
        -------
        bool
            True if this call rolled the lease back, False if an earlier call did.

        Raises
        ------
        NotFoundError, NotOwnerError, CommittedError
            The service refuses the request.
        """
        return self._settle(cell_id, lease_uuid, commit=False)

    @representable
    def get(self, bucket_type: int, value: str) -> Record:
        """Return the record of a bucket.

        Parameters
        ----------
        bucket_type : int
            A `BucketType`.
        value : str
            The value in any spelling.

        Returns
        -------
        Record
            The record. It exists from the begin of its create to the commit of its destroy.

        Raises
        ------
        NotFoundError
            No cell claims the bucket.
        InvalidError
            The bucket type does not allow the value.
        """
        check_number("bucket_type", bucket_type, 31)
        check_text("value", value)
        return _record(self._service.record(bucket_type, value))

    @representable
    def list_leases(
        self,
        cell_id: int,
        *,
        limit: int | None = None,
        created_after: datetime | None = None,
        cursor: str | None = None,
    ) -> LeasePage:
        """Return a page of a cell's outstanding leases.

        Parameters
        ----------
        cell_id : int
            The cell.
        limit : int, optional
            The maximum number of leases: 100 by default, 1,000 at most.
        created_after : datetime, optional
            The earliest begin of a listed lease.
        cursor : str, optional
            The `cursor` of the previous page.

        Returns
        -------
        LeasePage
            The page.

        Raises
        ------
        InvalidError
            The cell is unknown, the limit is negative, or the cursor is invalid.
        """
        check_number("cell_id", cell_id, 63)
        if limit is not None:
            check_number("limit", limit, 31)
        if cursor is not None:
            check_text("cursor", cursor)
        after = None if created_after is None else times.micros(created_after)
        leases, next_cursor = self._service.leases(cell_id, limit, after, cursor)
        outstanding = tuple(
            OutstandingLease(lease, times.from_micros(created), times.from_micros(updated), organization)
            for lease, organization, created, updated in leases
        )
        return LeasePage(outstanding, next_cursor, self._clock())

    @representable
    def list_records(
        self, cell_id: int, source_type: int, *, bucket_types: Iterable[int] = (), after: bytes = b"", upto: bytes = b""
    ) -> RecordPage:
        """Return a page of a cell's records of one table.

        Parameters
        ----------
        cell_id : int
            The cell.
        source_type : int
            A `SourceType`.
        bucket_types : iterable of int, optional
            The bucket types to list; empty lists every type.
        after, upto : bytes, optional
            The exclusive lower and the inclusive upper bound of the source ids. An empty bound is open.

        Returns
        -------
        RecordPage
            The page. All records of one row are on the same page.

        Raises
        ------
        InvalidError
            The cell or a type is unknown.
        """
        check_number("cell_id", cell_id, 63)
        check_number("source_type", source_type, 31)
        wanted = listed("bucket_types", bucket_types)
        for at, bucket_type in enumerate(wanted):
            check_number(f"bucket_types[{at}]", bucket_type, 31)
        check_bytes("after", after)
        check_bytes("upto", upto)
        records, truncated = self._service.records(cell_id, source_type, wanted, after, upto)
        return RecordPage(tuple(map(_record, records)), truncated, self._clock())

    def forget_settled(self) -> int:
        """Forget the leases that were settled before the clock's time. Return their number."""
        return self._service.forget(self._now())

    def check(self) -> None:
        """Check the stored claims and leases against the engine's invariants.

        Raises
        ------
        InternalError
            An invariant is violated, which is a defect in Leasehold.
        """
        self._service.check()

    def _settle(self, cell_id: int, lease_uuid: str, *, commit: bool) -> bool:
        check_number("cell_id", cell_id, 63)
        check_text("lease_uuid", lease_uuid)
        return self._service.settle(cell_id, lease_uuid, commit, self._now())

    def _now(self) -> int:
        return times.micros(self._clock())


def _record(members: RecordMembers) -> Record:
    """Return the record for the tuple in which the extension returns it."""
    record_uuid, (bucket_type, value, subject, source), cell_id, status, lease, created_at, updated_at = members
    claim = Claim(bucket_type, value, Subject(*subject), Source(*source))
    return Record(record_uuid, claim, cell_id, status, lease, times.from_micros(created_at), times.from_micros(updated_at))
