"""The worker of a queue under asyncio, and the batches that it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

import grpc
from typing_extensions import Self

from leasehold._proto.leasehold.queues.v1 import queue_service_pb2 as wire
from leasehold.client import _queue_calls as calls
from leasehold.client._async_lock_session import AsyncLockSession
from leasehold.client._base import call_error, decode_response
from leasehold.client._calls import Call
from leasehold.client._lock_base import DURATION_SECONDS, GRACE_SECONDS, LEAVE_SECONDS
from leasehold.client._lock_calls import close_session
from leasehold.client._queue_base import (
    BATCH_LOST,
    GIVE_BACK_ROUNDS,
    STOP_SECONDS,
    BatchBase,
    TakingBase,
    batch_lost,
    check_given_back,
    has_lost_session,
    outcome_after,
    report_failed,
    report_unsettled,
)
from leasehold.client._queue_calls import Outcome
from leasehold.client._retry import ONCE, Retry
from leasehold.client._task_scope import TaskScope, ends
from leasehold.errors import BatchLostError, LeaseholdError, MisconfiguredError
from leasehold.locks import Standing

if TYPE_CHECKING:
    from leasehold.client._asynchronous import AsyncClient


class AsyncBatch(BatchBase, TaskScope):
    """Requests that this worker has taken as one. `Batch` is the blocking equivalent.

    If the session is lost, the task of the `async with` block is cancelled, and the end of the block raises
    `BatchLostError`. A cancellation by somebody else gives the batch back.
    """

    def __init__(
        self, client: AsyncClient, held: dict[int, BatchBase], session: AsyncLockSession, queue_name: str, message: wire.Batch
    ) -> None:
        BatchBase.__init__(self, held, session, queue_name, message)
        TaskScope.__init__(self, BATCH_LOST)
        self._client = client
        self._session = session

    @property
    def fences(self) -> set[int]:
        """The fence of the batch."""
        return {self.fence}

    async def __aenter__(self) -> Self:
        self._begin(self._session._holders, is_lost=self.is_lost)  # noqa: SLF001 - same package
        return self

    async def __aexit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        is_own_cancellation = self._end(self._session._holders, error, BatchLostError)  # noqa: SLF001 - same package
        if is_own_cancellation:
            # The server may not know of the loss yet. The give-back then lets the next worker begin at once.
            with suppress(LeaseholdError):
                await self._settle_once(wire.SettleRequest.GIVEN_BACK)
            raise batch_lost() from error
        # A forked process leaves the block too, and must not settle the batch of its parent.
        if self._is_released or not self._session._is_own():  # noqa: SLF001 - same package
            return
        (failure,) = await ends([self._settle(outcome_after(error))])
        if failure is None:
            return
        if error is None or not isinstance(failure, LeaseholdError):
            raise failure
        report_unsettled(error, failure)

    async def complete(self) -> None:
        """Settle the requests as complete. See `Batch.complete`."""
        await self._settle(wire.SettleRequest.COMPLETED)

    async def fail(self, *, retry_after_seconds: float | None = None) -> None:
        """Settle the requests as failed. See `Batch.fail`."""
        await self._settle(wire.SettleRequest.FAILED, retry_after_seconds)

    async def give_back(self) -> None:
        """Give the requests back to the queue. The attempt does not count. See `Batch.give_back`."""
        await self._settle(wire.SettleRequest.GIVEN_BACK)

    async def note_progress(self, progress: bytes) -> None:
        """Note the progress of the work for the next worker should this one fail. See `Batch.note_progress`."""
        try:
            await self._client._run(calls.note_progress(self._lane, progress), None)  # noqa: SLF001 - same package
        except LeaseholdError as failure:
            raise self._failure(failure) from failure

    async def _settle(self, outcome: Outcome, retry_after_seconds: float | None = None) -> None:
        call = self._settling(outcome, retry_after_seconds)
        while not await self._has_settled(call):
            pass

    async def _has_settled(self, call: Call[None]) -> bool:
        """Send a settle. Return False if it got no answer, and may be sent again."""
        try:
            await self._client._run(call, None, Retry())  # noqa: SLF001 - same package
        except LeaseholdError as failure:
            if self._may_settle_again(failure):
                return False
            raise self._failure(failure) from failure
        self._note_settled()
        return True

    async def _settle_once(self, outcome: Outcome) -> None:
        if not self._is_released:
            await self._client._run(self._settling(outcome), LEAVE_SECONDS, ONCE)  # noqa: SLF001 - same package
            self._note_settled()


class AsyncTaking(TakingBase):
    """A worker of a queue under asyncio, created by `AsyncClient.take`. `Taking` is the blocking equivalent."""

    def __init__(
        self, client: AsyncClient, queue_name: str, session: AsyncLockSession | None, credit: int, max_requests: int
    ) -> None:
        super().__init__(queue_name, credit, max_requests, client._retry)  # noqa: SLF001 - same package
        self._client = client
        self._given_session = session
        self._session = session
        self._held: dict[int, BatchBase] = {}
        self._reader: asyncio.Task[None] | None = None
        self._news: asyncio.Queue[AsyncBatch | BaseException | None] = asyncio.Queue()
        self._ended: asyncio.Queue[None] = asyncio.Queue()
        self._working: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the session if it is the worker's own, and begin to take. See `Taking.open`."""
        if self._reader is not None:
            raise MisconfiguredError("the worker was opened before: use a new one", code="CLOSED")
        session = self._given_session or await self._open_session()
        self._begin(session)
        self._session = session
        self._is_open = True
        self._reader = asyncio.create_task(self._read())

    def stop(self, *, within_seconds: float = STOP_SECONDS) -> None:
        """Take nothing more. The loop ends. Call this in the event loop, such as by `loop.add_signal_handler`.

        After this time, `run` cancels the functions that still work, which gives their batches back. See `Taking.stop`.
        """
        self._note_stop(within_seconds)
        if self._reader is not None:
            self._news.put_nowait(None)
            self._ended.put_nowait(None)
            self._reader.cancel()

    async def close(self) -> None:
        """Stop, give back what is not settled, and close the session if it is the worker's own."""
        if not self._is_open or not self._is_own():
            return
        self._is_open = False
        self.stop(within_seconds=0)
        if self._reader is not None:
            await asyncio.wait([self._reader])
        # The worker has no session while it waits for a new one.
        if (session := self._session) is None:
            return
        session._queues.discard(self._queue)  # noqa: SLF001 - same package
        if session.standing is not Standing.LOST:
            with suppress(LeaseholdError):
                await self._give_back(session)
        if self._given_session is None:
            await session.__aexit__()

    async def __aiter__(self) -> AsyncIterator[AsyncBatch]:
        was_open = self._is_open
        if not was_open:
            await self.open()
        try:
            while (batch := await self.next_batch()) is not None:
                yield batch
        finally:
            if not was_open:
                await self.close()

    async def next_batch(self, *, wait_seconds: float | None = None) -> AsyncBatch | None:
        """Wait for the next batch. Return None if the worker stops, or if the wait is over. See `Taking.next_batch`."""
        if not self._is_open and not self._is_stopping:
            raise MisconfiguredError("the worker is not open: enter it by `async with`", code="CLOSED")
        try:
            return await asyncio.wait_for(self._next_held(), wait_seconds)
        except asyncio.TimeoutError:
            return None

    async def _next_held(self) -> AsyncBatch | None:
        while not self._is_stopping:
            news = await self._news.get()
            if isinstance(news, BaseException):
                self._news.put_nowait(None)
                raise news
            # Batches that waited here for too long are lost, and another worker's by now.
            if news is None or news.is_held:
                return news
        return None

    async def run(
        self,
        work: Callable[[AsyncBatch], Awaitable[object]],
        *,
        on_error: Callable[[AsyncBatch, Exception], object] | None = None,
    ) -> None:
        """Call a coroutine function with each batch, in a task of its own, until `stop`. At most `credit` run at a time.

        After a stop, functions that have not ended in time are cancelled, and their batches given back. See `Taking.run`.
        """
        report = on_error or report_failed
        try:
            while (batch := await self.next_batch()) is not None:
                self._working.add(asyncio.create_task(self._work(work, report, batch)))
        except BaseException as error:
            self.stop(within_seconds=STOP_SECONDS if isinstance(error, Exception) else 0)
            raise
        finally:
            await self._finish()

    async def _work(
        self,
        work: Callable[[AsyncBatch], Awaitable[object]],
        report: Callable[[AsyncBatch, Exception], object],
        batch: AsyncBatch,
    ) -> None:
        try:
            async with batch:
                await work(batch)
        except Exception as error:  # noqa: BLE001 - the worker goes on with the next batch
            report(batch, error)
        finally:
            self._working.discard(asyncio.current_task())
            self._ended.put_nowait(None)

    async def _finish(self) -> None:
        """Wait for the batches that are worked until the time of the stop. Cancel the others, which gives them back."""
        while self._working and (left := self._left_seconds()):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.get(), left)
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(self._working, timeout=LEAVE_SECONDS)

    async def _open_session(self) -> AsyncLockSession:
        session = AsyncLockSession(self._client, DURATION_SECONDS, GRACE_SECONDS, None, None, None, None)
        await session.open()
        return session

    async def _read(self) -> None:
        """Read streams until the stop, and hand their batches to the loop."""
        try:
            while not self._is_stopping:
                if self._session is None:
                    await self._reopen()
                else:
                    await self._read_stream(self._session)
        except Exception as failure:  # noqa: BLE001 - the loop raises it
            self._news.put_nowait(failure)

    async def _reopen(self) -> None:
        try:
            session = await self._open_session()
        except LeaseholdError as failure:
            await asyncio.sleep(self._pause_seconds(failure))
        else:
            self._begin(session)
            self._session = session

    async def _read_stream(self, session: AsyncLockSession) -> None:
        error = await self._listen(session)
        if not has_lost_session(error, session):
            await asyncio.sleep(self._pause_seconds(error))
            return
        if self._given_session is not None:
            raise batch_lost("the session of the worker is lost") from error
        self._session = None
        self._held.clear()
        session._lose()  # noqa: SLF001 - same package
        # The server may not know of the loss yet. The close then lets other workers take the requests at once.
        with suppress(LeaseholdError):
            await self._client._run(close_session(session._id.bytes), LEAVE_SECONDS, ONCE)  # noqa: SLF001

    async def _listen(self, session: AsyncLockSession) -> LeaseholdError | None:
        """Read one stream to its end. Return its error; None if the server moved the stream."""
        client, call = self._client, self._take(session, self._held)
        stream = client._stream(call, None)  # noqa: SLF001 - same package
        try:
            async for response in stream:
                news = decode_response(call, response, await stream.initial_metadata(), client._store)  # noqa: SLF001
                self._hear(session, news)
        except grpc.RpcError as rpc_error:
            return call_error(call, rpc_error, client._store)  # noqa: SLF001
        finally:
            stream.cancel()
        return None

    def _hear(self, session: AsyncLockSession, news: wire.TakeResponse) -> None:
        self._failures = 0
        if news.WhichOneof("news") == "batch" and news.batch.fence not in self._held:
            batch = AsyncBatch(self._client, self._held, session, self._queue, news.batch)
            self._held[batch.fence] = batch
            self._news.put_nowait(batch)

    async def _give_back(self, session: AsyncLockSession) -> None:
        """Give back what is not settled. Other batches than the known ones may have been lost with the stream."""
        for call in self._give_up(self._held):
            await self._send_give_back(call)
        for _ in range(GIVE_BACK_ROUNDS):
            await self._client._run(self._after_takes(session), LEAVE_SECONDS, Retry())  # noqa: SLF001 - same package
            page = await self._client._run(self._unread(session), LEAVE_SECONDS, Retry())  # noqa: SLF001
            unread = self._give_backs(session, page)
            if not unread:
                return
            for call in unread:
                await self._send_give_back(call)

    async def _send_give_back(self, call: Call[None]) -> None:
        try:
            await self._client._run(call, LEAVE_SECONDS, Retry())  # noqa: SLF001 - same package
        except LeaseholdError as failure:
            check_given_back(failure)
