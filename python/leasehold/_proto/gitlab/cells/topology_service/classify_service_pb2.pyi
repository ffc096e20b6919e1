from leasehold._proto.gitlab.cells.topology_service import access_control_pb2 as _access_control_pb2
from leasehold._proto.gitlab.cells.topology_service import cell_info_pb2 as _cell_info_pb2
from leasehold._proto.gitlab.cells.topology_service.types.v1 import claim_pb2 as _claim_pb2
from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClassifyType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[ClassifyType]
    FIRST_CELL: _ClassVar[ClassifyType]
    SESSION_PREFIX: _ClassVar[ClassifyType]
    CELL_ID: _ClassVar[ClassifyType]

class ClassifyAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[ClassifyAction]
    PROXY: _ClassVar[ClassifyAction]
UNSPECIFIED: ClassifyType
FIRST_CELL: ClassifyType
SESSION_PREFIX: ClassifyType
CELL_ID: ClassifyType
ACTION_UNSPECIFIED: ClassifyAction
PROXY: ClassifyAction

class ClassifyRequest(_message.Message):
    __slots__ = ("type", "value", "claims")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    type: ClassifyType
    value: str
    claims: _containers.RepeatedCompositeFieldContainer[_claim_pb2.Claim]
    def __init__(self, type: _Optional[_Union[ClassifyType, str]] = ..., value: _Optional[str] = ..., claims: _Optional[_Iterable[_Union[_claim_pb2.Claim, _Mapping]]] = ...) -> None: ...

class ClassifyResponse(_message.Message):
    __slots__ = ("action", "proxy", "matched_claim")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PROXY_FIELD_NUMBER: _ClassVar[int]
    MATCHED_CLAIM_FIELD_NUMBER: _ClassVar[int]
    action: ClassifyAction
    proxy: ProxyInfo
    matched_claim: _claim_pb2.Claim
    def __init__(self, action: _Optional[_Union[ClassifyAction, str]] = ..., proxy: _Optional[_Union[ProxyInfo, _Mapping]] = ..., matched_claim: _Optional[_Union[_claim_pb2.Claim, _Mapping]] = ...) -> None: ...

class ProxyInfo(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class ClassifyPagesRequest(_message.Message):
    __slots__ = ("claims",)
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[_claim_pb2.Claim]
    def __init__(self, claims: _Optional[_Iterable[_Union[_claim_pb2.Claim, _Mapping]]] = ...) -> None: ...

class ClassifyPagesResponse(_message.Message):
    __slots__ = ("action", "pages_address", "matched_claim")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PAGES_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MATCHED_CLAIM_FIELD_NUMBER: _ClassVar[int]
    action: ClassifyAction
    pages_address: str
    matched_claim: _claim_pb2.Claim
    def __init__(self, action: _Optional[_Union[ClassifyAction, str]] = ..., pages_address: _Optional[str] = ..., matched_claim: _Optional[_Union[_claim_pb2.Claim, _Mapping]] = ...) -> None: ...
