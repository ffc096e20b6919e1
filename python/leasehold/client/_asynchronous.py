"""The asyncio client of the claims server, and its updates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from types import TracebackType

import grpc
from typing_extensions import Self

from leasehold.cells import Cell, Classification, FoundRecord
from leasehold.claims import Bucket, Claim, Lease, LeasePage, OutstandingLease, Record
from leasehold.client import _calls as calls
from leasehold.client import _lock_calls as lock_calls
from leasehold.client._async_lock_session import AsyncLockSession
from leasehold.client._async_taking import AsyncTaking
from leasehold.client._base import call_error, decode_response, new_idempotency_key
from leasehold.client._calls import Call, T
from leasehold.client._endpoint import CHANNEL_OPTIONS
from leasehold.client._lease_scope import LeaseEnd, LeaseScope, may_have_begun, report_unsettled, settlement_abandoned
from leasehold.client._lock_base import DURATION_SECONDS, GRACE_SECONDS
from leasehold.client._lock_calls import LockPath
from leasehold.client._messages import ReceivedPage
from leasehold.client._queue_methods import AsyncQueueMethods
from leasehold.client._retry import ONCE, Attempts, Retry
from leasehold.errors import LeaseholdError, MisconfiguredError
from leasehold.locks import Lock, LockPage


class AsyncClient(AsyncQueueMethods):
    """A client of the claims server under asyncio, for one cell. `Client` is the blocking equivalent.

    One event loop at a time may use the client: another one may follow once the former one is closed, as after `asyncio.run`.
    The first call in a loop connects. `close` or the end of an `async with` block closes the connection. A cancelled call may
    have taken effect.

    Parameters
    ----------
    server, cell_id, tls, allow_plaintext, timeout_seconds, retry, store_id
        See `Client`.

    Raises
    ------
    MisconfiguredError
        The address is invalid, the connection to a remote server would be plaintext, or a file in `tls` is unusable.

    Examples
    --------
    >>> async def save() -> str:
    ...     carol = Claim(BucketType.USERNAMES, "carol", Subject(SubjectType.USER, 9), Source.of(SourceType.USERS, 9))
    ...     async with AsyncClient(server, cell_id=1) as client:
    ...         async with client.update(creates=[carol]) as lease:
    ...             pass  # save the user here
    ...         return (await client.get(carol.bucket)).record.claim.bucket_value
    >>> asyncio.run(save())
    'carol'
    """

    _opened: grpc.aio.Channel | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client's connection. Calls in progress fail."""
        self._enter_loop()
        self._is_closed = True
        channel, self._opened = self._opened, None
        if channel is not None:
            await channel.close()

    @property
    def _channel(self) -> grpc.aio.Channel:
        self._enter_loop()
        # Open the channel with the first call, not in the constructor. A channel of `grpc.aio` belongs to the event loop that
        # runs at its creation, and the constructor may run outside any loop (grpc/aio/_channel.py, `Channel.__init__`).
        if self._opened is None:
            target, credentials = self._endpoint.target, self._endpoint.credentials
            if credentials is None:
                self._opened = grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
            else:
                self._opened = grpc.aio.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
        return self._opened

    def _enter_loop(self) -> None:
        """Let the running event loop use the client, and drop a connection that belongs to a closed one."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._opened is not None and self._loop is not None and not self._loop.is_closed():
            raise MisconfiguredError("another event loop uses the client: create a client for each loop")
        self._loop, self._opened = loop, None

    def update(
        self,
        *,
        creates: Sequence[Claim] = (),
        destroys: Sequence[Claim] = (),
        organization_id: int | None = None,
        idempotency_key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> AsyncUpdate:
        """Return an update whose lease lasts for an `async with` block. See `Client.update` for the parameters."""
        return AsyncUpdate(self, creates, destroys, organization_id, idempotency_key or new_idempotency_key(), timeout_seconds)

    async def begin(
        self,
        creates: Sequence[Claim] = (),
        destroys: Sequence[Claim] = (),
        *,
        organization_id: int | None = None,
        idempotency_key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Lease:
        """Begin an update: lease every create and destroy, or none. See `Client.begin`."""
        return await self._begin(creates, destroys, organization_id, idempotency_key or new_idempotency_key(), timeout_seconds)

    async def commit(self, lease_uuid: str, *, timeout_seconds: float | None = None) -> None:
        """Commit a lease. A repeated commit is safe. See `Client.commit`."""
        await self._run(calls.commit(self.cell_id, lease_uuid), timeout_seconds)

    async def rollback(self, lease_uuid: str, *, timeout_seconds: float | None = None) -> None:
        """Roll back a lease. A repeated rollback is safe. See `Client.rollback`."""
        await self._run(calls.rollback(self.cell_id, lease_uuid), timeout_seconds)

    async def list_leases(
        self,
        *,
        created_after: datetime | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        timeout_seconds: float | None = None,
    ) -> LeasePage:
        """Return a page of the cell's outstanding leases, oldest first. See `Client.list_leases`."""
        return await self._run(calls.list_leases(self.cell_id, created_after, cursor, limit), timeout_seconds)

    async def lease_pages(
        self, *, created_after: datetime | None = None, limit: int | None = None, timeout_seconds: float | None = None
    ) -> AsyncIterator[LeasePage]:
        """Iterate over all pages of the cell's outstanding leases. See `list_leases` for the parameters."""
        cursor = None
        while True:
            page = await self.list_leases(
                created_after=created_after, cursor=cursor, limit=limit, timeout_seconds=timeout_seconds
            )
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    async def leases(self, *, created_after: datetime | None = None) -> AsyncIterator[OutstandingLease]:
        """Iterate over all outstanding leases of the cell, oldest first."""
        async for page in self.lease_pages(created_after=created_after):
            for lease in page.leases:
                yield lease

    async def list_records(
        self,
        source_type: int,
        bucket_types: Sequence[int],
        *,
        after: bytes = b"",
        upto: bytes = b"",
        timeout_seconds: float | None = None,
    ) -> ReceivedPage:
        """Return a page of the cell's records of one table. See `Client.list_records`."""
        return await self._run(calls.list_records(self.cell_id, source_type, bucket_types, after, upto), timeout_seconds)

    async def record_pages(
        self,
        source_type: int,
        bucket_types: Sequence[int],
        *,
        after: bytes = b"",
        upto: bytes = b"",
        timeout_seconds: float | None = None,
    ) -> AsyncIterator[ReceivedPage]:
        """Iterate over all pages of the cell's records of one table. See `list_records` for the parameters."""
        while True:
            page = await self.list_records(source_type, bucket_types, after=after, upto=upto, timeout_seconds=timeout_seconds)
            yield page
            if not page.truncated:
                return
            after = page.last_source_id

    async def records(
        self, source_type: int, bucket_types: Sequence[int], *, after: bytes = b"", upto: bytes = b""
    ) -> AsyncIterator[Record]:
        """Iterate over all records of the cell of one table, in the order of their source ids."""
        async for page in self.record_pages(source_type, bucket_types, after=after, upto=upto):
            for record in page.records:
                yield record

    async def get(self, bucket: Bucket, *, timeout_seconds: float | None = None) -> FoundRecord:
        """Return the record of a bucket of any cell. Only administrators may call it."""
        return await self._run(calls.get(bucket), timeout_seconds)

    async def cells(self, *, timeout_seconds: float | None = None) -> tuple[Cell, ...]:
        """Return the cells in the server's configuration."""
        return await self._run(calls.cells(), timeout_seconds)

    async def classify(self, *buckets: Bucket, timeout_seconds: float | None = None) -> Classification:
        """Return the cell that owns the first of these buckets that is claimed."""
        return await self._run(calls.classify(buckets), timeout_seconds)

    async def classify_session(self, prefix: str, *, timeout_seconds: float | None = None) -> Classification:
        """Return the cell that issues session identifiers with this prefix."""
        return await self._run(calls.classify_session(prefix), timeout_seconds)

    async def classify_cell(self, cell_id: int, *, timeout_seconds: float | None = None) -> Classification:
        """Return the address of the cell with this id."""
        return await self._run(calls.classify_cell(cell_id), timeout_seconds)

    async def classify_first_cell(self, *, timeout_seconds: float | None = None) -> Classification:
        """Return the configured cell with the lowest id. Use it for requests that belong to no other cell."""
        return await self._run(calls.classify_first_cell(), timeout_seconds)

    def lock_session(
        self,
        *,
        duration_seconds: float = DURATION_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
        on_jeopardy: Callable[[], object] | None = None,
        on_safe: Callable[[], object] | None = None,
        on_lost: Callable[[], object] | None = None,
        on_forced: Callable[[int], object] | None = None,
    ) -> AsyncLockSession:
        """Return a session for locks, which an `async with` block opens and closes. See `Client.lock_session`.

        The functions are called in the event loop.
        """
        return AsyncLockSession(self, duration_seconds, grace_seconds, on_jeopardy, on_safe, on_lost, on_forced)

    async def get_lock(self, namespace: str, key: str, *, slot: int = 0, timeout_seconds: float | None = None) -> Lock:
        """Return a lock, or a slot of it: its holder, the number of asks that wait, and the grant that ended last."""
        return await self._run(lock_calls.get(LockPath(namespace, key, slot)), timeout_seconds)

    async def list_locks(
        self,
        namespace: str = "",
        *,
        limit: int | None = None,
        after: Lock | None = None,
        timeout_seconds: float | None = None,
    ) -> LockPage:
        """Return a page of the locks of a namespace that are not free. See `Client.list_locks`."""
        return await self._run(lock_calls.list_locks(namespace, limit, after), timeout_seconds)

    async def locks(self, namespace: str = "") -> AsyncIterator[Lock]:
        """Iterate over all locks of a namespace that are not free. See `Client.list_locks`."""
        after = None
        while True:
            page = await self.list_locks(namespace, limit=1000, after=after)
            for lock in page.locks:
                yield lock
            if not page.truncated:
                return
            after = page.locks[-1]

    async def force_lock(
        self,
        namespace: str,
        key: str,
        fence: int,
        *,
        slot: int = 0,
        at_once: bool = False,
        timeout_seconds: float | None = None,
    ) -> None:
        """Take a lock from its holder. Only administrators may call it. See `Client.force_lock`."""
        await self._run(lock_calls.force(LockPath(namespace, key, slot), fence, at_once=at_once), timeout_seconds)

    async def resolve_orphan(
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
        """End the wait of an orphaned lock for a cleanup. Only administrators may call it. See `Client.resolve_orphan`."""
        await self._run(
            lock_calls.resolve(LockPath(namespace, key, slot), fence, retry=retry, cleaned=cleaned), timeout_seconds
        )

    async def evict_lock_session(self, session_id: str, *, timeout_seconds: float | None = None) -> None:
        """End a session of any service. Only administrators may call it. See `Client.evict_lock_session`."""
        await self._run(lock_calls.evict_session(session_id), timeout_seconds)

    def take(
        self, queue: str, *, session: AsyncLockSession | None = None, credit: int = 1, max_requests: int = 100
    ) -> AsyncTaking:
        """Return a worker of a queue: an asynchronous iterable of batches. See `Client.take`.

        Examples
        --------
        >>> async def work() -> None:
        ...     async with AsyncClient(server) as client:
        ...         await client.submit("mails", "8", "hello")
        ...         async for batch in client.take("mails"):
        ...             async with batch:
        ...                 print(batch.key, [request.body for request in batch.requests])
        ...             break
        >>> asyncio.run(work())
        8 [b'hello']
        """
        return AsyncTaking(self, queue, session, credit, max_requests)

    async def _begin(
        self,
        creates: Sequence[Claim],
        destroys: Sequence[Claim],
        organization_id: int | None,
        key: str,
        timeout_seconds: float | None,
        retry: Retry | None = None,
    ) -> Lease:
        return await self._run(calls.begin(self.cell_id, creates, destroys, organization_id, key), timeout_seconds, retry)

    async def _run(self, call: Call[T], timeout_seconds: float | None, retry: Retry | None = None) -> T:
        self._check_open()
        attempts = Attempts(retry or self._retry, self._timeout_seconds if timeout_seconds is None else timeout_seconds)
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(call.path)
        metadata = call.metadata + self._store.metadata
        while True:
            try:
                rpc = method(call.request, timeout=attempts.attempt_timeout_seconds(), metadata=metadata)
                return decode_response(call, await rpc, await rpc.initial_metadata(), self._store)
            except grpc.RpcError as rpc_error:
                error = call_error(call, rpc_error, self._store)
                wait_seconds = attempts.wait_seconds(error)
                if wait_seconds is None:
                    raise error from None
            await asyncio.sleep(wait_seconds)

    def _stream(self, call: Call[T], timeout_seconds: float | None) -> grpc.aio.UnaryStreamCall[bytes, bytes]:
        """Begin a stream, whose responses the call decodes."""
        self._check_open()
        method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(call.path)
        return method(call.request, timeout=timeout_seconds, metadata=self._store.metadata)


class AsyncUpdate(LeaseScope):
    """The lease of an `async with` block, created by `AsyncClient.update`. The block settles the lease as `Update` does.

    A cancellation inside the block is an exception, so the lease is rolled back, unless `local_commit` was entered. If the
    commit or the rollback itself is cancelled, the cancellation waits for it, at most for the timeout of one attempt.
    """

    def __init__(
        self,
        client: AsyncClient,
        creates: Sequence[Claim],
        destroys: Sequence[Claim],
        organization_id: int | None,
        key: str,
        timeout_seconds: float | None,
    ) -> None:
        super().__init__(creates, destroys, organization_id, key, timeout_seconds)
        self._client = client

    async def __aenter__(self) -> Self:
        try:
            self._lease = await self._client._begin(*self._begin_arguments)  # noqa: SLF001 - same module
        except BaseException as error:
            if may_have_begun(error):
                await self._undo_begin(error)
            raise
        return self

    async def __aexit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        end = self._end_after(error)
        if end is LeaseEnd.LEAVE_OUTSTANDING:
            return
        settle = self._client.commit if end is LeaseEnd.COMMIT else self._client.rollback
        settlement = asyncio.ensure_future(settle(self.uuid, timeout_seconds=self._timeout_seconds))
        try:
            # `shield` lets the commit or rollback finish if this task is cancelled. Without it the cancellation would abort the
            # rpc, and the claims would stay leased until reconciliation.
            await asyncio.shield(settlement)
        except LeaseholdError as failure:
            if error is None:
                raise
            report_unsettled(error, failure)
        except asyncio.CancelledError as cancellation:
            await self._await_settlement(settlement, cancellation)
            raise

    async def _await_settlement(self, settlement: asyncio.Future[None], cancellation: BaseException) -> None:
        # A second cancellation raises from `asyncio.wait`. `finally` then cancels the commit or rollback that is in progress.
        try:
            await asyncio.wait([settlement], timeout=self._client._retry.attempt_timeout_seconds)  # noqa: SLF001
        finally:
            if not settlement.done():
                settlement.cancel()
                report_unsettled(cancellation, settlement_abandoned(self.uuid))
            elif not settlement.cancelled() and isinstance(failure := settlement.exception(), LeaseholdError):
                report_unsettled(cancellation, failure)

    async def _undo_begin(self, error: BaseException) -> None:
        # The begin got no answer, so the client does not know if a lease exists. Begin again with the same key: this returns
        # the first begin's lease, or a new one if that begin had no effect (B09). Either lease is then rolled back.
        try:
            lease = await self._client._begin(*self._begin_arguments, ONCE)  # noqa: SLF001
            await self._client.rollback(lease.uuid, timeout_seconds=self._timeout_seconds)
        except LeaseholdError as failure:
            if failure.outcome_is_unknown:
                report_unsettled(error, failure)
