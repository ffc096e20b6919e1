import datetime

from leasehold._proto.gitlab.cells.topology_service import access_control_pb2 as _access_control_pb2
from leasehold._proto.gitlab.cells.topology_service import cell_info_pb2 as _cell_info_pb2
from leasehold._proto.gitlab.cells.topology_service.claims.v1 import record_pb2 as _record_pb2
from leasehold._proto.gitlab.cells.topology_service.types.v1 import claim_pb2 as _claim_pb2
from leasehold._proto.gitlab.cells.topology_service.types.v1 import uuid_pb2 as _uuid_pb2
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetRecordRequest(_message.Message):
    __slots__ = ("bucket", "claim")
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    bucket: _record_pb2.Bucket
    claim: _claim_pb2.Claim
    def __init__(self, bucket: _Optional[_Union[_record_pb2.Bucket, _Mapping]] = ..., claim: _Optional[_Union[_claim_pb2.Claim, _Mapping]] = ...) -> None: ...

class GetRecordResponse(_message.Message):
    __slots__ = ("record", "cell_info")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    CELL_INFO_FIELD_NUMBER: _ClassVar[int]
    record: _record_pb2.Record
    cell_info: _cell_info_pb2.CellInfo
    def __init__(self, record: _Optional[_Union[_record_pb2.Record, _Mapping]] = ..., cell_info: _Optional[_Union[_cell_info_pb2.CellInfo, _Mapping]] = ...) -> None: ...

class BeginUpdateRequest(_message.Message):
    __slots__ = ("create_records", "destroy_records", "cell_id", "organization_id")
    CREATE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    DESTROY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    ORGANIZATION_ID_FIELD_NUMBER: _ClassVar[int]
    create_records: _containers.RepeatedCompositeFieldContainer[_record_pb2.Metadata]
    destroy_records: _containers.RepeatedCompositeFieldContainer[_record_pb2.Metadata]
    cell_id: int
    organization_id: int
    def __init__(self, create_records: _Optional[_Iterable[_Union[_record_pb2.Metadata, _Mapping]]] = ..., destroy_records: _Optional[_Iterable[_Union[_record_pb2.Metadata, _Mapping]]] = ..., cell_id: _Optional[int] = ..., organization_id: _Optional[int] = ...) -> None: ...

class BeginUpdateResponse(_message.Message):
    __slots__ = ("cell_id", "lease_uuid")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_UUID_FIELD_NUMBER: _ClassVar[int]
    cell_id: int
    lease_uuid: _uuid_pb2.UUID
    def __init__(self, cell_id: _Optional[int] = ..., lease_uuid: _Optional[_Union[_uuid_pb2.UUID, _Mapping]] = ...) -> None: ...

class CommitUpdateRequest(_message.Message):
    __slots__ = ("cell_id", "lease_uuid")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_UUID_FIELD_NUMBER: _ClassVar[int]
    cell_id: int
    lease_uuid: _uuid_pb2.UUID
    def __init__(self, cell_id: _Optional[int] = ..., lease_uuid: _Optional[_Union[_uuid_pb2.UUID, _Mapping]] = ...) -> None: ...

class CommitUpdateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RollbackUpdateRequest(_message.Message):
    __slots__ = ("cell_id", "lease_uuid")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_UUID_FIELD_NUMBER: _ClassVar[int]
    cell_id: int
    lease_uuid: _uuid_pb2.UUID
    def __init__(self, cell_id: _Optional[int] = ..., lease_uuid: _Optional[_Union[_uuid_pb2.UUID, _Mapping]] = ...) -> None: ...

class RollbackUpdateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ("cell_id", "next", "limit", "created_after")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AFTER_FIELD_NUMBER: _ClassVar[int]
    cell_id: int
    next: _any_pb2.Any
    limit: int
    created_after: _timestamp_pb2.Timestamp
    def __init__(self, cell_id: _Optional[int] = ..., next: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., limit: _Optional[int] = ..., created_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListLeasesResponse(_message.Message):
    __slots__ = ("leases", "next")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[_record_pb2.LeaseRecord]
    next: _any_pb2.Any
    def __init__(self, leases: _Optional[_Iterable[_Union[_record_pb2.LeaseRecord, _Mapping]]] = ..., next: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class ListRecordsRequest(_message.Message):
    __slots__ = ("cell_id", "source_type", "bucket_types", "source_id_gt", "source_id_lte", "claim_types")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    BUCKET_TYPES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_GT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_LTE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_TYPES_FIELD_NUMBER: _ClassVar[int]
    cell_id: int
    source_type: _record_pb2.Source.Type
    bucket_types: _containers.RepeatedScalarFieldContainer[_record_pb2.Bucket.Type]
    source_id_gt: bytes
    source_id_lte: bytes
    claim_types: _containers.RepeatedScalarFieldContainer[_claim_pb2.ClaimType]
    def __init__(self, cell_id: _Optional[int] = ..., source_type: _Optional[_Union[_record_pb2.Source.Type, str]] = ..., bucket_types: _Optional[_Iterable[_Union[_record_pb2.Bucket.Type, str]]] = ..., source_id_gt: _Optional[bytes] = ..., source_id_lte: _Optional[bytes] = ..., claim_types: _Optional[_Iterable[_Union[_claim_pb2.ClaimType, str]]] = ...) -> None: ...

class ListRecordsResponse(_message.Message):
    __slots__ = ("records", "truncated")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[_record_pb2.Record]
    truncated: bool
    def __init__(self, records: _Optional[_Iterable[_Union[_record_pb2.Record, _Mapping]]] = ..., truncated: bool = ...) -> None: ...
