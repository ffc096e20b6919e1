from leasehold._proto.gitlab.cells.topology_service.claims.v1 import record_pb2 as _record_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RejectedClaims(_message.Message):
    __slots__ = ("groups",)
    class Group(_message.Message):
        __slots__ = ("reason", "claims")
        REASON_FIELD_NUMBER: _ClassVar[int]
        CLAIMS_FIELD_NUMBER: _ClassVar[int]
        reason: str
        claims: _containers.RepeatedCompositeFieldContainer[RejectedClaims.Claims]
        def __init__(self, reason: _Optional[str] = ..., claims: _Optional[_Iterable[_Union[RejectedClaims.Claims, _Mapping]]] = ...) -> None: ...
    class Claims(_message.Message):
        __slots__ = ("bucket_type", "create_positions", "destroy_positions")
        BUCKET_TYPE_FIELD_NUMBER: _ClassVar[int]
        CREATE_POSITIONS_FIELD_NUMBER: _ClassVar[int]
        DESTROY_POSITIONS_FIELD_NUMBER: _ClassVar[int]
        bucket_type: _record_pb2.Bucket.Type
        create_positions: _containers.RepeatedScalarFieldContainer[int]
        destroy_positions: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, bucket_type: _Optional[_Union[_record_pb2.Bucket.Type, str]] = ..., create_positions: _Optional[_Iterable[int]] = ..., destroy_positions: _Optional[_Iterable[int]] = ...) -> None: ...
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[RejectedClaims.Group]
    def __init__(self, groups: _Optional[_Iterable[_Union[RejectedClaims.Group, _Mapping]]] = ...) -> None: ...
