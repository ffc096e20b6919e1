"""The client that awaits its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from types import TracebackType

import grpc
from typing_extensions import Self

from leasehold.cells import Cell, Classification, FoundRecord
from leasehold.claims import Bucket, Claim, Lease, LeasePage, OutstandingLease, Record
from leasehold.client import _calls as calls
from leasehold.client._calls import Call, T
from leasehold.client._endpoint import CHANNEL_OPTIONS
from leasehold.client._fate import Fate, Held, given_up, may_have_begun, note_unsettled
from leasehold.client._messages import ReceivedPage
from leasehold.client._retry import ONCE, Course, Retry
from leasehold.client._settings import Settings, failure, new_key, read
from leasehold.errors import LeaseholdError


class AsyncClient(Settings):
    """The way to the claims server under asyncio, for one cell and one event loop. Its twin is `Client`.

    It connects with the first call, and is closed by `close`, or at the end of an `async with` block. A call that is
    cancelled may have taken effect all the same.

    Parameters
    ----------
    server, cell_id, tls, allow_plaintext, timeout_seconds, retry
        As for `Client`.

    Raises
    ------
    MisconfiguredError
        The address is none, the connection would not be encrypted, or a file of `tls` cannot be used.

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; calls under way fail."""
        self._is_closed = True
        channel, self._opened = self._opened, None
        if channel is not None:
            await channel.close()

    @property
    def _channel(self) -> grpc.aio.Channel:
        # It belongs to the event loop that runs when it is made.
        if self._opened is None:
            target, credentials = self._endpoint.target, self._endpoint.credentials
            if credentials is None:
                self._opened = grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
            else:
                self._opened = grpc.aio.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
        return self._opened

    def update(
        self,
        *,
        creates: Sequence[Claim] = (),
        destroys: Sequence[Claim] = (),
        idempotency_key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> AsyncUpdate:
        """Take a lease for an `async with` block; the parameters are those of `Client.update`."""
        return AsyncUpdate(self, creates, destroys, idempotency_key or new_key(), timeout_seconds)

    async def begin(
        self,
        creates: Sequence[Claim] = (),
        destroys: Sequence[Claim] = (),
        *,
        idempotency_key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Lease:
        """Take a lease on all creates and destroys, or on none. The rest is as for `Client.begin`."""
        return await self._begin(creates, destroys, idempotency_key or new_key(), timeout_seconds)

    async def commit(self, lease_uuid: str, *, timeout_seconds: float | None = None) -> None:
        """Make the changes of a lease final; to repeat it is safe. Exceptions are those of `Client.commit`."""
        await self._run(calls.commit(self.cell_id, lease_uuid), timeout_seconds)

    async def rollback(self, lease_uuid: str, *, timeout_seconds: float | None = None) -> None:
        """Take the changes of a lease back; to repeat it is safe. Exceptions are those of `Client.rollback`."""
        await self._run(calls.rollback(self.cell_id, lease_uuid), timeout_seconds)

    async def list_leases(
        self,
        *,
        created_after: datetime | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        timeout_seconds: float | None = None,
    ) -> LeasePage:
        """List some of the cell's outstanding leases, the oldest first. The rest is as for `Client.list_leases`."""
        return await self._run(calls.list_leases(self.cell_id, created_after, cursor, limit), timeout_seconds)

    async def lease_pages(
        self, *, created_after: datetime | None = None, limit: int | None = None, timeout_seconds: float | None = None
    ) -> AsyncIterator[LeasePage]:
        """List all of the cell's outstanding leases, page by page; the parameters are those of `list_leases`."""
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
        """List all of the cell's outstanding leases, the oldest first."""
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
        """List some of the cell's records out of one table; the parameters are those of `Client.list_records`."""
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
        """List all of the cell's records out of one table, page by page; the parameters are those of `list_records`."""
        while True:
            page = await self.list_records(source_type, bucket_types, after=after, upto=upto, timeout_seconds=timeout_seconds)
            yield page
            if not page.truncated:
                return
            after = page.last_source_id

    async def records(
        self, source_type: int, bucket_types: Sequence[int], *, after: bytes = b"", upto: bytes = b""
    ) -> AsyncIterator[Record]:
        """List all of the cell's records out of one table, in the order of their source ids."""
        async for page in self.record_pages(source_type, bucket_types, after=after, upto=upto):
            for record in page.records:
                yield record

    async def get(self, bucket: Bucket, *, timeout_seconds: float | None = None) -> FoundRecord:
        """Get the record of one bucket, whichever cell holds it. For administrators."""
        return await self._run(calls.get(bucket), timeout_seconds)

    async def cells(self, *, timeout_seconds: float | None = None) -> tuple[Cell, ...]:
        """List the cells that the server knows."""
        return await self._run(calls.cells(), timeout_seconds)

    async def classify(self, *buckets: Bucket, timeout_seconds: float | None = None) -> Classification:
        """Say which cell a request belongs to: the one that holds the first of these buckets that is claimed at all."""
        return await self._run(calls.classify(buckets), timeout_seconds)

    async def classify_session(self, prefix: str, *, timeout_seconds: float | None = None) -> Classification:
        """Say which cell has a session prefix."""
        return await self._run(calls.classify_session(prefix), timeout_seconds)

    async def classify_cell(self, cell_id: int, *, timeout_seconds: float | None = None) -> Classification:
        """Say where a cell is."""
        return await self._run(calls.classify_cell(cell_id), timeout_seconds)

    async def classify_first_cell(self, *, timeout_seconds: float | None = None) -> Classification:
        """Say where the first cell is, which takes what belongs to no other."""
        return await self._run(calls.classify_first_cell(), timeout_seconds)

    async def _begin(
        self,
        creates: Sequence[Claim],
        destroys: Sequence[Claim],
        key: str,
        timeout_seconds: float | None,
        retry: Retry | None = None,
    ) -> Lease:
        return await self._run(calls.begin(self.cell_id, creates, destroys, key), timeout_seconds, retry)

    async def _run(self, call: Call[T], timeout_seconds: float | None, retry: Retry | None = None) -> T:
        self._check_open()
        course = Course(retry or self._retry, self._timeout_seconds if timeout_seconds is None else timeout_seconds)
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(call.path)
        while True:
            try:
                made = method(call.request, timeout=course.attempt_timeout_seconds(), metadata=call.metadata)
                return read(call, await made, await made.initial_metadata())
            except grpc.RpcError as status:
                error = failure(call, status)
                wait_seconds = course.wait_seconds(error)
                if wait_seconds is None:
                    raise error from None
            await asyncio.sleep(wait_seconds)


class AsyncUpdate(Held):
    """A lease for an `async with` block; `AsyncClient.update` makes it. It is settled as an `Update` is.

    A block that is cancelled is left by an exception, too: the lease is rolled back, unless `local_commit` says more. Where
    the commit or the rollback itself is cancelled, it is given the time of one try, before the cancellation goes on.
    """

    def __init__(
        self,
        client: AsyncClient,
        creates: Sequence[Claim],
        destroys: Sequence[Claim],
        key: str,
        timeout_seconds: float | None,
    ) -> None:
        super().__init__(creates, destroys, key, timeout_seconds)
        self._client = client

    async def __aenter__(self) -> Self:
        try:
            self._lease = await self._client._begin(*self._wanted)  # noqa: SLF001 - its own
        except BaseException as error:
            if may_have_begun(error):
                await self._take_back(error)
            raise
        return self

    async def __aexit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        fate = self._fate_after(error)
        if fate is Fate.LEAVE:
            return
        settle = self._client.commit if fate is Fate.COMMIT else self._client.rollback
        settling = asyncio.ensure_future(settle(self.uuid, timeout_seconds=self._timeout_seconds))
        try:
            await asyncio.shield(settling)
        except LeaseholdError as failed:
            if error is None:
                raise
            note_unsettled(error, failed)
        except asyncio.CancelledError as cancelled:
            await self._finish(settling, cancelled)
            raise

    async def _finish(self, settling: asyncio.Future[None], cancelled: BaseException) -> None:
        # Who cancels waits for one try, unless it is done twice: else the claims would wait for reconciliation.
        try:
            await asyncio.wait([settling], timeout=self._client._retry.attempt_timeout_seconds)  # noqa: SLF001
        finally:
            if not settling.done():
                settling.cancel()
                note_unsettled(cancelled, given_up(self.uuid))
            elif not settling.cancelled() and isinstance(failed := settling.exception(), LeaseholdError):
                note_unsettled(cancelled, failed)

    async def _take_back(self, error: BaseException) -> None:
        # Under its key it is the same begin; what is begun only now is begun to be taken back.
        try:
            lease = await self._client._begin(*self._wanted, ONCE)  # noqa: SLF001
            await self._client.rollback(lease.uuid, timeout_seconds=self._timeout_seconds)
        except LeaseholdError as failed:
            if failed.outcome_is_unknown:
                note_unsettled(error, failed)
