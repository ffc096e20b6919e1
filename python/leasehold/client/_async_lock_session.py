"""The session for locks under asyncio, and the locks that it holds."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

import grpc
from typing_extensions import Self

from leasehold.client import _held_locks as held_locks
from leasehold.client import _lock_calls as calls
from leasehold.client._base import call_error, decode_response
from leasehold.client._lease_scope import may_have_begun
from leasehold.client._lock_base import (
    LEAVE_SECONDS,
    LOCK_LOST,
    AskWait,
    HeldLockBase,
    LockSessionBase,
    LocksWait,
    LockWait,
    NewsT,
    OrphanBase,
    OrphanWait,
    ResultT,
    SessionFunctions,
    has_ended,
    lost,
    report_unclosed,
    report_unreleased,
)
from leasehold.client._lock_calls import Grant, LockPath, Wanted, WantedLock
from leasehold.client._retry import ONCE, Retry
from leasehold.client._task_scope import TaskScope, ends
from leasehold.errors import LeaseholdError, LockLostError, NoOrphanError
from leasehold.locks import Obituary, Standing

if TYPE_CHECKING:
    from leasehold.client._asynchronous import AsyncClient

HeldT = TypeVar("HeldT", bound="AsyncHeldLock")


class AsyncLockSession(LockSessionBase):
    """A session for locks under asyncio, created by `AsyncClient.lock_session`. `LockSession` is the blocking equivalent.

    When the session is lost, the task of each block that holds a lock is cancelled. When an operator takes a lock, the task
    of its block is. `is_lost` of the lock then tells this cancellation from others. Its `CancelledError` has the argument
    `LOCK_LOST`, unless a library that the block awaits raises another one. The end of the block raises `LockLostError`
    instead.
    """

    def __init__(
        self,
        client: AsyncClient,
        duration_seconds: float,
        grace_seconds: float,
        on_jeopardy: Callable[[], object] | None,
        on_safe: Callable[[], object] | None,
        on_lost: Callable[[], object] | None,
        on_forced: Callable[[int], object] | None,
    ) -> None:
        super().__init__(client, duration_seconds, grace_seconds)
        self._client = client
        self._functions = SessionFunctions(on_jeopardy, on_safe, on_lost, on_forced)
        self._holders: set[TaskScope] = set()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.close()
        except LeaseholdError as failure:
            report_unclosed(failure)

    async def open(self) -> None:
        """Open the session, and start the thread that renews it. See `LockSession.open`."""
        keepalive, call = self._opening()
        await self._client._run(call, None)  # noqa: SLF001 - same package
        self._start(keepalive)
        loop, tell = asyncio.get_running_loop(), weakref.WeakMethod(self._tell)

        def publish(name: str, fences: list[int]) -> None:
            # The loop is closed if `asyncio.run` ended before the session was closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: (method := tell()) and method(name, fences))

        self._watch(keepalive, publish)

    def _tell(self, name: str, fences: list[int]) -> None:
        for holder in self._holders:
            if name == Standing.LOST.value or not holder.fences.isdisjoint(fences):
                holder.cancel()
        self._functions.tell(name, fences)

    def _lose(self) -> None:
        """End the renewals of a session whose loss another call has told. The blocks that hold something are cancelled."""
        self._stop()
        # The keepalive tells a loss that it finds itself, and it may have been ended before that.
        self._tell(Standing.LOST.value, [])

    async def close(self) -> None:
        """Close the session. Its locks go to the next processes that wait for them. See `LockSession.close`."""
        if self._keepalive is None or not self._is_own():
            return
        self._stop()
        try:
            await self._client._run(calls.close_session(self._id.bytes), None)  # noqa: SLF001
        except LeaseholdError as failure:
            if not has_ended(failure):
                raise

    def lock(
        self,
        namespace: str,
        key: str,
        *,
        wait_seconds: float = 0,
        on_place: Callable[[int], object] | None = None,
        shared: bool = False,
        permits: int | None = None,
    ) -> AsyncLockScope[AsyncHeldLock]:
        """Return a lock that an `async with` block holds.

        The end of the block releases the lock: as failed if an exception leaves the block. If the lock is lost, the task
        of the block is cancelled, and the end of the block raises `LockLostError`. See `LockSession.acquire` for the
        parameters.

        Examples
        --------
        >>> async def work() -> bool:
        ...     async with AsyncClient(server) as client, client.lock_session() as session:
        ...         async with session.lock("user.update", "7", wait_seconds=2) as held:
        ...             return held.is_held
        >>> asyncio.run(work())
        True
        """
        acquire = partial(self.acquire, wait_seconds=wait_seconds, on_place=on_place, shared=shared, permits=permits)
        return AsyncLockScope(self, partial(acquire, namespace, key))

    async def try_acquire(self, namespace: str, key: str, *, shared: bool = False, permits: int | None = None) -> AsyncHeldLock:
        """Acquire a lock if it is free. See `LockSession.acquire`."""
        return await self.acquire(namespace, key, shared=shared, permits=permits)

    async def acquire(
        self,
        namespace: str,
        key: str,
        *,
        wait_seconds: float = 0,
        on_place: Callable[[int], object] | None = None,
        shared: bool = False,
        permits: int | None = None,
    ) -> AsyncHeldLock:
        """Acquire a lock. The caller releases it, and no loss cancels a task. See `LockSession.acquire`."""
        wanted = Wanted(LockPath(namespace, key), shared, permits)
        self._check_usable()
        wait = LockWait(self._id.bytes, wanted, wait_seconds, on_place)
        try:
            grant = await (self._client._run(wait.attempt(), None) if wait.is_immediate else self._wait_for(wait))  # noqa: SLF001
        except BaseException as error:
            if may_have_begun(error):
                await self._leave(wait.asks)
            raise
        return AsyncHeldLock(self, LockPath(namespace, key, grant.slot), grant.fence, grant.ask_id)

    def lock_all(self, locks: Iterable[WantedLock | tuple[str, str]], *, wait_seconds: float = 0) -> AsyncLocksScope:
        """Return several locks that an `async with` block holds together.

        The end of the block releases all: as failed if an exception leaves the block. If one of them is lost, the task of
        the block is cancelled, and the end of the block raises `LockLostError`. See `LockSession.acquire_all` for the
        parameters.

        Examples
        --------
        >>> async def work() -> list[str]:
        ...     async with AsyncClient(server) as client, client.lock_session() as session:
        ...         async with session.lock_all([("account", "7"), ("account", "8")], wait_seconds=2) as held:
        ...             return [lock.key for lock in held]
        >>> asyncio.run(work())
        ['7', '8']
        """
        return AsyncLocksScope(self, partial(self.acquire_all, locks, wait_seconds=wait_seconds))

    async def acquire_all(
        self, locks: Iterable[WantedLock | tuple[str, str]], *, wait_seconds: float = 0
    ) -> tuple[AsyncHeldLock, ...]:
        """Acquire several locks together. The caller releases each. See `LockSession.acquire_all`."""
        wanted = calls.wanted_locks(locks)
        self._check_usable()
        grants = await self._wait_for_all(LocksWait(self._id.bytes, wanted, LocksWait.until(wait_seconds)))
        paths = [LockPath(each.path.namespace, each.path.key, grant.slot) for each, grant in zip(wanted, grants, strict=True)]
        return tuple(AsyncHeldLock(self, path, grant.fence, grant.ask_id) for path, grant in zip(paths, grants, strict=True))

    def reap(self, namespace: str, *, wait_seconds: float | None = None) -> AsyncLockScope[AsyncOrphan]:
        """Return an orphaned lock that an `async with` block holds in order to clean up.

        The block behaves as that of `lock` does. See `LockSession.reap` for the parameters.
        """
        return AsyncLockScope(self, partial(self._reap, namespace, wait_seconds))

    async def _reap(self, namespace: str, wait_seconds: float | None) -> AsyncOrphan:
        self._check_usable()
        wait = OrphanWait(self._id.bytes, namespace, wait_seconds)
        try:
            found = await self._wait(wait)
        except BaseException as error:
            # The server may have granted a lock at the moment at which the wait was over.
            if may_have_begun(error) or isinstance(error, NoOrphanError):
                await self._leave(wait.asks)
            raise
        return AsyncOrphan(self, calls.path_of(found.lock), found.fence, wait.asks[0], calls.obituary(found.obituary))

    async def _wait_for(self, wait: LockWait) -> Grant:
        # Most locks are free, and a call with one answer costs less than a stream.
        if wait.is_allowed:
            try:
                return await self._client._run(wait.attempt(), None, ONCE)  # noqa: SLF001
            except LeaseholdError as failure:
                wait.check_first(failure)
        return await self._wait(wait)

    async def _wait_for_all(self, wait: LocksWait) -> Sequence[Grant]:
        while True:
            try:
                return await self._wait(wait)
            except BaseException as error:
                must_ask_anew = wait.must_ask_anew(error)
                if must_ask_anew or may_have_begun(error):
                    await self._leave(wait.asks)
                if not must_ask_anew:
                    raise
            wait = wait.anew()

    async def _wait(self, wait: AskWait[NewsT, ResultT]) -> ResultT:
        while True:
            error: LeaseholdError | None = None
            try:
                found = await self._listen(wait)
                if found is not None:
                    return found
            except LeaseholdError as failure:
                error = failure
            await asyncio.sleep(wait.pause_seconds(error, self.standing))

    async def _listen(self, wait: AskWait[NewsT, ResultT]) -> ResultT | None:
        """Read one stream of an ask. Return its result; None if the stream ended without a grant or a refusal."""
        client, call = self._client, wait.stream()
        stream = client._stream(call, wait.timeout_seconds)  # noqa: SLF001
        try:
            async for response in stream:
                news = decode_response(call, response, await stream.initial_metadata(), client._store)  # noqa: SLF001
                if (found := wait.hear(news)) is not None:
                    return found
            wait.hear_end(has_begun=True)
        except grpc.RpcError as rpc_error:
            # The server sends its metadata when it has accepted the call.
            wait.hear_end(has_begun=bool(await stream.initial_metadata()))
            raise call_error(call, rpc_error, client._store) from None  # noqa: SLF001
        finally:
            stream.cancel()
        return None

    async def _leave(self, asks: Sequence[bytes]) -> None:
        # The server may have granted the lock to an ask that nobody waits for any more. Without this call, the grant would
        # pass on after ten seconds (K09).
        with suppress(LeaseholdError):
            for ask in asks:
                await self._client._run(calls.leave(self._id.bytes, ask), LEAVE_SECONDS, Retry())  # noqa: SLF001


class AsyncHeldLock(HeldLockBase):
    """A lock that this process holds, until its release or the loss of its session."""

    def __init__(self, session: AsyncLockSession, path: LockPath, fence: int, ask_id: bytes) -> None:
        super().__init__(session, path, fence, ask_id)
        self._session = session

    async def release(self, *, failed: bool = False, value: bytes | None = None) -> None:
        """Release the lock. A repeated release is safe. See `HeldLock.release`."""
        await self._release(failed, value)

    async def _release(self, failed: bool, value: bytes | None = None, retry: Retry | None = None) -> None:  # noqa: FBT001
        try:
            await self._session._client._run(self._ending(failed, value), None, retry)  # noqa: SLF001 - same module
        except LeaseholdError as failure:
            raise self._failure(failure) from failure
        self._is_released = True


class AsyncOrphan(OrphanBase, AsyncHeldLock):
    """An orphaned lock that this process holds in order to clean up, given by `AsyncLockSession.reap`."""

    def __init__(self, session: AsyncLockSession, path: LockPath, fence: int, ask_id: bytes, obituary: Obituary) -> None:
        super().__init__(session, path, fence, ask_id)
        self._obituary = obituary


class _AsyncScope(TaskScope, Generic[HeldT]):
    """An `async with` block, whose task is cancelled if one of its locks is lost."""

    def __init__(self, session: AsyncLockSession) -> None:
        super().__init__(LOCK_LOST)
        self._session = session
        self._held: tuple[HeldT, ...] = ()

    @property
    def fences(self) -> set[int]:
        """The fences of the block's grants; empty outside of the block."""
        return {held.fence for held in self._held}

    def _enter(self, held: tuple[HeldT, ...]) -> None:
        self._held = held
        held_locks.enter(held)
        self._begin(self._session._holders, is_lost=any(lock.is_lost for lock in held))  # noqa: SLF001 - same module

    async def __aexit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        session = self._session
        held_locks.leave(self._held)
        is_own_cancellation = self._end(session._holders, error, LockLostError)  # noqa: SLF001 - same module
        held = [lock for lock in self._held if not lock._is_released]  # noqa: SLF001
        if not held or not session._is_own():  # noqa: SLF001
            return
        if not is_own_cancellation:
            await self._release(held, error)
            return
        loss = lost("an operator took the lock" if any(lock.is_forced for lock in held) else "the session of the lock is lost")
        # The server may not know of the loss yet. The release then lets the next process begin at once.
        for lock in held:
            if lock.is_lost:
                await self._give_up(lock)
        await self._release([lock for lock in held if lock.is_held and not lock.is_forced], loss)
        raise loss from error

    async def _release(self, held: Sequence[HeldT], error: BaseException | None) -> None:
        # Without an end, the locks would be held until the session is closed.
        for failure in await ends(lock.release(failed=error is not None) for lock in held):
            if isinstance(failure, BaseException):
                if error is None or not isinstance(failure, LeaseholdError):
                    raise failure
                report_unreleased(error, failure)

    async def _give_up(self, held: AsyncHeldLock) -> None:
        with suppress(LeaseholdError):
            await held._release(True, retry=ONCE)  # noqa: FBT003, SLF001


class AsyncLockScope(_AsyncScope[HeldT]):
    """The lock of an `async with` block, created by `AsyncLockSession.lock` and `AsyncLockSession.reap`."""

    def __init__(self, session: AsyncLockSession, acquire: Callable[[], Awaitable[HeldT]]) -> None:
        super().__init__(session)
        self._acquire = acquire

    async def __aenter__(self) -> HeldT:
        held = await self._acquire()
        self._enter((held,))
        return held


class AsyncLocksScope(_AsyncScope[AsyncHeldLock]):
    """The locks of an `async with` block, created by `AsyncLockSession.lock_all`."""

    def __init__(self, session: AsyncLockSession, acquire: Callable[[], Awaitable[tuple[AsyncHeldLock, ...]]]) -> None:
        super().__init__(session)
        self._acquire = acquire

    async def __aenter__(self) -> tuple[AsyncHeldLock, ...]:
        held = await self._acquire()
        self._enter(held)
        return held
