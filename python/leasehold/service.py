"""A claims service in memory: the engine over its reference store, for tests and studies without a server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import datetime

from leasehold import _native, times
from leasehold._members import RecordMembers
from leasehold.claims import Claim, Lease, LeasePage, OutstandingLease, Record, RecordPage, Source, Subject


class ClaimsService:
    """Claims of several cells, in memory.

    It answers as a server does, but nothing is kept beyond the object's life. One thread at a time.

    Parameters
    ----------
    cells : iterable of int, optional
        The cells that it knows, each 1 or more.
    clock : callable, optional
        Tells the time, with a time zone; this machine's clock unless told.

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

    def __init__(self, cells: Iterable[int] = (1,), *, clock: Callable[[], datetime] = times.now) -> None:
        self._service = _native.ClaimsService(list(cells))
        self._clock = clock

    def begin(
        self,
        cell_id: int,
        creates: Iterable[Claim] = (),
        destroys: Iterable[Claim] = (),
        *,
        idempotency_key: str | None = None,
    ) -> Lease:
        """Begin an update: all of it takes effect, or nothing.

        Parameters
        ----------
        cell_id : int
            The cell that asks.
        creates, destroys : iterable of Claim
            The claims to create and to destroy: at most 2,000 together.
        idempotency_key : str, optional
            Names this begin, so that it can be repeated: at most 128 printable ASCII characters.

        Returns
        -------
        Lease
            The lease, to be committed or rolled back.

        Raises
        ------
        LeaseholdError
            It is refused: `InvalidError`, `TakenError`, `BusyError`, `ChangedError`, `NotFoundError` or `NotOwnerError`.
        """
        members = self._service.begin(cell_id, list(creates), list(destroys), idempotency_key, uuid.uuid4().int, self._now())
        return Lease(*members)

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
            Whether it changed anything; False where it was committed before.

        Raises
        ------
        NotFoundError, NotOwnerError, RolledBackError
            It is refused.
        """
        return self._service.settle(cell_id, lease_uuid, True, self._now())  # noqa: FBT003

    def rollback(self, cell_id: int, lease_uuid: str) -> bool:
        """Roll a lease back.

        Parameters
        ----------
        cell_id : int
            The cell whose lease it is.
        lease_uuid : str
            The lease, in the 36-character form.

        Returns
        -------
        bool
            Whether it changed anything; False where it was rolled back before.

        Raises
        ------
        NotFoundError, NotOwnerError, CommittedError
            It is refused.
        """
        return self._service.settle(cell_id, lease_uuid, False, self._now())  # noqa: FBT003

    def get(self, bucket_type: int, value: str) -> Record:
        """Return the record of a bucket.

        Parameters
        ----------
        bucket_type : int
            A `BucketType`.
        value : str
            The value, in any spelling.

        Returns
        -------
        Record
            The record, from begin on until its destroy is committed.

        Raises
        ------
        NotFoundError
            Nobody has claimed it.
        InvalidError
            The bucket type does not allow the value.
        """
        return _record(self._service.record(bucket_type, value))

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
            How many at the most: 100 unless told, 1,000 at the most.
        created_after : datetime, optional
            Only those that were begun then or later.
        cursor : str, optional
            Where the page before ended.

        Returns
        -------
        LeasePage
            The page.

        Raises
        ------
        InvalidError
            The cell is not known, the limit is negative, or the cursor is none.
        """
        after = None if created_after is None else times.micros(created_after)
        leases, following = self._service.leases(cell_id, limit, after, cursor)
        outstanding = tuple(OutstandingLease(one, times.at(begun), times.at(changed)) for one, begun, changed in leases)
        return LeasePage(outstanding, following, self._clock())

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
            Only of these types; all where there are none.
        after, upto : bytes, optional
            Only beyond the one source id, and up to the other; the empty one bounds nothing.

        Returns
        -------
        RecordPage
            The page, which never splits the records of one row.

        Raises
        ------
        InvalidError
            The cell or a type is not known.
        """
        records, truncated = self._service.records(cell_id, source_type, list(bucket_types), after, upto)
        return RecordPage(tuple(map(_record, records)), truncated, self._clock())

    def forget_settled(self) -> int:
        """Forget every lease that is settled, and return how many there were."""
        return self._service.forget(self._now())

    def check(self) -> None:
        """Hold everything to the engine's invariants.

        Raises
        ------
        InternalError
            One does not hold, which is a defect.
        """
        self._service.check()

    def _now(self) -> int:
        return times.micros(self._clock())


def _record(members: RecordMembers) -> Record:
    """Make a record of its members."""
    name, (bucket_type, value, subject, source), cell_id, status, lease, created_at, updated_at = members
    claim = Claim(bucket_type, value, Subject(*subject), Source(*source))
    return Record(name, claim, cell_id, status, lease, times.at(created_at), times.at(updated_at))
