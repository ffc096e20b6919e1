"""The blocking session for locks, and the locks that it holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
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
    report_unclosed,
    report_unreleased,
)
from leasehold.client._lock_calls import Grant, LockPath, Wanted, WantedLock
from leasehold.client._retry import ONCE, Retry
from leasehold.errors import LeaseholdError, NoOrphanError
from leasehold.locks import Obituary

if TYPE_CHECKING:
    from leasehold.client._synchronous import Client

HeldT = TypeVar("HeldT", bound="HeldLock")
StreamT = TypeVar("StreamT", bound=grpc.Call)


class LockSession(LockSessionBase):
    """The keepalive of this process for all locks that it holds or waits for, created by `Client.lock_session`.

    The session renews itself in a thread that runs without Python's global interpreter lock. The end of a `with` block
    ends that thread and closes the session. A session that is dropped, or is open at the end of the process, ends by its
    silence. Threads may share a session. A forked process must open its own: a copy of a session counts as lost.
    """

    def __init__(
        self,
        client: Client,
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

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        except LeaseholdError as failure:
            report_unclosed(failure)

    def open(self) -> None:
        """Open the session, and start the thread that renews it.

        Raises
        ------
        InvalidError
            The server refuses the duration or the grace.
        """
        keepalive, call = self._opening()
        self._client._run(call, None)  # noqa: SLF001 - same package
        self._start(keepalive)
        if self._functions.are_given:
            self._watch(keepalive, self._functions.tell)

    def close(self) -> None:
        """Close the session. Its locks go to the next processes that wait for them.

        Nothing is sent if the session has ended, or if it belongs to the parent of this process.
        """
        if self._keepalive is None or not self._is_own():
            return
        self._stop()
        try:
            self._client._run(calls.close_session(self._id.bytes), None)  # noqa: SLF001
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
    ) -> LockScope[HeldLock]:
        """Return a lock that a `with` block holds.

        The block begins with `acquire`, whose parameters and exceptions these are. Its end releases the lock: as failed
        if an exception leaves the block. If the lock has passed on by then, the end of the block raises `LockLostError`.

        An acquire within the block tells the server which locks the blocks of its task or thread hold. The server refuses a
        wait that would never end, because it is for a lock whose holder waits for one of these. Locks without a block, and
        blocks of other tasks and threads, do not count.

        Examples
        --------
        >>> with Client(server) as client, client.lock_session() as session:
        ...     with session.lock("user.update", "7", wait_seconds=2) as held:
        ...         held.fence > 0, held.is_held
        (True, True)
        """
        acquire = partial(self.acquire, wait_seconds=wait_seconds, on_place=on_place, shared=shared, permits=permits)
        return LockScope(self, partial(acquire, namespace, key))

    def try_acquire(self, namespace: str, key: str, *, shared: bool = False, permits: int | None = None) -> HeldLock:
        """Acquire a lock if it is free. See `acquire`."""
        return self.acquire(namespace, key, shared=shared, permits=permits)

    def acquire(
        self,
        namespace: str,
        key: str,
        *,
        wait_seconds: float = 0,
        on_place: Callable[[int], object] | None = None,
        shared: bool = False,
        permits: int | None = None,
    ) -> HeldLock:
        """Acquire a lock. The caller releases it by `HeldLock.release`.

        Parameters
        ----------
        namespace
            One or more parts, joined by a full stop: `user.update`.
        key
            The key within the namespace.
        wait_seconds
            The longest wait, at most a day. Zero means now or never.
        on_place
            A function that is called with the most asks that are served before this one. It runs in this thread.
        shared
            Hold the lock together with all others who share it, as readers do. Who wants the lock alone waits for them, and
            later ones wait behind.
        permits
            Hold one of this many permits of the lock, at most 256. All who use the lock must name the same number: an ask
            with another one waits until no permit is held.

        Raises
        ------
        BusyError
            Another ask held the lock all the time.
        ChangedError
            The wait would never end (`LOCK_CIRCLE`): end the outer blocks, and begin again. See `lock`.
        InvalidError
            The server refuses the name, the wait or the number of permits.
        MisconfiguredError
            Both `shared` and `permits` are given. This is also a `ValueError`.
        DeniedError
            The caller has no right to the namespace.
        LockLostError
            The session is lost.
        """
        wanted = Wanted(LockPath(namespace, key), shared, permits)
        self._check_usable()
        wait = LockWait(self._id.bytes, wanted, wait_seconds, on_place)
        try:
            grant = self._client._run(wait.attempt(), None) if wait.is_immediate else self._wait_for(wait)  # noqa: SLF001
        except BaseException as error:
            if may_have_begun(error):
                self._leave(wait.asks)
            raise
        return HeldLock(self, LockPath(namespace, key, grant.slot), grant.fence, grant.ask_id)

    def lock_all(self, locks: Iterable[WantedLock | tuple[str, str]], *, wait_seconds: float = 0) -> LocksScope:
        """Return several locks that a `with` block holds together.

        The block begins with `acquire_all`, whose parameters and exceptions these are, and gets the locks in their order.
        Its end releases all: as failed if an exception leaves the block. If a lock has passed on by then, the end of the
        block raises `LockLostError`.

        Examples
        --------
        >>> with Client(server) as client, client.lock_session() as session:
        ...     with session.lock_all([("account", "7"), ("account", "8")], wait_seconds=2) as (seven, eight):
        ...         seven.key, eight.key
        ('7', '8')
        """
        return LocksScope(self, partial(self.acquire_all, locks, wait_seconds=wait_seconds))

    def acquire_all(self, locks: Iterable[WantedLock | tuple[str, str]], *, wait_seconds: float = 0) -> tuple[HeldLock, ...]:
        """Acquire several locks together: all or none. The caller releases each by `HeldLock.release`.

        While the call waits for one lock, those that it has already are kept for it. Callers that name the same locks never
        wait for each other in a circle, in whatever order they name them.

        Parameters
        ----------
        locks
            The locks, at most 16: each a namespace and a key, or a `WantedLock`.
        wait_seconds
            The longest wait for all locks, at most a day. Zero means now or never.

        Raises
        ------
        BusyError
            Other asks held one or more of the locks all the time. None is held.
        ChangedError
            The wait would never end (`LOCK_CIRCLE`): end the outer blocks, and begin again. See `lock`.
        InvalidError
            The server refuses a name, the wait, or the number of locks or permits. A lock is named twice.
        MisconfiguredError
            Both `shared` and `permits` of a lock are given. This is also a `ValueError`.
        DeniedError
            The caller has no right to a namespace.
        LockLostError
            The session is lost.
        """
        wanted = calls.wanted_locks(locks)
        self._check_usable()
        grants = self._wait_for_all(LocksWait(self._id.bytes, wanted, LocksWait.until(wait_seconds)))
        paths = [LockPath(each.path.namespace, each.path.key, grant.slot) for each, grant in zip(wanted, grants, strict=True)]
        return tuple(HeldLock(self, path, grant.fence, grant.ask_id) for path, grant in zip(paths, grants, strict=True))

    def reap(self, namespace: str, *, wait_seconds: float | None = None) -> LockScope[Orphan]:
        """Return an orphaned lock that a `with` block holds in order to clean up after the holder that has died.

        The block begins when a lock of the namespace, or of the namespaces in it, waits for a cleanup. Its end releases the
        lock as succeeded, and the lock passes on. If an exception leaves the block, the lock is orphaned again, and the
        cleanup is offered again after a pause.

        Parameters
        ----------
        namespace
            One or more parts, joined by a full stop. `user` waits for the locks of `user.update` too.
        wait_seconds
            The longest wait, at least a second. None, the default, means no end.

        Raises
        ------
        NoOrphanError
            No lock waited for a cleanup in this time.
        InvalidError
            The server refuses the namespace.
        DeniedError
            The caller has no right to the namespace.
        LockLostError
            The session is lost.

        Examples
        --------
        >>> def clean_up(session: LockSession) -> None:
        ...     with session.reap("runner") as orphan:
        ...         print(orphan.key, orphan.fence, orphan.former_fence, orphan.attempt)
        """
        return LockScope(self, partial(self._reap, namespace, wait_seconds))

    def _reap(self, namespace: str, wait_seconds: float | None) -> Orphan:
        self._check_usable()
        wait = OrphanWait(self._id.bytes, namespace, wait_seconds)
        try:
            found = self._wait(wait)
        except BaseException as error:
            # The server may have granted a lock at the moment at which the wait was over.
            if may_have_begun(error) or isinstance(error, NoOrphanError):
                self._leave(wait.asks)
            raise
        return Orphan(self, calls.path_of(found.lock), found.fence, wait.asks[0], calls.obituary(found.obituary))

    def _wait_for(self, wait: LockWait) -> Grant:
        # Most locks are free, and a call with one answer costs less than a stream.
        if wait.is_allowed:
            try:
                return self._client._run(wait.attempt(), None, ONCE)  # noqa: SLF001
            except LeaseholdError as failure:
                wait.check_first(failure)
        return self._wait(wait)

    def _wait_for_all(self, wait: LocksWait) -> Sequence[Grant]:
        while True:
            try:
                return self._wait(wait)
            except BaseException as error:
                must_ask_anew = wait.must_ask_anew(error)
                if must_ask_anew or may_have_begun(error):
                    self._leave(wait.asks)
                if not must_ask_anew:
                    raise
            wait = wait.anew()

    def _wait(self, wait: AskWait[NewsT, ResultT]) -> ResultT:
        while True:
            error: LeaseholdError | None = None
            try:
                found = self._listen(wait)
                if found is not None:
                    return found
            except LeaseholdError as failure:
                error = failure
            time.sleep(wait.pause_seconds(error, self.standing))

    def _listen(self, wait: AskWait[NewsT, ResultT]) -> ResultT | None:
        """Read one stream of an ask. Return its result; None if the stream ended without a grant or a refusal."""
        client, call = self._client, wait.stream()
        begin = partial(client._stream, call, wait.timeout_seconds)  # noqa: SLF001
        stream = begin() if wait.ends_by_leave else _uninterrupted(begin)
        try:
            for response in stream:
                news = decode_response(call, response, stream.initial_metadata(), client._store)  # noqa: SLF001
                if (found := wait.hear(news)) is not None:
                    return found
            wait.hear_end(has_begun=True)
        except grpc.RpcError as rpc_error:
            # The server sends its metadata when it has accepted the call.
            wait.hear_end(has_begun=bool(stream.initial_metadata()))
            raise call_error(call, rpc_error, client._store) from None  # noqa: SLF001
        finally:
            stream.cancel()
        return None

    def _leave(self, asks: Sequence[bytes]) -> None:
        # The server may have granted the lock to an ask that nobody waits for any more. Without this call, the grant would
        # pass on after ten seconds (K09).
        with suppress(LeaseholdError):
            for ask in asks:
                self._client._run(calls.leave(self._id.bytes, ask), LEAVE_SECONDS, Retry())  # noqa: SLF001


def _uninterrupted(begin: Callable[[], StreamT]) -> StreamT:
    """Begin a stream where no interrupt comes: Python raises `KeyboardInterrupt` in its main thread only.

    An interrupt in the middle of gRPC's own code would leave a stream that nobody can cancel. Its call would take an
    orphaned lock later, although nobody waits for it.
    """
    if threading.current_thread() is not threading.main_thread():
        return begin()
    begun: Future[StreamT] = Future()

    def run() -> None:
        try:
            begun.set_result(begin())
        except Exception as error:  # noqa: BLE001 - the caller gets it
            begun.set_exception(error)

    thread = threading.Thread(target=run, name="leasehold-stream", daemon=True)
    try:
        thread.start()
        return begun.result()
    except BaseException:
        if thread.ident is not None and begun.exception() is None:
            begun.result().cancel()
        raise


class HeldLock(HeldLockBase):
    """A lock that this process holds, until its release or the loss of its session."""

    def __init__(self, session: LockSession, path: LockPath, fence: int, ask_id: bytes) -> None:
        super().__init__(session, path, fence, ask_id)
        self._session = session

    def release(self, *, failed: bool = False, value: bytes | None = None) -> None:
        """Release the lock. A repeated release is safe.

        Parameters
        ----------
        failed
            True if the work under the lock failed.
        value
            A value for the readers of the lock, at most 2 KiB. The default is the attribute `value`.

        Raises
        ------
        LockLostError
            The lock has passed on, or may have.
        """
        try:
            self._session._client._run(self._ending(failed, value), None)  # noqa: SLF001 - same module
        except LeaseholdError as failure:
            raise self._failure(failure) from failure
        self._is_released = True


class Orphan(OrphanBase, HeldLock):
    """An orphaned lock that this process holds in order to clean up, given by `LockSession.reap`."""

    def __init__(self, session: LockSession, path: LockPath, fence: int, ask_id: bytes, obituary: Obituary) -> None:
        super().__init__(session, path, fence, ask_id)
        self._obituary = obituary


class LockScope(Generic[HeldT]):
    """The lock of a `with` block, created by `LockSession.lock` and `LockSession.reap`."""

    def __init__(self, session: LockSession, acquire: Callable[[], HeldT]) -> None:
        self._session = session
        self._acquire = acquire
        self._held: HeldT | None = None

    def __enter__(self) -> HeldT:
        self._held = held = self._acquire()
        held_locks.enter((held,))
        return held

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        held = self._held
        if held is None:
            return
        held_locks.leave((held,))
        # A forked process leaves the block too, and must not release the lock of its parent.
        if held._is_released or not self._session._is_own():  # noqa: SLF001 - same module
            return
        try:
            held.release(failed=error is not None)
        except LeaseholdError as failure:
            if error is None:
                raise
            report_unreleased(error, failure)


class LocksScope:
    """The locks of a `with` block, created by `LockSession.lock_all`."""

    def __init__(self, session: LockSession, acquire: Callable[[], tuple[HeldLock, ...]]) -> None:
        self._session = session
        self._acquire = acquire
        self._held: tuple[HeldLock, ...] = ()

    def __enter__(self) -> tuple[HeldLock, ...]:
        self._held = held = self._acquire()
        held_locks.enter(held)
        return held

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        held_locks.leave(self._held)
        # A forked process leaves the block too, and must not release the locks of its parent.
        if not self._session._is_own():  # noqa: SLF001 - same module
            return
        failures: list[LeaseholdError] = []
        # The stack goes on with the other locks if a release raises.
        with ExitStack() as releases:
            for held in reversed(self._held):
                releases.callback(_release, held, error is not None, failures)
        for failure in failures:
            if error is None:
                raise failure
            report_unreleased(error, failure)


def _release(held: HeldLock, failed: bool, failures: list[LeaseholdError]) -> None:  # noqa: FBT001 - private
    if held._is_released:  # noqa: SLF001 - same module
        return
    try:
        held.release(failed=failed)
    except LeaseholdError as failure:
        failures.append(failure)
