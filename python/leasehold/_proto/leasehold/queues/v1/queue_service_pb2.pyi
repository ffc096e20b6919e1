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

class RequestKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_KIND_UNSPECIFIED: _ClassVar[RequestKind]
    CREATE: _ClassVar[RequestKind]
    UPDATE: _ClassVar[RequestKind]

class RequestState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_STATE_UNSPECIFIED: _ClassVar[RequestState]
    NEW: _ClassVar[RequestState]
    IN_PROGRESS: _ClassVar[RequestState]
    COMPLETE: _ClassVar[RequestState]
    ERROR: _ClassVar[RequestState]
REQUEST_KIND_UNSPECIFIED: RequestKind
CREATE: RequestKind
UPDATE: RequestKind
REQUEST_STATE_UNSPECIFIED: RequestState
NEW: RequestState
IN_PROGRESS: RequestState
COMPLETE: RequestState
ERROR: RequestState

class SubmitRequest(_message.Message):
    __slots__ = ("queue", "requests")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    requests: _containers.RepeatedCompositeFieldContainer[NewRequest]
    def __init__(self, queue: _Optional[str] = ..., requests: _Optional[_Iterable[_Union[NewRequest, _Mapping]]] = ...) -> None: ...

class NewRequest(_message.Message):
    __slots__ = ("request_id", "key", "kind", "priority", "delay_micros", "max_attempts", "body")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_MICROS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    key: str
    kind: RequestKind
    priority: int
    delay_micros: int
    max_attempts: int
    body: bytes
    def __init__(self, request_id: _Optional[bytes] = ..., key: _Optional[str] = ..., kind: _Optional[_Union[RequestKind, str]] = ..., priority: _Optional[int] = ..., delay_micros: _Optional[int] = ..., max_attempts: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[SubmittedRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[SubmittedRequest, _Mapping]]] = ...) -> None: ...

class SubmittedRequest(_message.Message):
    __slots__ = ("request_id", "is_new")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    is_new: bool
    def __init__(self, request_id: _Optional[bytes] = ..., is_new: bool = ...) -> None: ...

class TakeNowRequest(_message.Message):
    __slots__ = ("session_id", "queue", "take_id", "max_requests")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TAKE_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    queue: str
    take_id: bytes
    max_requests: int
    def __init__(self, session_id: _Optional[bytes] = ..., queue: _Optional[str] = ..., take_id: _Optional[bytes] = ..., max_requests: _Optional[int] = ...) -> None: ...

class TakeNowResponse(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("key", "fence", "requests", "progress", "kind")
    KEY_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    key: str
    fence: int
    requests: _containers.RepeatedCompositeFieldContainer[TakenRequest]
    progress: bytes
    kind: RequestKind
    def __init__(self, key: _Optional[str] = ..., fence: _Optional[int] = ..., requests: _Optional[_Iterable[_Union[TakenRequest, _Mapping]]] = ..., progress: _Optional[bytes] = ..., kind: _Optional[_Union[RequestKind, str]] = ...) -> None: ...

class TakenRequest(_message.Message):
    __slots__ = ("request_id", "attempt", "body")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    attempt: int
    body: bytes
    def __init__(self, request_id: _Optional[bytes] = ..., attempt: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class TakeRequest(_message.Message):
    __slots__ = ("session_id", "queue", "credit", "held_fences", "max_requests")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    HELD_FENCES_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    queue: str
    credit: int
    held_fences: _containers.RepeatedScalarFieldContainer[int]
    max_requests: int
    def __init__(self, session_id: _Optional[bytes] = ..., queue: _Optional[str] = ..., credit: _Optional[int] = ..., held_fences: _Optional[_Iterable[int]] = ..., max_requests: _Optional[int] = ...) -> None: ...

class TakeResponse(_message.Message):
    __slots__ = ("batch", "moving")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    moving: Moving
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ..., moving: _Optional[_Union[Moving, _Mapping]] = ...) -> None: ...

class Moving(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("session_id", "queue", "key", "fence", "outcome", "retry_micros")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[SettleRequest.Outcome]
        COMPLETED: _ClassVar[SettleRequest.Outcome]
        FAILED: _ClassVar[SettleRequest.Outcome]
        GIVEN_BACK: _ClassVar[SettleRequest.Outcome]
    OUTCOME_UNSPECIFIED: SettleRequest.Outcome
    COMPLETED: SettleRequest.Outcome
    FAILED: SettleRequest.Outcome
    GIVEN_BACK: SettleRequest.Outcome
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RETRY_MICROS_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    queue: str
    key: str
    fence: int
    outcome: SettleRequest.Outcome
    retry_micros: int
    def __init__(self, session_id: _Optional[bytes] = ..., queue: _Optional[str] = ..., key: _Optional[str] = ..., fence: _Optional[int] = ..., outcome: _Optional[_Union[SettleRequest.Outcome, str]] = ..., retry_micros: _Optional[int] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NoteProgressRequest(_message.Message):
    __slots__ = ("session_id", "queue", "key", "fence", "progress")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    queue: str
    key: str
    fence: int
    progress: bytes
    def __init__(self, session_id: _Optional[bytes] = ..., queue: _Optional[str] = ..., key: _Optional[str] = ..., fence: _Optional[int] = ..., progress: _Optional[bytes] = ...) -> None: ...

class NoteProgressResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WithdrawRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    def __init__(self, request_id: _Optional[bytes] = ...) -> None: ...

class WithdrawResponse(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: RequestState
    def __init__(self, found: _Optional[_Union[RequestState, str]] = ...) -> None: ...

class ResubmitRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    def __init__(self, request_id: _Optional[bytes] = ...) -> None: ...

class ResubmitResponse(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: RequestState
    def __init__(self, found: _Optional[_Union[RequestState, str]] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("queue", "key", "resume")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    queue: str
    key: str
    resume: bool
    def __init__(self, queue: _Optional[str] = ..., key: _Optional[str] = ..., resume: bool = ...) -> None: ...

class PauseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetLimitRequest(_message.Message):
    __slots__ = ("queue", "limit")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    limit: int
    def __init__(self, queue: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class SetLimitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetRequestRequest(_message.Message):
    __slots__ = ("request_id", "with_body")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_BODY_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    with_body: bool
    def __init__(self, request_id: _Optional[bytes] = ..., with_body: bool = ...) -> None: ...

class GetRequestResponse(_message.Message):
    __slots__ = ("request", "body")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    request: Request
    body: bytes
    def __init__(self, request: _Optional[_Union[Request, _Mapping]] = ..., body: _Optional[bytes] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("request_id", "queue", "key", "number", "kind", "priority", "state", "not_before", "attempts", "max_attempts", "body_bytes", "submitted_at", "updated_at")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    queue: str
    key: str
    number: int
    kind: RequestKind
    priority: int
    state: RequestState
    not_before: _timestamp_pb2.Timestamp
    attempts: int
    max_attempts: int
    body_bytes: int
    submitted_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, request_id: _Optional[bytes] = ..., queue: _Optional[str] = ..., key: _Optional[str] = ..., number: _Optional[int] = ..., kind: _Optional[_Union[RequestKind, str]] = ..., priority: _Optional[int] = ..., state: _Optional[_Union[RequestState, str]] = ..., not_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempts: _Optional[int] = ..., max_attempts: _Optional[int] = ..., body_bytes: _Optional[int] = ..., submitted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class GetQueueResponse(_message.Message):
    __slots__ = ("is_paused", "limit", "taken")
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    is_paused: bool
    limit: int
    taken: int
    def __init__(self, is_paused: bool = ..., limit: _Optional[int] = ..., taken: _Optional[int] = ...) -> None: ...

class ListRequestsRequest(_message.Message):
    __slots__ = ("queue", "key", "list", "limit", "after")
    class List(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LIST_UNSPECIFIED: _ClassVar[ListRequestsRequest.List]
        TAKEN: _ClassVar[ListRequestsRequest.List]
        WAITING: _ClassVar[ListRequestsRequest.List]
        SETTLED: _ClassVar[ListRequestsRequest.List]
    LIST_UNSPECIFIED: ListRequestsRequest.List
    TAKEN: ListRequestsRequest.List
    WAITING: ListRequestsRequest.List
    SETTLED: ListRequestsRequest.List
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    key: str
    list: ListRequestsRequest.List
    limit: int
    after: RequestPlace
    def __init__(self, queue: _Optional[str] = ..., key: _Optional[str] = ..., list: _Optional[_Union[ListRequestsRequest.List, str]] = ..., limit: _Optional[int] = ..., after: _Optional[_Union[RequestPlace, _Mapping]] = ...) -> None: ...

class RequestPlace(_message.Message):
    __slots__ = ("number", "settled_micros", "request_id")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SETTLED_MICROS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    number: int
    settled_micros: int
    request_id: bytes
    def __init__(self, number: _Optional[int] = ..., settled_micros: _Optional[int] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class ListRequestsResponse(_message.Message):
    __slots__ = ("requests", "next")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    next: RequestPlace
    def __init__(self, requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ..., next: _Optional[_Union[RequestPlace, _Mapping]] = ...) -> None: ...

class Lane(_message.Message):
    __slots__ = ("queue", "key", "is_paused", "waiting", "not_before", "session_id", "fence", "taken_at", "updated_at")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    TAKEN_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    key: str
    is_paused: bool
    waiting: int
    not_before: _timestamp_pb2.Timestamp
    session_id: bytes
    fence: int
    taken_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, queue: _Optional[str] = ..., key: _Optional[str] = ..., is_paused: bool = ..., waiting: _Optional[int] = ..., not_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., session_id: _Optional[bytes] = ..., fence: _Optional[int] = ..., taken_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListLanesRequest(_message.Message):
    __slots__ = ("queue", "list", "limit", "after")
    class List(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LIST_UNSPECIFIED: _ClassVar[ListLanesRequest.List]
        READY: _ClassVar[ListLanesRequest.List]
        DELAYED: _ClassVar[ListLanesRequest.List]
        TAKEN: _ClassVar[ListLanesRequest.List]
        PAUSED: _ClassVar[ListLanesRequest.List]
    LIST_UNSPECIFIED: ListLanesRequest.List
    READY: ListLanesRequest.List
    DELAYED: ListLanesRequest.List
    TAKEN: ListLanesRequest.List
    PAUSED: ListLanesRequest.List
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    list: ListLanesRequest.List
    limit: int
    after: LanePlace
    def __init__(self, queue: _Optional[str] = ..., list: _Optional[_Union[ListLanesRequest.List, str]] = ..., limit: _Optional[int] = ..., after: _Optional[_Union[LanePlace, _Mapping]] = ...) -> None: ...

class LanePlace(_message.Message):
    __slots__ = ("queue", "key", "micros", "session_id", "fence")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MICROS_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    key: str
    micros: int
    session_id: bytes
    fence: int
    def __init__(self, queue: _Optional[str] = ..., key: _Optional[str] = ..., micros: _Optional[int] = ..., session_id: _Optional[bytes] = ..., fence: _Optional[int] = ...) -> None: ...

class ListLanesResponse(_message.Message):
    __slots__ = ("lanes", "next")
    LANES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    lanes: _containers.RepeatedCompositeFieldContainer[Lane]
    next: LanePlace
    def __init__(self, lanes: _Optional[_Iterable[_Union[Lane, _Mapping]]] = ..., next: _Optional[_Union[LanePlace, _Mapping]] = ...) -> None: ...
