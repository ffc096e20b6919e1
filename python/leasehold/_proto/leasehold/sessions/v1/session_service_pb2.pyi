from leasehold._proto.gitlab.cells.topology_service import access_control_pb2 as _access_control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenSessionRequest(_message.Message):
    __slots__ = ("session_id", "duration_micros", "grace_micros")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_MICROS_FIELD_NUMBER: _ClassVar[int]
    GRACE_MICROS_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    duration_micros: int
    grace_micros: int
    def __init__(self, session_id: _Optional[bytes] = ..., duration_micros: _Optional[int] = ..., grace_micros: _Optional[int] = ...) -> None: ...

class OpenSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RenewSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    def __init__(self, session_id: _Optional[bytes] = ...) -> None: ...

class RenewSessionResponse(_message.Message):
    __slots__ = ("forced_fences",)
    FORCED_FENCES_FIELD_NUMBER: _ClassVar[int]
    forced_fences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, forced_fences: _Optional[_Iterable[int]] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    def __init__(self, session_id: _Optional[bytes] = ...) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    def __init__(self, session_id: _Optional[bytes] = ...) -> None: ...

class WatchSessionResponse(_message.Message):
    __slots__ = ("news",)
    class News(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NEWS_UNSPECIFIED: _ClassVar[WatchSessionResponse.News]
        WATCHED: _ClassVar[WatchSessionResponse.News]
        ENDED: _ClassVar[WatchSessionResponse.News]
        MOVING: _ClassVar[WatchSessionResponse.News]
        FORCED: _ClassVar[WatchSessionResponse.News]
    NEWS_UNSPECIFIED: WatchSessionResponse.News
    WATCHED: WatchSessionResponse.News
    ENDED: WatchSessionResponse.News
    MOVING: WatchSessionResponse.News
    FORCED: WatchSessionResponse.News
    NEWS_FIELD_NUMBER: _ClassVar[int]
    news: WatchSessionResponse.News
    def __init__(self, news: _Optional[_Union[WatchSessionResponse.News, str]] = ...) -> None: ...

class EvictSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    def __init__(self, session_id: _Optional[bytes] = ...) -> None: ...

class EvictSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
