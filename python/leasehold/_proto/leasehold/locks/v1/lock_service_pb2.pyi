import datetime

from leasehold._proto.gitlab.cells.topology_service import access_control_pb2 as _access_control_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LockPath(_message.Message):
    __slots__ = ("namespace", "key", "slot")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    key: str
    slot: int
    def __init__(self, namespace: _Optional[str] = ..., key: _Optional[str] = ..., slot: _Optional[int] = ...) -> None: ...

class TryAcquireLockRequest(_message.Message):
    __slots__ = ("session_id", "ask_id", "lock", "shared", "permits")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ASK_ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    ask_id: bytes
    lock: LockPath
    shared: bool
    permits: int
    def __init__(self, session_id: _Optional[bytes] = ..., ask_id: _Optional[bytes] = ..., lock: _Optional[_Union[LockPath, _Mapping]] = ..., shared: bool = ..., permits: _Optional[int] = ...) -> None: ...

class TryAcquireLockResponse(_message.Message):
    __slots__ = ("fence", "slot")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    fence: int
    slot: int
    def __init__(self, fence: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class AcquireLockRequest(_message.Message):
    __slots__ = ("session_id", "ask_id", "lock", "wait_micros", "shared", "permits", "held_ask_ids")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ASK_ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    WAIT_MICROS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    HELD_ASK_IDS_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    ask_id: bytes
    lock: LockPath
    wait_micros: int
    shared: bool
    permits: int
    held_ask_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, session_id: _Optional[bytes] = ..., ask_id: _Optional[bytes] = ..., lock: _Optional[_Union[LockPath, _Mapping]] = ..., wait_micros: _Optional[int] = ..., shared: bool = ..., permits: _Optional[int] = ..., held_ask_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AcquireLockResponse(_message.Message):
    __slots__ = ("waiting", "fence", "moving", "slot")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    fence: int
    moving: Moving
    slot: int
    def __init__(self, waiting: _Optional[int] = ..., fence: _Optional[int] = ..., moving: _Optional[_Union[Moving, _Mapping]] = ..., slot: _Optional[int] = ...) -> None: ...

class Moving(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LockAsk(_message.Message):
    __slots__ = ("ask_id", "lock", "shared", "permits")
    ASK_ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    ask_id: bytes
    lock: LockPath
    shared: bool
    permits: int
    def __init__(self, ask_id: _Optional[bytes] = ..., lock: _Optional[_Union[LockPath, _Mapping]] = ..., shared: bool = ..., permits: _Optional[int] = ...) -> None: ...

class AcquireLocksRequest(_message.Message):
    __slots__ = ("session_id", "asks", "wait_micros", "held_ask_ids")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MICROS_FIELD_NUMBER: _ClassVar[int]
    HELD_ASK_IDS_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    asks: _containers.RepeatedCompositeFieldContainer[LockAsk]
    wait_micros: int
    held_ask_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, session_id: _Optional[bytes] = ..., asks: _Optional[_Iterable[_Union[LockAsk, _Mapping]]] = ..., wait_micros: _Optional[int] = ..., held_ask_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AcquireLocksResponse(_message.Message):
    __slots__ = ("waiting", "granted", "moving")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    granted: GrantedLocks
    moving: Moving
    def __init__(self, waiting: _Optional[int] = ..., granted: _Optional[_Union[GrantedLocks, _Mapping]] = ..., moving: _Optional[_Union[Moving, _Mapping]] = ...) -> None: ...

class GrantedLocks(_message.Message):
    __slots__ = ("locks",)
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    locks: _containers.RepeatedCompositeFieldContainer[GrantedLock]
    def __init__(self, locks: _Optional[_Iterable[_Union[GrantedLock, _Mapping]]] = ...) -> None: ...

class GrantedLock(_message.Message):
    __slots__ = ("fence", "slot")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    fence: int
    slot: int
    def __init__(self, fence: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class LeaveLockRequest(_message.Message):
    __slots__ = ("session_id", "ask_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ASK_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    ask_id: bytes
    def __init__(self, session_id: _Optional[bytes] = ..., ask_id: _Optional[bytes] = ...) -> None: ...

class LeaveLockResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseLockRequest(_message.Message):
    __slots__ = ("session_id", "lock", "fence", "failed", "value")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    lock: LockPath
    fence: int
    failed: bool
    value: bytes
    def __init__(self, session_id: _Optional[bytes] = ..., lock: _Optional[_Union[LockPath, _Mapping]] = ..., fence: _Optional[int] = ..., failed: bool = ..., value: _Optional[bytes] = ...) -> None: ...

class ReleaseLockResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLockRequest(_message.Message):
    __slots__ = ("lock",)
    LOCK_FIELD_NUMBER: _ClassVar[int]
    lock: LockPath
    def __init__(self, lock: _Optional[_Union[LockPath, _Mapping]] = ...) -> None: ...

class GetLockResponse(_message.Message):
    __slots__ = ("lock",)
    LOCK_FIELD_NUMBER: _ClassVar[int]
    lock: Lock
    def __init__(self, lock: _Optional[_Union[Lock, _Mapping]] = ...) -> None: ...

class Lock(_message.Message):
    __slots__ = ("path", "state", "fence", "session_id", "updated_at", "waiting", "last", "obituary", "taken_slots", "permits")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Lock.State]
        FREE: _ClassVar[Lock.State]
        HELD: _ClassVar[Lock.State]
        WITHHELD: _ClassVar[Lock.State]
        ORPHANED: _ClassVar[Lock.State]
        SET_ASIDE: _ClassVar[Lock.State]
        SHARED: _ClassVar[Lock.State]
    STATE_UNSPECIFIED: Lock.State
    FREE: Lock.State
    HELD: Lock.State
    WITHHELD: Lock.State
    ORPHANED: Lock.State
    SET_ASIDE: Lock.State
    SHARED: Lock.State
    PATH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    OBITUARY_FIELD_NUMBER: _ClassVar[int]
    TAKEN_SLOTS_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    path: LockPath
    state: Lock.State
    fence: int
    session_id: bytes
    updated_at: _timestamp_pb2.Timestamp
    waiting: int
    last: EndedGrant
    obituary: Obituary
    taken_slots: int
    permits: int
    def __init__(self, path: _Optional[_Union[LockPath, _Mapping]] = ..., state: _Optional[_Union[Lock.State, str]] = ..., fence: _Optional[int] = ..., session_id: _Optional[bytes] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., waiting: _Optional[int] = ..., last: _Optional[_Union[EndedGrant, _Mapping]] = ..., obituary: _Optional[_Union[Obituary, _Mapping]] = ..., taken_slots: _Optional[int] = ..., permits: _Optional[int] = ...) -> None: ...

class Obituary(_message.Message):
    __slots__ = ("fence", "end", "ended_at", "attempts", "most_attempts")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MOST_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    fence: int
    end: EndedGrant.End
    ended_at: _timestamp_pb2.Timestamp
    attempts: int
    most_attempts: int
    def __init__(self, fence: _Optional[int] = ..., end: _Optional[_Union[EndedGrant.End, str]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempts: _Optional[int] = ..., most_attempts: _Optional[int] = ...) -> None: ...

class EndedGrant(_message.Message):
    __slots__ = ("fence", "end", "value", "ended_at")
    class End(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        END_UNSPECIFIED: _ClassVar[EndedGrant.End]
        SUCCEEDED: _ClassVar[EndedGrant.End]
        FAILED: _ClassVar[EndedGrant.End]
        LEFT: _ClassVar[EndedGrant.End]
        CLOSED: _ClassVar[EndedGrant.End]
        EXPIRED: _ClassVar[EndedGrant.End]
        EVICTED: _ClassVar[EndedGrant.End]
        FORCED: _ClassVar[EndedGrant.End]
    END_UNSPECIFIED: EndedGrant.End
    SUCCEEDED: EndedGrant.End
    FAILED: EndedGrant.End
    LEFT: EndedGrant.End
    CLOSED: EndedGrant.End
    EXPIRED: EndedGrant.End
    EVICTED: EndedGrant.End
    FORCED: EndedGrant.End
    FENCE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    fence: int
    end: EndedGrant.End
    value: bytes
    ended_at: _timestamp_pb2.Timestamp
    def __init__(self, fence: _Optional[int] = ..., end: _Optional[_Union[EndedGrant.End, str]] = ..., value: _Optional[bytes] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListLocksRequest(_message.Message):
    __slots__ = ("namespace", "limit", "after")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    limit: int
    after: LockPath
    def __init__(self, namespace: _Optional[str] = ..., limit: _Optional[int] = ..., after: _Optional[_Union[LockPath, _Mapping]] = ...) -> None: ...

class ListLocksResponse(_message.Message):
    __slots__ = ("locks", "truncated")
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    locks: _containers.RepeatedCompositeFieldContainer[Lock]
    truncated: bool
    def __init__(self, locks: _Optional[_Iterable[_Union[Lock, _Mapping]]] = ..., truncated: bool = ...) -> None: ...

class ForceLockRequest(_message.Message):
    __slots__ = ("lock", "fence", "at_once")
    LOCK_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    lock: LockPath
    fence: int
    at_once: bool
    def __init__(self, lock: _Optional[_Union[LockPath, _Mapping]] = ..., fence: _Optional[int] = ..., at_once: bool = ...) -> None: ...

class ForceLockResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReapLockRequest(_message.Message):
    __slots__ = ("session_id", "ask_id", "namespace")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ASK_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    ask_id: bytes
    namespace: str
    def __init__(self, session_id: _Optional[bytes] = ..., ask_id: _Optional[bytes] = ..., namespace: _Optional[str] = ...) -> None: ...

class ReapLockResponse(_message.Message):
    __slots__ = ("orphan", "moving")
    ORPHAN_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    orphan: Orphan
    moving: Moving
    def __init__(self, orphan: _Optional[_Union[Orphan, _Mapping]] = ..., moving: _Optional[_Union[Moving, _Mapping]] = ...) -> None: ...

class Orphan(_message.Message):
    __slots__ = ("lock", "fence", "obituary")
    LOCK_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    OBITUARY_FIELD_NUMBER: _ClassVar[int]
    lock: LockPath
    fence: int
    obituary: Obituary
    def __init__(self, lock: _Optional[_Union[LockPath, _Mapping]] = ..., fence: _Optional[int] = ..., obituary: _Optional[_Union[Obituary, _Mapping]] = ...) -> None: ...

class ResolveOrphanRequest(_message.Message):
    __slots__ = ("lock", "fence", "resolution")
    class Resolution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RESOLUTION_UNSPECIFIED: _ClassVar[ResolveOrphanRequest.Resolution]
        RETRY: _ClassVar[ResolveOrphanRequest.Resolution]
        CLEANED: _ClassVar[ResolveOrphanRequest.Resolution]
    RESOLUTION_UNSPECIFIED: ResolveOrphanRequest.Resolution
    RETRY: ResolveOrphanRequest.Resolution
    CLEANED: ResolveOrphanRequest.Resolution
    LOCK_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    lock: LockPath
    fence: int
    resolution: ResolveOrphanRequest.Resolution
    def __init__(self, lock: _Optional[_Union[LockPath, _Mapping]] = ..., fence: _Optional[int] = ..., resolution: _Optional[_Union[ResolveOrphanRequest.Resolution, str]] = ...) -> None: ...

class ResolveOrphanResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
