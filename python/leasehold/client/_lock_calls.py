"""One function per rpc of sessions and locks: it encodes the request and decodes the response."""

from __future__ import annotations

import enum
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import Message

from leasehold._proto.leasehold.locks.v1 import lock_service_pb2 as wire
from leasehold._proto.leasehold.sessions.v1 import session_service_pb2 as sessions
from leasehold.client import _messages as messages
from leasehold.client._calls import Call, Headers, T
from leasehold.errors import InternalError, MisconfiguredError, error_for_code
from leasehold.locks import EndedGrant, GrantEnd, Lock, LockPage, LockState, Obituary

E = TypeVar("E", bound=enum.Enum)

LOCKS = "leasehold.locks.v1.LockService"
SESSIONS = "leasehold.sessions.v1.SessionService"
ACQUIRE = f"/{LOCKS}/AcquireLock"

# The largest numbers of unsigned fields. The server refuses smaller numbers by its own limits.
_MAX = 2**64 - 1
_MAX_32 = 2**32 - 1
# The longest value that the engine keeps (K21).
_MAX_VALUE_BYTES = 2_048


@dataclass(frozen=True)
class LockPath:
    """The namespace and the key of a lock, and the number of a slot: 0 for the lock itself. The types are checked."""

    namespace: str
    key: str
    slot: int = 0

    def __post_init__(self) -> None:
        for name in ("namespace", "key"):
            check_text(name, getattr(self, name))
        _number("slot", self.slot, _MAX_32)

    @property
    def message(self) -> wire.LockPath:
        """The Protobuf message for this path."""
        return wire.LockPath(namespace=self.namespace, key=self.key, slot=self.slot)


def path_of(message: wire.LockPath) -> LockPath:
    """Return the path of a lock that the server has sent."""
    return LockPath(message.namespace, message.key, message.slot)


@dataclass(frozen=True)
class Wanted:
    """What an ask wants: a lock alone, the lock together with other readers, or one of its permits."""

    path: LockPath
    shared: bool
    permits: int | None

    def __post_init__(self) -> None:
        if self.permits is None:
            return
        if self.shared:
            raise MisconfiguredError("both `shared` and `permits` are given: pass one of them")
        _number("permits", self.permits, _MAX_32, smallest=1)


@dataclass(frozen=True)
class WantedLock:
    """One lock of several that are acquired together, for `LockSession.lock_all`.

    Attributes
    ----------
    namespace, key : str
        The name of the lock.
    shared : bool
        Hold the lock together with all others who share it. See `LockSession.acquire`.
    permits : int or None
        Hold one of this many permits of the lock. See `LockSession.acquire`.
    """

    namespace: str
    key: str = field(repr=False)  # A representation may get into a log (K24).
    shared: bool = field(default=False, kw_only=True)
    permits: int | None = field(default=None, kw_only=True)


def wanted_locks(locks: Iterable[WantedLock | tuple[str, str]]) -> list[Wanted]:
    """Return the asks for several locks. The server checks their number."""
    return [_wanted(position, lock) for position, lock in enumerate(locks)]


def _wanted(position: int, lock: object) -> Wanted:
    if isinstance(lock, tuple) and len(lock) == 2:
        return Wanted(LockPath(*lock), shared=False, permits=None)
    if not isinstance(lock, WantedLock):
        name = type(lock).__name__
        raise TypeError(f"`locks[{position}]` is a `{name}`: pass a `WantedLock`, or a tuple of a namespace and a key")
    return Wanted(LockPath(lock.namespace, lock.key), lock.shared, lock.permits)


@dataclass(frozen=True)
class Grant:
    """The fence of a grant, the slot that it is for, and the id of its ask. The slot is 0 if the lock is held alone."""

    fence: int
    slot: int
    ask_id: bytes


def check_text(name: str, value: object) -> None:
    """Raise if a value is not text that Protobuf can carry. No error contains the value (K24)."""
    if not isinstance(value, str):
        raise TypeError(f"`{name}` is a `{type(value).__name__}`, not a string: pass a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise error_for_code("INVALID_UPDATE", f"`{name}` has half of a surrogate pair: pass valid Unicode") from None


def micros(name: str, seconds: float) -> int:
    """Return a duration in microseconds. The server checks its bounds.

    Raises
    ------
    MisconfiguredError
        The duration is negative or not finite.
    """
    if not (math.isfinite(seconds) and seconds >= 0):
        raise MisconfiguredError(f"`{name}` is {seconds}: pass a finite number of seconds that is not negative")
    return min(round(seconds * 1e6), _MAX)


def _number(name: str, value: object, largest: int, *, smallest: int = 0) -> int:
    if not (isinstance(value, int) and smallest <= value <= largest):
        raise MisconfiguredError(f"`{name}` is {value!r}: pass an integer from {smallest} to {largest}")
    return value


def open_session(session: bytes, duration_micros: int, grace_micros: int) -> Call[None]:
    request = sessions.OpenSessionRequest(session_id=session, duration_micros=duration_micros, grace_micros=grace_micros)
    return _call(SESSIONS, "OpenSession", request, _ignore)


def close_session(session: bytes) -> Call[None]:
    return _call(SESSIONS, "CloseSession", sessions.CloseSessionRequest(session_id=session), _ignore)


def evict_session(session_id: str) -> Call[None]:
    try:
        session = uuid.UUID(session_id).bytes
    except (AttributeError, TypeError, ValueError):
        raise error_for_code("INVALID_UPDATE", "`session_id` is not a UUID: pass the `session_id` of a lock") from None
    return _call(SESSIONS, "EvictSession", sessions.EvictSessionRequest(session_id=session), _ignore)


def try_acquire(session: bytes, ask: bytes, wanted: Wanted) -> Call[Grant]:
    request = wire.TryAcquireLockRequest(
        session_id=session, ask_id=ask, lock=wanted.path.message, shared=wanted.shared, permits=wanted.permits or 0
    )

    def decode(response: bytes, _headers: Headers) -> Grant:
        granted = wire.TryAcquireLockResponse.FromString(response)
        return Grant(granted.fence, granted.slot, ask)

    return _call(LOCKS, "TryAcquireLock", request, decode)


def acquire(
    session: bytes, ask: bytes, wanted: Wanted, wait_micros: int, held_ask_ids: Sequence[bytes]
) -> Call[wire.AcquireLockResponse]:
    """Return the call of a stream, each of whose messages `decode` returns."""
    request = wire.AcquireLockRequest(
        session_id=session,
        ask_id=ask,
        lock=wanted.path.message,
        wait_micros=wait_micros,
        shared=wanted.shared,
        permits=wanted.permits or 0,
        held_ask_ids=held_ask_ids,
    )
    return _call(LOCKS, "AcquireLock", request, lambda response, _headers: wire.AcquireLockResponse.FromString(response))


def acquire_all(
    session: bytes, asks: Sequence[bytes], wanted: Sequence[Wanted], wait_micros: int, held_ask_ids: Sequence[bytes]
) -> Call[wire.AcquireLocksResponse]:
    """Return the call of a stream, each of whose messages `decode` returns."""
    request = wire.AcquireLocksRequest(session_id=session, wait_micros=wait_micros, held_ask_ids=held_ask_ids)
    for ask, each in zip(asks, wanted, strict=True):
        request.asks.add(ask_id=ask, lock=each.path.message, shared=each.shared, permits=each.permits or 0)
    return _call(LOCKS, "AcquireLocks", request, lambda response, _headers: wire.AcquireLocksResponse.FromString(response))


def reap(session: bytes, ask: bytes, namespace: str) -> Call[wire.ReapLockResponse]:
    """Return the call of a stream, each of whose messages `decode` returns."""
    request = wire.ReapLockRequest(session_id=session, ask_id=ask, namespace=namespace)
    return _call(LOCKS, "ReapLock", request, lambda response, _headers: wire.ReapLockResponse.FromString(response))


def leave(session: bytes, ask: bytes) -> Call[None]:
    return _call(LOCKS, "LeaveLock", wire.LeaveLockRequest(session_id=session, ask_id=ask), _ignore)


def checked_value(value: object) -> bytes:
    """Return a value that a release may leave. No error contains the value (K24)."""
    if not isinstance(value, bytes):
        raise TypeError(f"`value` is a `{type(value).__name__}`, not bytes: pass bytes")
    if len(value) > _MAX_VALUE_BYTES:
        raise error_for_code("LIMIT_EXCEEDED", f"`value_bytes` is {len(value)}, at most {_MAX_VALUE_BYTES} is allowed")
    return value


def release(session: bytes, path: LockPath, fence: int, value: bytes, *, failed: bool) -> Call[None]:
    checked_value(value)
    request = wire.ReleaseLockRequest(session_id=session, lock=path.message, fence=fence, failed=failed, value=value)
    return _call(LOCKS, "ReleaseLock", request, _ignore)


def get(path: LockPath) -> Call[Lock]:
    request = wire.GetLockRequest(lock=path.message)
    return _call(LOCKS, "GetLock", request, lambda response, _headers: _lock(wire.GetLockResponse.FromString(response).lock))


def list_locks(namespace: str, limit: int | None, after: Lock | None) -> Call[LockPage]:
    check_text("namespace", namespace)
    last = None if after is None else LockPath(after.namespace, after.key, after.slot).message
    request = wire.ListLocksRequest(namespace=namespace, limit=_number("limit", limit or 0, _MAX_32), after=last)

    def decode(response: bytes, _headers: Headers) -> LockPage:
        page = wire.ListLocksResponse.FromString(response)
        return LockPage(tuple(_lock(lock) for lock in page.locks), page.truncated)

    return _call(LOCKS, "ListLocks", request, decode)


def force(path: LockPath, fence: int, *, at_once: bool) -> Call[None]:
    request = wire.ForceLockRequest(lock=path.message, fence=_number("fence", fence, _MAX), at_once=bool(at_once))
    return _call(LOCKS, "ForceLock", request, _ignore)


def resolve(path: LockPath, fence: int, *, retry: bool, cleaned: bool) -> Call[None]:
    if bool(retry) == bool(cleaned):
        raise MisconfiguredError("the resolution is not clear: pass one of `retry=True` and `cleaned=True`")
    request = wire.ResolveOrphanRequest(
        lock=path.message,
        fence=_number("fence", fence, _MAX),
        resolution=wire.ResolveOrphanRequest.CLEANED if cleaned else wire.ResolveOrphanRequest.RETRY,
    )
    return _call(LOCKS, "ResolveOrphan", request, _ignore)


def _call(service: str, rpc: str, request: Message, decode: Callable[[bytes, Mapping[str, str | bytes]], T]) -> Call[T]:
    return Call(f"/{service}/{rpc}", request.SerializeToString(), decode)


def _ignore(_response: bytes, _headers: Headers) -> None:
    return None


def _lock(message: wire.Lock) -> Lock:
    return Lock(
        namespace=message.path.namespace,
        key=message.path.key,
        state=_member(LockState, message.state),
        fence=message.fence or None,
        session_id=str(uuid.UUID(bytes=message.session_id)) if message.session_id else None,
        updated_at=messages.time(message.updated_at),
        waiting=message.waiting,
        last=_ended(message.last) if message.HasField("last") else None,
        obituary=obituary(message.obituary) if message.HasField("obituary") else None,
        slot=message.path.slot,
        taken_slots=message.taken_slots,
        permits=message.permits,
    )


def _member(enumeration: type[E], number: int) -> E:
    try:
        return enumeration(number)
    except ValueError:
        name = enumeration.__name__
        raise InternalError(f"the server sent the unknown `{name}` {number}: install a newer client", code="INTERNAL") from None


def _ended(message: wire.EndedGrant) -> EndedGrant:
    return EndedGrant(message.fence, _member(GrantEnd, message.end), message.value, messages.time(message.ended_at))


def obituary(message: wire.Obituary) -> Obituary:
    """Return the grant of an obituary, whose cleanup is due."""
    return Obituary(
        message.fence,
        _member(GrantEnd, message.end),
        messages.time(message.ended_at),
        message.attempts,
        message.most_attempts,
    )
