from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CellInfo(_message.Message):
    __slots__ = ("id", "name", "address", "session_prefix", "sequence_range", "sequence_ranges")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SESSION_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_RANGE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_RANGES_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    address: str
    session_prefix: str
    sequence_range: SequenceRange
    sequence_ranges: _containers.RepeatedCompositeFieldContainer[SequenceRange]
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., address: _Optional[str] = ..., session_prefix: _Optional[str] = ..., sequence_range: _Optional[_Union[SequenceRange, _Mapping]] = ..., sequence_ranges: _Optional[_Iterable[_Union[SequenceRange, _Mapping]]] = ...) -> None: ...

class SequenceRange(_message.Message):
    __slots__ = ("minval", "maxval")
    MINVAL_FIELD_NUMBER: _ClassVar[int]
    MAXVAL_FIELD_NUMBER: _ClassVar[int]
    minval: int
    maxval: int
    def __init__(self, minval: _Optional[int] = ..., maxval: _Optional[int] = ...) -> None: ...

class GetCellsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCellsResponse(_message.Message):
    __slots__ = ("cells",)
    CELLS_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedCompositeFieldContainer[CellInfo]
    def __init__(self, cells: _Optional[_Iterable[_Union[CellInfo, _Mapping]]] = ...) -> None: ...
