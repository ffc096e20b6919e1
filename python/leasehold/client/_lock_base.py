"""State that the blocking and the asyncio session for locks share."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from leasehold import _native
from leasehold._proto.leasehold.locks.v1 import lock_service_pb2 as wire
from leasehold.client import _held_locks as held_locks
from leasehold.client import _lock_calls as calls
from leasehold.client._base import ClientBase
from leasehold.client._calls import Call
from leasehold.client._fields import check_text, micros
from leasehold.client._lock_calls import Grant, LockPath, Wanted
from leasehold.client._retry import is_retryable
from leasehold.errors import (
    DeadlineExceededError,
    LeaseholdError,
    LockLostError,
    MisconfiguredError,
    NoOrphanError,
    UnavailableError,
)
from leasehold.locks import Obituary, Standing

NewsT = TypeVar("NewsT", wire.AcquireLockResponse, wire.AcquireLocksResponse, wire.ReapLockResponse)
ResultT = TypeVar("ResultT")

LOCK_HELD = "LOCK_HELD"
"""The code of the refusal of a lock that another ask holds."""

ASK_REUSED = "ASK_REUSED"
"""The code of the refusal of several asks of which one has ended."""

LOCK_LOST = "LOCK_LOST"
"""The argument with which the task of an asyncio block is cancelled if its lock is lost."""

DURATION_SECONDS = 15.0
GRACE_SECONDS = 5.0

# The longest wait that a server allows.
_MAX_WAIT_SECONDS = 86_400

# The time for which an acquire that was interrupted, or got no answer, tries to leave the queue.
LEAVE_SECONDS = 3.0

# The pause before an acquire is repeated, after its stream has ended without a grant.
_RESUME_PAUSE_SECONDS = 0.1
# The time for which an acquire without an answer is repeated, before it fails.
_RESUME_SECONDS = 30.0
# The time after the end of its wait within which the server must end the stream of an acquire.
_ANSWER_SECONDS = 10.0
# The shortest wait for an orphaned lock. The server answers only when it has one, and needs some time to look.
_SHORTEST_REAP_SECONDS = 1.0
# The codes with which the server refuses the release of a lock that has passed on.
_PASSED = ("FENCE_PASSED", "SESSION_ENDED", "SESSION_NOT_FOUND")

_LOG = logging.getLogger("leasehold")


def lost(cause: str = "the session of the lock is lost") -> LockLostError:
    """Return the error of a process whose lock another process may hold now."""
    return LockLostError(f"{cause}: stop the work, another process may hold the lock", code=LOCK_LOST)


class SessionFunctions:
    """The caller's functions that a session calls with its news."""

    def __init__(
        self,
        on_jeopardy: Callable[[], object] | None,
        on_safe: Callable[[], object] | None,
        on_lost: Callable[[], object] | None,
        on_forced: Callable[[int], object] | None,
    ) -> None:
        functions = {Standing.JEOPARDY: on_jeopardy, Standing.SAFE: on_safe, Standing.LOST: on_lost}
        self._standing = {standing.value: function for standing, function in functions.items() if function is not None}
        self._forced = on_forced

    @property
    def are_given(self) -> bool:
        """True if the caller gave at least one function."""
        return bool(self._standing) or self._forced is not None

    def tell(self, name: str, fences: list[int]) -> None:
        """Call the function for one piece of news: the name of a standing, or the fences of locks that were taken."""
        if name in self._standing:
            self._standing[name]()
        if (on_forced := self._forced) is not None:
            for fence in fences:
                on_forced(fence)


class LockSessionBase:
    """The identity, the terms and the keepalive of a session."""

    def __init__(self, client: ClientBase, duration_seconds: float, grace_seconds: float) -> None:
        self._terms = (micros("duration_seconds", duration_seconds), micros("grace_seconds", grace_seconds))
        self._id = uuid.uuid4()
        self._process = os.getpid()
        self._settings = client
        self._keepalive: _native.Keepalive | None = None
        # The queues from which a worker takes under this session.
        self._queues: set[str] = set()
        self._watcher: threading.Thread | None = None

    @property
    def id(self) -> str:
        """The id of the session, a UUID. `Lock.session_id` shows it."""
        return str(self._id)

    @property
    def standing(self) -> Standing:
        """The standing of the session, which changes by itself. It needs no answer of the server."""
        return Standing(self._keepalive.standing()) if self._keepalive else Standing.LOST

    def remaining(self) -> timedelta:
        """Return the time until the session is lost if no renewal succeeds from now on; zero once it is lost."""
        return self._remaining(None)

    def _remaining(self, fence: int | None) -> timedelta:
        return timedelta(microseconds=self._keepalive.remaining_micros(fence) if self._keepalive else 0)

    def _is_forced(self, fence: int) -> bool:
        return self._keepalive is not None and self._keepalive.is_forced(fence)

    def _opening(self) -> tuple[_native.Keepalive, Call[None]]:
        """Return the keepalive, whose deadline counts from now, and the call that opens the session."""
        if self._keepalive is not None or self._process != os.getpid():
            raise MisconfiguredError("the session was opened before: use a new one", code="CLOSED")
        keepalive = self._settings._new_keepalive(self._id.bytes, *self._terms)  # noqa: SLF001 - same package
        return keepalive, calls.open_session(self._id.bytes, *self._terms)

    def _start(self, keepalive: _native.Keepalive) -> None:
        keepalive.start()
        self._keepalive = keepalive

    def _watch(self, keepalive: _native.Keepalive, publish: Callable[[str, list[int]], object]) -> None:
        """Start the thread that tells the news of the session. The thread does not keep the session alive."""
        arguments = (keepalive.news(), publish)
        self._watcher = threading.Thread(target=_publish, args=arguments, name="leasehold-news", daemon=True)
        self._watcher.start()
        _WATCHED.add(self)

    def _stop(self) -> None:
        """End the renewals and the thread that tells news. The session then ends by its silence."""
        if self._keepalive:
            self._keepalive.stop()
        if self._watcher and self._watcher is not threading.current_thread():
            self._watcher.join()

    def _is_own(self) -> bool:
        return self._process == os.getpid()

    def _check_open(self) -> None:
        if not self._is_own():
            raise MisconfiguredError("the session belongs to the parent process: open one in this process", code="FORKED")
        if self._keepalive is None:
            raise MisconfiguredError("the session is not open: enter it by `with`, or call `open`", code="CLOSED")

    def _check_usable(self) -> None:
        self._check_open()
        if self.standing is Standing.LOST:
            raise lost()


def _publish(news: Iterator[tuple[str, list[int]]], publish: Callable[[str, list[int]], object]) -> None:
    for name, fences in news:
        try:
            publish(name, fences)
        except Exception:  # noqa: BLE001, PERF203 - the thread goes on, because it may have to tell the loss
            _LOG.exception("a function that was called for the news `%s` of a session has failed", name)


# At its end, the interpreter stops daemon threads wherever they are. Before Python 3.14 it unwinds a thread that comes back
# from Rust (CPython, `PyThread_exit_thread`), which Rust's frames do not allow. So these threads end before that.
_WATCHED: weakref.WeakSet[LockSessionBase] = weakref.WeakSet()


def _stop_watched() -> None:
    for session in list(_WATCHED):
        session._stop()  # noqa: SLF001 - same module


atexit.register(_stop_watched)


class HoldBase:
    """A hold of this process under its session: the fence, and the time for which the process may believe in the hold."""

    def __init__(self, session: LockSessionBase, fence: int) -> None:
        self._base = session
        self._fence = fence
        self._is_released = False

    @property
    def fence(self) -> int:
        """The fence of the grant, larger than the fence of every grant before it."""
        return self._fence

    @property
    def is_held(self) -> bool:
        """True if no other process can have the hold now. The answer needs no server."""
        return bool(self.remaining())

    @property
    def is_lost(self) -> bool:
        """True if the process must stop its work, because the session is lost."""
        return not self._is_released and not self.is_held

    def remaining(self) -> timedelta:
        """Return the time until the hold is lost if no renewal succeeds from now on; zero once it is lost or released."""
        return timedelta() if self._is_released else self._base._remaining(self._fence)  # noqa: SLF001 - same module

    def _has_passed(self, failure: LeaseholdError) -> bool:
        """Return True if the end of the hold failed because the hold has passed on, or may have."""
        has_passed = failure.code in _PASSED
        self._is_released |= has_passed
        return has_passed or (failure.outcome_is_unknown and self._base.standing is Standing.LOST)

    def _check_own(self, what: str, end: str) -> None:
        if not self._base._is_own():  # noqa: SLF001 - same module
            raise MisconfiguredError(f"the {what} belongs to the parent process: leave its {end} to it", code="FORKED")


class HeldLockBase(HoldBase):
    """A lock that this process holds: its name, slot and fence, and the time for which the process may believe so."""

    def __init__(self, session: LockSessionBase, path: LockPath, fence: int, ask_id: bytes) -> None:
        super().__init__(session, fence)
        self._path = path
        self._ask_id = ask_id
        self._value = b""

    @property
    def namespace(self) -> str:
        """The namespace of the lock."""
        return self._path.namespace

    @property
    def key(self) -> str:
        """The key of the lock."""
        return self._path.key

    @property
    def name(self) -> str:
        """The namespace and the key with a slash between them, as the guard of a database takes it."""
        return f"{self._path.namespace}/{self._path.key}"

    @property
    def slot(self) -> int:
        """The number of the slot, from 1, if the lock is shared: each permit has another one. 0 if it is held alone."""
        return self._path.slot

    @property
    def value(self) -> bytes:
        """The value for the lock's readers that the end of the block gives with the release, at most 2 KiB.

        A value that is too long is refused here, since a release with it would leave the lock held.
        """
        return self._value

    @value.setter
    def value(self, value: bytes) -> None:
        self._value = calls.checked_value(value)

    @property
    def is_forced(self) -> bool:
        """True if an operator took the lock. It passes on after the time that `remaining` returns."""
        return self._base._is_forced(self._fence)  # noqa: SLF001 - same module

    @property
    def is_lost(self) -> bool:
        """True if the process must stop its work: its session is lost, or an operator took the lock."""
        return not self._is_released and (self.is_forced or not self.is_held)

    def check(self) -> None:
        """Raise if the process must stop its work under the lock.

        Raises
        ------
        LockLostError
            The session is lost, an operator took the lock, or the lock was released.
        """
        if self.is_forced:
            raise lost("an operator took the lock")
        if not self.is_held:
            raise lost("the lock was released" if self._is_released else "the session of the lock is lost")

    def _ending(self, failed: bool, value: bytes | None) -> Call[None]:  # noqa: FBT001 - private
        self._check_own("lock", "release")
        session = self._base._id.bytes  # noqa: SLF001
        return calls.release(session, self._path, self._fence, self.value if value is None else value, failed=failed)

    def _failure(self, failure: LeaseholdError) -> LeaseholdError:
        """Return the error to raise for a release that has failed."""
        return lost() if self._has_passed(failure) else failure


class OrphanBase(HeldLockBase):
    """An orphaned lock that this process holds in order to clean up: also the grant whose holder has died."""

    _obituary: Obituary

    @property
    def former_fence(self) -> int:
        """The fence of the grant whose holder has died. A row with this number makes its cleanup happen once."""
        return self._obituary.fence

    @property
    def attempt(self) -> int:
        """The number of this cleanup, from 1."""
        return self._obituary.attempts

    @property
    def most_attempts(self) -> int:
        """The most cleanups that are begun. After the last one has failed, the lock is set aside for an operator."""
        return self._obituary.most_attempts


def report_unreleased(error: BaseException, failure: LeaseholdError) -> None:
    """Log a lock that could not be released, and add a note about it to the exception that is being raised."""
    message = f"a lock may be held until its session ends: {failure}"
    _LOG.warning(message)
    # `BaseException.add_note` exists since Python 3.11 (PEP 678); the package supports 3.10.
    if hasattr(error, "add_note"):
        error.add_note(message)


def report_unclosed(failure: LeaseholdError) -> None:
    """Log a session that could not be closed."""
    _LOG.warning("a session for locks ends by its silence, because it could not be closed: %s", failure)


def has_ended(failure: LeaseholdError) -> bool:
    """Return True if the server refuses a close because the session has ended."""
    return failure.code in ("SESSION_ENDED", "SESSION_NOT_FOUND")


class AskWait(Generic[NewsT, ResultT]):
    """One or more asks that wait on a stream, and the decision to repeat a call that broke."""

    ends_by_leave: bool = True
    """True if the server ends the stream when the ask leaves."""

    def __init__(self, session: bytes, count: int = 1) -> None:
        self._session = session
        self._heard_at = time.monotonic()
        self.asks = [uuid.uuid4().bytes for _ in range(count)]
        self._held_ask_ids = held_locks.ask_ids()

    @property
    def timeout_seconds(self) -> float | None:
        """The longest time for which a stream is read; None if it has no end."""
        raise NotImplementedError

    def stream(self) -> Call[NewsT]:
        """Return the call of the stream. Each call has the same ask."""
        raise NotImplementedError

    def hear(self, news: NewsT) -> ResultT | None:
        """Take one message of the stream. Return the result if the message has it."""
        raise NotImplementedError

    def hear_end(self, *, has_begun: bool) -> None:
        """Take the end of a stream, which may have been silent for long, if the server had accepted the call."""
        if has_begun:
            self._heard_at = time.monotonic()

    def pause_seconds(self, error: LeaseholdError | None, standing: Standing) -> float:
        """Return the pause before the stream is opened again, after it ended with an error or without one.

        Raises
        ------
        LockLostError
            The session is lost.
        LeaseholdError
            The server refused the ask, or has given no answer for half a minute.
        """
        if error is not None and not is_retryable(error):
            raise error
        if standing is Standing.LOST:
            raise lost() from error
        if time.monotonic() - self._heard_at > _RESUME_SECONDS:
            silence = UnavailableError("the server does not answer: try again later", code="STORE_UNAVAILABLE")
            silence.outcome_is_unknown = True
            raise error or silence
        return max(_RESUME_PAUSE_SECONDS, (error.retry_after_seconds if error else None) or 0.0)


class LockWait(AskWait[wire.AcquireLockResponse, Grant]):
    """One acquire that waits. Its result is the grant."""

    def __init__(self, session: bytes, wanted: Wanted, wait_seconds: float, on_place: Callable[[int], object] | None) -> None:
        super().__init__(session)
        self._wanted = wanted
        self._on_place = on_place
        seconds = micros("wait_seconds", wait_seconds) / 1e6
        self._until = time.monotonic() + seconds
        self.is_immediate = wait_seconds == 0
        # The server refuses a longer wait, which a call that does not wait can't name (K21).
        self.is_allowed = seconds <= _MAX_WAIT_SECONDS

    def _left_seconds(self) -> float:
        return max(0.0, self._until - time.monotonic())

    @property
    def timeout_seconds(self) -> float:
        """The time within which the server must end the stream."""
        return min(self._left_seconds(), _MAX_WAIT_SECONDS) + _ANSWER_SECONDS

    def attempt(self) -> Call[Grant]:
        """Return the call of an acquire that does not wait."""
        return calls.try_acquire(self._session, self.asks[0], self._wanted)

    @staticmethod
    def check_first(failure: LeaseholdError) -> None:
        """Return if the ask may wait on a stream after a first call that did not wait.

        Another ask holds the lock, or no answer came: the same ask then gets the grant that the first call may have made.
        Otherwise, raise the refusal of the first call.
        """
        if failure.code != LOCK_HELD and not is_retryable(failure):
            raise failure

    def stream(self) -> Call[wire.AcquireLockResponse]:
        """Return the call of an acquire that waits. The ask keeps its place."""
        # The server refuses a wait of zero if the lock is held, but this ask may have its grant already.
        wait_micros = max(1, micros("wait_seconds", self._left_seconds()))
        return calls.acquire(self._session, self.asks[0], self._wanted, wait_micros, self._held_ask_ids)

    def hear(self, news: wire.AcquireLockResponse) -> Grant | None:
        """Take one message of the stream. Return the grant if the message has it."""
        self._heard_at = time.monotonic()
        if news.WhichOneof("news") == "waiting" and self._on_place is not None:
            self._on_place(news.waiting)
        return Grant(news.fence, news.slot, self.asks[0]) if news.WhichOneof("news") == "fence" else None


class LocksWait(AskWait[wire.AcquireLocksResponse, Sequence[Grant]]):
    """One acquire of several locks together. Its result is the grants, in the order of the asks (K14)."""

    def __init__(self, session: bytes, wanted: Sequence[Wanted], until: float) -> None:
        super().__init__(session, len(wanted))
        self._wanted = wanted
        self._until = until
        self._is_first = True

    @staticmethod
    def until(wait_seconds: float) -> float:
        """Return the time at which a wait that begins now is over."""
        return time.monotonic() + micros("wait_seconds", wait_seconds) / 1e6

    def _left_seconds(self) -> float:
        return max(0.0, self._until - time.monotonic())

    @property
    def timeout_seconds(self) -> float:
        """The time within which the server must end the stream."""
        return min(self._left_seconds(), _MAX_WAIT_SECONDS) + _ANSWER_SECONDS

    def stream(self) -> Call[wire.AcquireLocksResponse]:
        """Return the call of the acquire. The asks keep their places."""
        # The server refuses a wait of zero if a lock is held, but asks of an earlier call may have their grants already.
        wait_micros = max(0 if self._is_first else 1, micros("wait_seconds", self._left_seconds()))
        self._is_first = False
        return calls.acquire_all(self._session, self.asks, self._wanted, wait_micros, self._held_ask_ids)

    def hear(self, news: wire.AcquireLocksResponse) -> Sequence[Grant] | None:
        """Take one message of the stream. Return the grants if the message has them."""
        self._heard_at = time.monotonic()
        if news.WhichOneof("news") != "granted":
            return None
        return [Grant(granted.fence, granted.slot, ask) for granted, ask in zip(news.granted.locks, self.asks, strict=True)]

    @staticmethod
    def must_ask_anew(error: BaseException) -> bool:
        """Return True if the stream was broken for so long that asks have left. The others leave, and all ask anew."""
        return isinstance(error, LeaseholdError) and error.code == ASK_REUSED

    def anew(self) -> LocksWait:
        """Return the rest of the wait, with new asks."""
        return LocksWait(self._session, self._wanted, self._until)


class OrphanWait(AskWait[wire.ReapLockResponse, wire.Orphan]):
    """One wait for an orphaned lock. Its result is the lock, which the session then holds."""

    # The server knows the ask only when it has a lock.
    ends_by_leave = False

    def __init__(self, session: bytes, namespace: str, wait_seconds: float | None) -> None:
        super().__init__(session)
        check_text("namespace", namespace)
        self._namespace = namespace
        seconds = None if wait_seconds is None else micros("wait_seconds", wait_seconds) / 1e6
        self._until = None if seconds is None else time.monotonic() + max(seconds, _SHORTEST_REAP_SECONDS)

    @property
    def timeout_seconds(self) -> float | None:
        """The time until the wait is over; None if it has no end."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def stream(self) -> Call[wire.ReapLockResponse]:
        """Return the call that waits for an orphaned lock. A lock that the ask has got stays its own."""
        return calls.reap(self._session, self.asks[0], self._namespace)

    def hear(self, news: wire.ReapLockResponse) -> wire.Orphan | None:
        """Take one message of the stream. Return the lock if the message has one: a server that stops sends none."""
        return news.orphan if news.WhichOneof("news") == "orphan" else None

    def pause_seconds(self, error: LeaseholdError | None, standing: Standing) -> float:
        """Return the pause before the stream is opened again. See `AskWait`.

        Raises
        ------
        NoOrphanError
            The wait is over.
        """
        has_timed_out = self._until is not None and time.monotonic() >= self._until
        has_answered = error is None or isinstance(error, DeadlineExceededError)
        pause = super().pause_seconds(error, standing)
        if not has_timed_out:
            return pause
        if error is not None and not has_answered:
            raise error
        raise NoOrphanError("no lock of the namespace waited for a cleanup in time: try again later", code="NO_ORPHAN")
