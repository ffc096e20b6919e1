"""The client that waits for its answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from types import TracebackType

import grpc
from typing_extensions import Self

from leasehold.cells import Cell, Classification, FoundRecord
from leasehold.claims import Bucket, Claim, Lease, LeasePage, OutstandingLease, Record
from leasehold.client import _calls as calls
from leasehold.client._calls import Call, T
from leasehold.client._endpoint import CHANNEL_OPTIONS
from leasehold.client._fate import Fate, Held, may_have_begun, note_unsettled
from leasehold.client._messages import ReceivedPage
from leasehold.client._retry import ONCE, Course, Retry
from leasehold.client._settings import Settings, failure, new_key, read
from leasehold.errors import LeaseholdError


class Client(Settings):
    """The way to the claims server, for one cell. Threads may share it; a process that was forked makes its own.

    It is closed by `close`, or at the end of a `with` block. Every call raises a subclass of
    `leasehold.errors.LeaseholdError` that says what was refused and why. Calls that nobody answered are tried again, a
    begin under one idempotency key.

    Parameters
    ----------
    server
        `https://HOST:PORT`, or `http://HOST:PORT` on this machine.
    cell_id
        The cell to claim and to list for. Whoever only looks at records or classifies needs none.
    tls
        The certificates; without them there is no connection to another machine.
    allow_plaintext
        Speak in the clear to another machine all the same, since the network is trusted.
    timeout_seconds
        The time for a call with all of its tries, unless the call says otherwise.
    retry
        How a call is tried again.

    Raises
    ------
    MisconfiguredError
        The address is none, the connection would not be encrypted, or a file of `tls` cannot be used.

    Examples
    --------
    >>> alice = Claim(BucketType.USERNAMES, "alice", Subject(SubjectType.USER, 7), Source.of(SourceType.USERS, 7))
    >>> with Client(server, cell_id=1) as client:
    ...     with client.update(creates=[alice]) as lease:
    ...         pass  # save the user here
    ...     client.get(alice.bucket).record.claim.bucket_value
    'alice'
    """

    def _open(self) -> None:
        target, credentials = self._endpoint.target, self._endpoint.credentials
        if credentials is None:
            self._channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        else:
            self._channel = grpc.secure_channel(target, credentials, options=CHANNEL_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; calls under way fail."""
        self._is_closed = True
        self._channel.close()

    def update(
        self,
        *,
        creates: Sequence[Claim] = (),
        destroys: Sequence[Claim] = (),
        idempotency_key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Update:
        """Take a lease for a `with` block: committed at its end, rolled back where an exception leaves it.

        Parameters
        ----------
        creates, destroys
            The claims to make and to give up; a bucket in both is replaced without a gap.
        idempotency_key
            The name of the begin; a new one unless it is given.
        timeout_seconds
            The time for each call; the client's own unless it is given.

        Examples
        --------
        >>> bob = Claim(BucketType.USERNAMES, "bob", Subject(SubjectType.USER, 8), Source.of(SourceType.USERS, 8))
        >>> with client.update(creates=[bob]) as lease:
        ...     with lease.local_commit():
        ...         pass  # COMMIT of the transaction that saves the user
        """
        return Update(self, creates, destroys, idempotency_key or new_key(), timeout_seconds)

    def begin(
        self,
        creates: Sequence[Claim] = (),
        destroys: Sequence[Claim] = (),
        *,
        idempotency_key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Lease:
        """Take a lease on all creates and destroys, or on none.

        Parameters
        ----------
        creates, destroys
            The claims to make and to give up; a bucket in both is replaced without a gap.
        idempotency_key
            The name of the begin: under it the same update gets the same lease, for as long as that is remembered. A
            new one unless it is given; every try of this call has it.
        timeout_seconds
            The time for the call; the client's own unless it is given.

        Raises
        ------
        TakenError, BusyError, ChangedError, NotFoundError, NotOwnerError, InvalidError
            With the offending claims in `details`.
        DeadlineExceededError, UnavailableError
            Whether the lease was taken is not known: begin again under the error's `idempotency_key`.
        """
        return self._begin(creates, destroys, idempotency_key or new_key(), timeout_seconds)

    def commit(self, lease_uuid: str, *, timeout_seconds: float | None = None) -> None:
        """Make the changes of a lease final. To repeat it is safe.

        Raises
        ------
        RolledBackError, NotFoundError, NotOwnerError
            There is nothing to commit.
        """
        self._run(calls.commit(self.cell_id, lease_uuid), timeout_seconds)

    def rollback(self, lease_uuid: str, *, timeout_seconds: float | None = None) -> None:
        """Take the changes of a lease back. To repeat it is safe.

        Raises
        ------
        CommittedError, NotFoundError, NotOwnerError
            There is nothing to roll back.
        """
        self._run(calls.rollback(self.cell_id, lease_uuid), timeout_seconds)

    def list_leases(
        self,
        *,
        created_after: datetime | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        timeout_seconds: float | None = None,
    ) -> LeasePage:
        """List some of the cell's outstanding leases, the oldest first.

        Parameters
        ----------
        created_after
            Only from this time on.
        cursor
            That of the page before.
        limit
            How many at the most: 100 unless it is given, 1000 at the most.
        timeout_seconds
            The time for the call; the client's own unless it is given.
        """
        return self._run(calls.list_leases(self.cell_id, created_after, cursor, limit), timeout_seconds)

    def lease_pages(
        self, *, created_after: datetime | None = None, limit: int | None = None, timeout_seconds: float | None = None
    ) -> Iterator[LeasePage]:
        """List all of the cell's outstanding leases, page by page; the parameters are those of `list_leases`."""
        cursor = None
        while True:
            page = self.list_leases(created_after=created_after, cursor=cursor, limit=limit, timeout_seconds=timeout_seconds)
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    def leases(self, *, created_after: datetime | None = None) -> Iterator[OutstandingLease]:
        """List all of the cell's outstanding leases, the oldest first.

        Examples
        --------
        >>> [lease.uuid for lease in client.leases()]
        []
        """
        for page in self.lease_pages(created_after=created_after):
            yield from page.leases

    def list_records(
        self,
        source_type: int,
        bucket_types: Sequence[int],
        *,
        after: bytes = b"",
        upto: bytes = b"",
        timeout_seconds: float | None = None,
    ) -> ReceivedPage:
        """List some of the cell's records out of one table, in the order of their source ids.

        Parameters
        ----------
        source_type
            The table.
        bucket_types
            The types to list.
        after, upto
            Only beyond one source id and up to another; an empty one bounds nothing.
        timeout_seconds
            The time for the call; the client's own unless it is given.
        """
        return self._run(calls.list_records(self.cell_id, source_type, bucket_types, after, upto), timeout_seconds)

    def record_pages(
        self,
        source_type: int,
        bucket_types: Sequence[int],
        *,
        after: bytes = b"",
        upto: bytes = b"",
        timeout_seconds: float | None = None,
    ) -> Iterator[ReceivedPage]:
        """List all of the cell's records out of one table, page by page; the parameters are those of `list_records`."""
        while True:
            page = self.list_records(source_type, bucket_types, after=after, upto=upto, timeout_seconds=timeout_seconds)
            yield page
            if not page.truncated:
                return
            after = page.last_source_id

    def records(
        self, source_type: int, bucket_types: Sequence[int], *, after: bytes = b"", upto: bytes = b""
    ) -> Iterator[Record]:
        """List all of the cell's records out of one table, in the order of their source ids.

        Examples
        --------
        >>> [record.claim.bucket_value for record in client.records(SourceType.EMAILS, [BucketType.EMAILS])]
        []
        """
        for page in self.record_pages(source_type, bucket_types, after=after, upto=upto):
            yield from page.records

    def get(self, bucket: Bucket, *, timeout_seconds: float | None = None) -> FoundRecord:
        """Get the record of one bucket, whichever cell holds it. For administrators.

        Raises
        ------
        NotFoundError
            No cell claims it.
        """
        return self._run(calls.get(bucket), timeout_seconds)

    def cells(self, *, timeout_seconds: float | None = None) -> tuple[Cell, ...]:
        """List the cells that the server knows."""
        return self._run(calls.cells(), timeout_seconds)

    def classify(self, *buckets: Bucket, timeout_seconds: float | None = None) -> Classification:
        """Say which cell a request belongs to: the one that holds the first of these buckets that is claimed at all.

        Raises
        ------
        NotFoundError
            No cell claims any of them.
        """
        return self._run(calls.classify(buckets), timeout_seconds)

    def classify_session(self, prefix: str, *, timeout_seconds: float | None = None) -> Classification:
        """Say which cell has a session prefix."""
        return self._run(calls.classify_session(prefix), timeout_seconds)

    def classify_cell(self, cell_id: int, *, timeout_seconds: float | None = None) -> Classification:
        """Say where a cell is."""
        return self._run(calls.classify_cell(cell_id), timeout_seconds)

    def classify_first_cell(self, *, timeout_seconds: float | None = None) -> Classification:
        """Say where the first cell is, which takes what belongs to no other."""
        return self._run(calls.classify_first_cell(), timeout_seconds)

    def _begin(
        self,
        creates: Sequence[Claim],
        destroys: Sequence[Claim],
        key: str,
        timeout_seconds: float | None,
        retry: Retry | None = None,
    ) -> Lease:
        return self._run(calls.begin(self.cell_id, creates, destroys, key), timeout_seconds, retry)

    def _run(self, call: Call[T], timeout_seconds: float | None, retry: Retry | None = None) -> T:
        self._check_open()
        course = Course(retry or self._retry, self._timeout_seconds if timeout_seconds is None else timeout_seconds)
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(call.path)
        while True:
            try:
                answer, made = method.with_call(call.request, timeout=course.attempt_timeout_seconds(), metadata=call.metadata)
                return read(call, answer, made.initial_metadata())
            except grpc.RpcError as status:
                error = failure(call, status)
                wait_seconds = course.wait_seconds(error)
                if wait_seconds is None:
                    raise error from None
            time.sleep(wait_seconds)


class Update(Held):
    """A lease for a `with` block; `Client.update` makes it.

    Where the block ends, the lease is committed. Where an exception leaves it, the lease is rolled back, and the
    exception goes on. What becomes of the caller's own transaction says more, if it is told by `local_commit`:

    - Interrupted or failed within: nobody knows whether that COMMIT was done, so the lease is left as it is, for
      reconciliation to settle by the lease's row in the cell's own database.
    - Past it: the lease is committed whatever the rest of the block raises.

    A commit that fails is raised, and never followed by a rollback. Where its outcome is unknown, as the error says by
    `outcome_is_unknown`, commit its `lease_uuid` again, or leave it to reconciliation. A begin that nobody answered, or
    that was interrupted, is taken back, if the server can be reached.
    """

    def __init__(
        self,
        client: Client,
        creates: Sequence[Claim],
        destroys: Sequence[Claim],
        key: str,
        timeout_seconds: float | None,
    ) -> None:
        super().__init__(creates, destroys, key, timeout_seconds)
        self._client = client

    def __enter__(self) -> Self:
        try:
            self._lease = self._client._begin(*self._wanted)  # noqa: SLF001
        except BaseException as error:
            if may_have_begun(error):
                self._take_back(error)
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        fate = self._fate_after(error)
        if fate is Fate.LEAVE:
            return
        settle = self._client.commit if fate is Fate.COMMIT else self._client.rollback
        try:
            settle(self.uuid, timeout_seconds=self._timeout_seconds)
        except LeaseholdError as failed:
            if error is None:
                raise
            note_unsettled(error, failed)

    def _take_back(self, error: BaseException) -> None:
        # Under its key it is the same begin; what is begun only now is begun to be taken back.
        try:
            lease = self._client._begin(*self._wanted, ONCE)  # noqa: SLF001
            self._client.rollback(lease.uuid, timeout_seconds=self._timeout_seconds)
        except LeaseholdError as failed:
            if failed.outcome_is_unknown:
                note_unsettled(error, failed)
