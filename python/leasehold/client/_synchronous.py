"""The blocking client of the claims server, and its updates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import TracebackType

import grpc
from typing_extensions import Self

from leasehold.cells import Cell, Classification, FoundRecord
from leasehold.claims import Bucket, Claim, Lease, LeasePage, OutstandingLease, Record
from leasehold.client import _calls as calls
from leasehold.client import _lock_calls as lock_calls
from leasehold.client._base import call_error, decode_response, new_idempotency_key
from leasehold.client._calls import Call, T
from leasehold.client._endpoint import CHANNEL_OPTIONS
from leasehold.client._lease_scope import LeaseEnd, LeaseScope, may_have_begun, report_unsettled
from leasehold.client._lock_base import DURATION_SECONDS, GRACE_SECONDS
from leasehold.client._lock_calls import LockPath
from leasehold.client._lock_session import LockSession
from leasehold.client._messages import ReceivedPage
from leasehold.client._queue_methods import QueueMethods
from leasehold.client._retry import ONCE, Attempts, Retry
from leasehold.client._taking import Taking
from leasehold.errors import LeaseholdError
from leasehold.locks import Lock, LockPage


class Client(QueueMethods):
    """A blocking client of the claims server, for one cell.

    Threads may share a client. A forked process must create its own: gRPC's threads do not survive a fork.

    `close` or the end of a `with` block closes the connection. Every call raises a subclass of
    `leasehold.errors.LeaseholdError`. A call without an answer is retried; all attempts of a begin send one idempotency
    key.

    Parameters
    ----------
    server
        `https://HOST:PORT`, or `http://HOST:PORT` for a server on the local machine.
    cell_id
        The id of the cell that the client claims and lists for. `get`, `cells` and `classify` need none.
    tls
        The files for mutual TLS. A connection to a remote server requires them.
    allow_plaintext
        Allow a plaintext connection to a remote server. Use it only on a trusted network.
    timeout_seconds
        The timeout of a call with all of its attempts. A call can override it.
    retry
        The retry policy.
    store_id
        The id of the only store that the client accepts, which a server prints at its start. Calls to a server with another
        store raise `OtherStoreError` and change nothing.

    Raises
    ------
    MisconfiguredError
        The address is invalid, the connection to a remote server would be plaintext, or a file in `tls` is unusable.

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
        """Close the client's connection. Calls in progress fail."""
        self._is_closed = True
        self._channel.close()

    def update(
        self,
        *,
        creates: Sequence[Claim] = (),
        destroys: Sequence[Claim] = (),
        organization_id: int | None = None,
        idempotency_key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Update:
        """Return an update whose lease lasts for a `with` block.

        The end of the block commits the lease. An exception in the block rolls the lease back. See `Update`.

        Parameters
        ----------
        creates, destroys
            The claims to create and to destroy. A bucket in both lists is replaced without a gap.
        organization_id
            The organization that the update is for, which the server keeps with the lease. The default is none.
        idempotency_key
            The key of the begin. The default is a random key.
        timeout_seconds
            The timeout of each call. The default is the client's.

        Examples
        --------
        >>> bob = Claim(BucketType.USERNAMES, "bob", Subject(SubjectType.USER, 8), Source.of(SourceType.USERS, 8))
        >>> with client.update(creates=[bob]) as lease:
        ...     with lease.local_commit():
        ...         pass  # COMMIT of the transaction that saves the user
        """
        return Update(self, creates, destroys, organization_id, idempotency_key or new_idempotency_key(), timeout_seconds)

    def begin(
        self,
        creates: Sequence[Claim] = (),
        destroys: Sequence[Claim] = (),
        *,
        organization_id: int | None = None,
        idempotency_key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Lease:
        """Begin an update: lease every create and destroy, or none.

        Parameters
        ----------
        creates, destroys
            The claims to create and to destroy. A bucket in both lists is replaced without a gap.
        organization_id
            The organization that the update is for, which the server keeps with the lease. The default is none.
        idempotency_key
            The key of the begin. A repeated begin with the same key, update and organization returns the same lease,
            as long as the server remembers the lease. The default is a random key, which every attempt of this call sends.
        timeout_seconds
            The timeout of the call. The default is the client's.

        Raises
        ------
        TakenError, BusyError, ChangedError, NotFoundError, NotOwnerError, InvalidError
            The server refuses the update. `details` names the refused claims.
        DeadlineExceededError, UnavailableError
            The outcome is unknown. Begin again with the error's `idempotency_key`.
        """
        return self._begin(creates, destroys, organization_id, idempotency_key or new_idempotency_key(), timeout_seconds)

    def commit(self, lease_uuid: str, *, timeout_seconds: float | None = None) -> None:
        """Commit a lease. A repeated commit is safe.

        Raises
        ------
        RolledBackError, NotFoundError, NotOwnerError
            The lease was rolled back, does not exist, or belongs to another cell.
        """
        self._run(calls.commit(self.cell_id, lease_uuid), timeout_seconds)

    def rollback(self, lease_uuid: str, *, timeout_seconds: float | None = None) -> None:
        """Roll back a lease. A repeated rollback is safe.

        Raises
        ------
        CommittedError, NotFoundError, NotOwnerError
            The lease was committed, does not exist, or belongs to another cell.
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
        """Return a page of the cell's outstanding leases, oldest first.

        Parameters
        ----------
        created_after
            The earliest begin of a listed lease.
        cursor
            The `cursor` of the previous page.
        limit
            The maximum number of leases: 100 by default, 1,000 at most.
        timeout_seconds
            The timeout of the call. The default is the client's.
        """
        return self._run(calls.list_leases(self.cell_id, created_after, cursor, limit), timeout_seconds)

    def lease_pages(
        self, *, created_after: datetime | None = None, limit: int | None = None, timeout_seconds: float | None = None
    ) -> Iterator[LeasePage]:
        """Iterate over all pages of the cell's outstanding leases. See `list_leases` for the parameters."""
        cursor = None
        while True:
            page = self.list_leases(created_after=created_after, cursor=cursor, limit=limit, timeout_seconds=timeout_seconds)
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    def leases(self, *, created_after: datetime | None = None) -> Iterator[OutstandingLease]:
        """Iterate over all outstanding leases of the cell, oldest first.

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
        """Return a page of the cell's records of one table, in the order of their source ids.

        Parameters
        ----------
        source_type
            The table.
        bucket_types
            The bucket types to list.
        after, upto
            The exclusive lower and the inclusive upper bound of the source ids. An empty bound is open.
        timeout_seconds
            The timeout of the call. The default is the client's.
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
        """Iterate over all pages of the cell's records of one table. See `list_records` for the parameters."""
        while True:
            page = self.list_records(source_type, bucket_types, after=after, upto=upto, timeout_seconds=timeout_seconds)
            yield page
            if not page.truncated:
                return
            after = page.last_source_id

    def records(
        self, source_type: int, bucket_types: Sequence[int], *, after: bytes = b"", upto: bytes = b""
    ) -> Iterator[Record]:
        """Iterate over all records of the cell of one table, in the order of their source ids.

        Examples
        --------
        >>> [record.claim.bucket_value for record in client.records(SourceType.EMAILS, [BucketType.EMAILS])]
        []
        """
        for page in self.record_pages(source_type, bucket_types, after=after, upto=upto):
            yield from page.records

    def get(self, bucket: Bucket, *, timeout_seconds: float | None = None) -> FoundRecord:
        """Return the record of a bucket of any cell. Only administrators may call it.

        Raises
        ------
        NotFoundError
            No cell claims the bucket.
        """
        return self._run(calls.get(bucket), timeout_seconds)

    def cells(self, *, timeout_seconds: float | None = None) -> tuple[Cell, ...]:
        """Return the cells in the server's configuration."""
        return self._run(calls.cells(), timeout_seconds)

    def classify(self, *buckets: Bucket, timeout_seconds: float | None = None) -> Classification:
        """Return the cell that owns the first of these buckets that is claimed.

        Raises
        ------
        NotFoundError
            No cell claims any of the buckets.
        """
        return self._run(calls.classify(buckets), timeout_seconds)

    def classify_session(self, prefix: str, *, timeout_seconds: float | None = None) -> Classification:
        """Return the cell that issues session identifiers with this prefix."""
        return self._run(calls.classify_session(prefix), timeout_seconds)

    def classify_cell(self, cell_id: int, *, timeout_seconds: float | None = None) -> Classification:
        """Return the address of the cell with this id."""
        return self._run(calls.classify_cell(cell_id), timeout_seconds)

    def classify_first_cell(self, *, timeout_seconds: float | None = None) -> Classification:
        """Return the configured cell with the lowest id. Use it for requests that belong to no other cell."""
        return self._run(calls.classify_first_cell(), timeout_seconds)

    def lock_session(
        self,
        *,
        duration_seconds: float = DURATION_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
        on_jeopardy: Callable[[], object] | None = None,
        on_safe: Callable[[], object] | None = None,
        on_lost: Callable[[], object] | None = None,
        on_forced: Callable[[int], object] | None = None,
    ) -> LockSession:
        """Return a session for locks, which a `with` block opens and closes. See `LockSession`.

        Parameters
        ----------
        duration_seconds
            The time after a renewal for which the process may work: 1 second to a day.
        grace_seconds
            The time from the end of the duration until the server ends the session: a tenth of a second to an hour.
        on_jeopardy, on_safe, on_lost
            Functions that are called when the standing of the session changes. They run in a thread of the session.
        on_forced
            A function that is called with the fence of a lock that an operator took. Only that lock is lost.

        Examples
        --------
        >>> with client.lock_session() as session, session.lock("cron", "backup") as held:
        ...     held.value = b"42 files"
        >>> client.get_lock("cron", "backup").last.value
        b'42 files'
        """
        return LockSession(self, duration_seconds, grace_seconds, on_jeopardy, on_safe, on_lost, on_forced)

    def get_lock(self, namespace: str, key: str, *, slot: int = 0, timeout_seconds: float | None = None) -> Lock:
        """Return a lock, or a slot of it: its holder, the number of asks that wait, and the grant that ended last."""
        return self._run(lock_calls.get(LockPath(namespace, key, slot)), timeout_seconds)

    def list_locks(
        self,
        namespace: str = "",
        *,
        limit: int | None = None,
        after: Lock | None = None,
        timeout_seconds: float | None = None,
    ) -> LockPage:
        """Return a page of the locks of a namespace, and of the namespaces in it, that are not free.

        Parameters
        ----------
        namespace
            The namespace: `user` lists `user.update` too. An empty namespace lists every lock, for administrators.
        limit
            The maximum number of locks: 100 by default, 1,000 at most.
        after
            The last lock of the previous page.
        timeout_seconds
            The timeout of the call. The default is the client's.
        """
        return self._run(lock_calls.list_locks(namespace, limit, after), timeout_seconds)

    def locks(self, namespace: str = "") -> Iterator[Lock]:
        """Iterate over all locks of a namespace that are not free. See `list_locks`.

        Examples
        --------
        >>> [lock.key for lock in client.locks("cron")]
        []
        """
        after = None
        while True:
            page = self.list_locks(namespace, limit=1000, after=after)
            yield from page.locks
            if not page.truncated:
                return
            after = page.locks[-1]

    def force_lock(
        self,
        namespace: str,
        key: str,
        fence: int,
        *,
        slot: int = 0,
        at_once: bool = False,
        timeout_seconds: float | None = None,
    ) -> None:
        """Take a lock from its holder, which is told. Only administrators may call it.

        The lock is withheld until its former holder can no longer believe that it holds the lock.

        Parameters
        ----------
        namespace, key
            The name of the lock.
        fence
            The fence of the grant that is taken away.
        slot
            The slot that its holder loses, if several hold the lock; the others go on. `locks` shows the slots.
        at_once
            Let the lock pass on at once, though its holder may still work. Only fences then refuse the holder's writes.
        timeout_seconds
            The timeout of the call. The default is the client's.

        Raises
        ------
        ChangedError
            The lock is not held under this fence.
        """
        self._run(lock_calls.force(LockPath(namespace, key, slot), fence, at_once=at_once), timeout_seconds)

    def resolve_orphan(
        self,
        namespace: str,
        key: str,
        fence: int,
        *,
        slot: int = 0,
        retry: bool = False,
        cleaned: bool = False,
        timeout_seconds: float | None = None,
    ) -> None:
        """End the wait of an orphaned lock for a cleanup. Only administrators may call it.

        Parameters
        ----------
        namespace, key
            The name of the lock.
        fence
            The fence of the grant whose cleanup is due: `Obituary.fence`.
        slot
            The slot whose cleanup is due, if several held the lock.
        retry
            Begin the cleanup again, and count its attempts from 0.
        cleaned
            Let the lock pass on, because the caller has cleaned up.
        timeout_seconds
            The timeout of the call. The default is the client's.

        Raises
        ------
        ChangedError
            The lock waits for no cleanup after this grant.
        MisconfiguredError
            Not exactly one of `retry` and `cleaned` is true.
        """
        self._run(lock_calls.resolve(LockPath(namespace, key, slot), fence, retry=retry, cleaned=cleaned), timeout_seconds)

    def evict_lock_session(self, session_id: str, *, timeout_seconds: float | None = None) -> None:
        """End a session of any service. Its locks are withheld as by `force_lock`. Only administrators may call it."""
        self._run(lock_calls.evict_session(session_id), timeout_seconds)

    def take(self, queue: str, *, session: LockSession | None = None, credit: int = 1, max_requests: int = 100) -> Taking:
        """Return a worker of a queue: an iterable of batches. See `Taking` and `Batch`.

        The loop waits for the next batch. It ends after `stop` only, or by an exception. A `with` block around the loop gives
        access to the worker.

        Parameters
        ----------
        queue
            The queue from which the worker takes.
        session
            The session under which it holds its batches. By default the worker opens one, and closes it at its end.
        credit
            The most batches that it holds at a time, at most 256. More than one are for `Taking.run`, and for loops that hand
            batches to threads.
        max_requests
            The most requests of a batch, at most 100.

        Examples
        --------
        >>> submitted = client.submit("mails", "7", "hello")
        >>> with client.take("mails") as worker:
        ...     for batch in worker:
        ...         with batch:
        ...             print(batch.key, [request.body for request in batch.requests])
        ...             worker.stop()
        7 [b'hello']
        >>> client.get_request(submitted.id).state.name
        'COMPLETE'
        """
        return Taking(self, queue, session, credit, max_requests)

    def _begin(
        self,
        creates: Sequence[Claim],
        destroys: Sequence[Claim],
        organization_id: int | None,
        key: str,
        timeout_seconds: float | None,
        retry: Retry | None = None,
    ) -> Lease:
        return self._run(calls.begin(self.cell_id, creates, destroys, organization_id, key), timeout_seconds, retry)

    def _run(self, call: Call[T], timeout_seconds: float | None, retry: Retry | None = None) -> T:
        self._check_open()
        attempts = Attempts(retry or self._retry, self._timeout_seconds if timeout_seconds is None else timeout_seconds)
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(call.path)
        metadata = call.metadata + self._store.metadata
        while True:
            try:
                attempt_timeout_seconds = attempts.attempt_timeout_seconds()
                response, rpc = method.with_call(call.request, timeout=attempt_timeout_seconds, metadata=metadata)
                return decode_response(call, response, rpc.initial_metadata(), self._store)
            except grpc.RpcError as rpc_error:
                error = call_error(call, rpc_error, self._store)
                wait_seconds = attempts.wait_seconds(error)
                if wait_seconds is None:
                    raise error from None
            time.sleep(wait_seconds)

    def _stream(self, call: Call[T], timeout_seconds: float | None) -> grpc._CallIterator[bytes]:
        """Begin a stream, whose responses the call decodes."""
        self._check_open()
        method: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(call.path)
        return method(call.request, timeout=timeout_seconds, metadata=self._store.metadata)


class Update(LeaseScope):
    """The lease of a `with` block, created by `Client.update`.

    The end of the block commits the lease. An exception in the block rolls the lease back and propagates.
    `local_commit` marks the COMMIT of the caller's own transaction and changes the rule:

    - An exception inside `local_commit` leaves the lease outstanding, because the outcome of that COMMIT is unknown.
      Reconciliation settles the lease by its row in the cell's own database.
    - After `local_commit`, the lease is committed even if the rest of the block raises.

    A failed commit raises and is never followed by a rollback. If the error's `outcome_is_unknown` is true, commit its
    `lease_uuid` again or leave the lease to reconciliation. A begin that got no answer or was interrupted is rolled back,
    if the server can be reached.
    """

    def __init__(
        self,
        client: Client,
        creates: Sequence[Claim],
        destroys: Sequence[Claim],
        organization_id: int | None,
        key: str,
        timeout_seconds: float | None,
    ) -> None:
        super().__init__(creates, destroys, organization_id, key, timeout_seconds)
        self._client = client

    def __enter__(self) -> Self:
        try:
            self._lease = self._client._begin(*self._begin_arguments)  # noqa: SLF001 - same module
        except BaseException as error:
            if may_have_begun(error):
                self._undo_begin(error)
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        end = self._end_after(error)
        if end is LeaseEnd.LEAVE_OUTSTANDING:
            return
        settle = self._client.commit if end is LeaseEnd.COMMIT else self._client.rollback
        try:
            settle(self.uuid, timeout_seconds=self._timeout_seconds)
        except LeaseholdError as failure:
            if error is None:
                raise
            report_unsettled(error, failure)

    def _undo_begin(self, error: BaseException) -> None:
        # The begin got no answer, so the client does not know if a lease exists. Begin again with the same key: this returns
        # the first begin's lease, or a new one if that begin had no effect (B09). Either lease is then rolled back.
        try:
            lease = self._client._begin(*self._begin_arguments, ONCE)  # noqa: SLF001
            self._client.rollback(lease.uuid, timeout_seconds=self._timeout_seconds)
        except LeaseholdError as failure:
            if failure.outcome_is_unknown:
                report_unsettled(error, failure)
