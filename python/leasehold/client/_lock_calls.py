"""One function per rpc of sessions and locks: it encodes the request and decodes the response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from leasehold._proto.leasehold.locks.v1 import lock_service_pb2 as wire
from leasehold._proto.leasehold.sessions.v1 import session_service_pb2 as sessions
from leasehold.client import _messages as messages
from leasehold.client._calls import Call, Headers, call, no_answer
from leasehold.client._fields import MAX_32, MAX_64, check_text, id_bytes, id_text, member, number, rows_limit
from leasehold.errors import MisconfiguredError, error_for_code
from leasehold.locks import EndedGrant, GrantEnd, Lock, LockPage, LockState, Obituary

LOCKS = "leasehold.locks.v1.LockService"
SESSIONS = "leasehold.sessions.v1.SessionService"
ACQUIRE = f"/{LOCKS}/AcquireLock"

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
        number("slot", self.slot, MAX_32)

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
        number("permits", self.permits, MAX_32, smallest=1)


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


def open_session(session: bytes, duration_micros: int, grace_micros: int) -> Call[None]:
    request = sessions.OpenSessionRequest(session_id=session, duration_micros=duration_micros, grace_micros=grace_micros)
    return call(SESSIONS, "OpenSession", request, no_answer)


def close_session(session: bytes) -> Call[None]:
    return call(SESSIONS, "CloseSession", sessions.CloseSessionRequest(session_id=session), no_answer)


def evict_session(session_id: str) -> Call[None]:
    session = id_bytes("session_id", session_id, "the `session_id` of a lock")
    return call(SESSIONS, "EvictSession", sessions.EvictSessionRequest(session_id=session), no_answer)


def try_acquire(session: bytes, ask: bytes, wanted: Wanted) -> Call[Grant]:
    request = wire.TryAcquireLockRequest(
        session_id=session, ask_id=ask, lock=wanted.path.message, shared=wanted.shared, permits=wanted.permits or 0
    )

    def decode(response: bytes, _headers: Headers) -> Grant:
        granted = wire.TryAcquireLockResponse.FromString(response)
        return Grant(granted.fence, granted.slot, ask)

    return call(LOCKS, "TryAcquireLock", request, decode)


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
    return call(LOCKS, "AcquireLock", request, lambda response, _headers: wire.AcquireLockResponse.FromString(response))


def acquire_all(
    session: bytes, asks: Sequence[bytes], wanted: Sequence[Wanted], wait_micros: int, held_ask_ids: Sequence[bytes]
) -> Call[wire.AcquireLocksResponse]:
    """Return the call of a stream, each of whose messages `decode` returns."""
    request = wire.AcquireLocksRequest(session_id=session, wait_micros=wait_micros, held_ask_ids=held_ask_ids)
    for ask, each in zip(asks, wanted, strict=True):
        request.asks.add(ask_id=ask, lock=each.path.message, shared=each.shared, permits=each.permits or 0)
    return call(LOCKS, "AcquireLocks", request, lambda response, _headers: wire.AcquireLocksResponse.FromString(response))


def reap(session: bytes, ask: bytes, namespace: str) -> Call[wire.ReapLockResponse]:
    """Return the call of a stream, each of whose messages `decode` returns."""
    request = wire.ReapLockRequest(session_id=session, ask_id=ask, namespace=namespace)
    return call(LOCKS, "ReapLock", request, lambda response, _headers: wire.ReapLockResponse.FromString(response))


def leave(session: bytes, ask: bytes) -> Call[None]:
    return call(LOCKS, "LeaveLock", wire.LeaveLockRequest(session_id=session, ask_id=ask), no_answer)


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
    return call(LOCKS, "ReleaseLock", request, no_answer)


def get(path: LockPath) -> Call[Lock]:
    request = wire.GetLockRequest(lock=path.message)
    return call(LOCKS, "GetLock", request, lambda response, _headers: _lock(wire.GetLockResponse.FromString(response).lock))


def list_locks(namespace: str, limit: int | None, after: Lock | None) -> Call[LockPage]:
    check_text("namespace", namespace)
    last = None if after is None else LockPath(after.namespace, after.key, after.slot).message
    request = wire.ListLocksRequest(namespace=namespace, limit=rows_limit(limit), after=last)

    def decode(response: bytes, _headers: Headers) -> LockPage:
        page = wire.ListLocksResponse.FromString(response)
        return LockPage(tuple(_lock(lock) for lock in page.locks), page.truncated)

    return call(LOCKS, "ListLocks", request, decode)


def force(path: LockPath, fence: int, *, at_once: bool) -> Call[None]:
    request = wire.ForceLockRequest(lock=path.message, fence=number("fence", fence, MAX_64), at_once=bool(at_once))
    return call(LOCKS, "ForceLock", request, no_answer)


def resolve(path: LockPath, fence: int, *, retry: bool, cleaned: bool) -> Call[None]:
    if bool(retry) == bool(cleaned):
        raise MisconfiguredError("the resolution is not clear: pass one of `retry=True` and `cleaned=True`")
    request = wire.ResolveOrphanRequest(
        lock=path.message,
        fence=number("fence", fence, MAX_64),
        resolution=wire.ResolveOrphanRequest.CLEANED if cleaned else wire.ResolveOrphanRequest.RETRY,
    )
    return call(LOCKS, "ResolveOrphan", request, no_answer)


def _lock(message: wire.Lock) -> Lock:
    return Lock(
        namespace=message.path.namespace,
        key=message.path.key,
        state=member(LockState, message.state),
        fence=message.fence or None,
        session_id=id_text(message.session_id) if message.session_id else None,
        updated_at=messages.time(message.updated_at),
        waiting=message.waiting,
        last=_ended(message.last) if message.HasField("last") else None,
        obituary=obituary(message.obituary) if message.HasField("obituary") else None,
        slot=message.path.slot,
        taken_slots=message.taken_slots,
        permits=message.permits,
    )


def _ended(message: wire.EndedGrant) -> EndedGrant:
    return EndedGrant(message.fence, member(GrantEnd, message.end), message.value, messages.time(message.ended_at))


def obituary(message: wire.Obituary) -> Obituary:
    """Return the grant of an obituary, whose cleanup is due."""
    return Obituary(
        message.fence,
        member(GrantEnd, message.end),
        messages.time(message.ended_at),
        message.attempts,
        message.most_attempts,
    )
