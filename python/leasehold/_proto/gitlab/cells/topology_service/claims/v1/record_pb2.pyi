import datetime

from leasehold._proto.gitlab.cells.topology_service.types.v1 import claim_pb2 as _claim_pb2
from leasehold._proto.gitlab.cells.topology_service.types.v1 import uuid_pb2 as _uuid_pb2
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Bucket(_message.Message):
    __slots__ = ("type", "value")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Bucket.Type]
        ROUTES: _ClassVar[Bucket.Type]
        ORGANIZATION_PATH: _ClassVar[Bucket.Type]
        REDIRECT_ROUTES: _ClassVar[Bucket.Type]
        USERNAMES: _ClassVar[Bucket.Type]
        EMAILS: _ClassVar[Bucket.Type]
        PROJECT_IDS: _ClassVar[Bucket.Type]
        NAMESPACE_IDS: _ClassVar[Bucket.Type]
        GPG_KEYS: _ClassVar[Bucket.Type]
        SSH_KEYS: _ClassVar[Bucket.Type]
        USER_IDS: _ClassVar[Bucket.Type]
        ORGANIZATION_IDS: _ClassVar[Bucket.Type]
        SERVICE_DESK_CUSTOM_EMAILS: _ClassVar[Bucket.Type]
        GPG_KEY_FINGERPRINTS: _ClassVar[Bucket.Type]
        SERVICE_DESK_PROJECT_KEY_ADDRESS_SLUGS: _ClassVar[Bucket.Type]
        SSH_KEY_FINGERPRINTS: _ClassVar[Bucket.Type]
        SNIPPET_IDS: _ClassVar[Bucket.Type]
        PAGES_DOMAINS: _ClassVar[Bucket.Type]
        PAGES_UNIQUE_DOMAINS: _ClassVar[Bucket.Type]
    UNSPECIFIED: Bucket.Type
    ROUTES: Bucket.Type
    ORGANIZATION_PATH: Bucket.Type
    REDIRECT_ROUTES: Bucket.Type
    USERNAMES: Bucket.Type
    EMAILS: Bucket.Type
    PROJECT_IDS: Bucket.Type
    NAMESPACE_IDS: Bucket.Type
    GPG_KEYS: Bucket.Type
    SSH_KEYS: Bucket.Type
    USER_IDS: Bucket.Type
    ORGANIZATION_IDS: Bucket.Type
    SERVICE_DESK_CUSTOM_EMAILS: Bucket.Type
    GPG_KEY_FINGERPRINTS: Bucket.Type
    SERVICE_DESK_PROJECT_KEY_ADDRESS_SLUGS: Bucket.Type
    SSH_KEY_FINGERPRINTS: Bucket.Type
    SNIPPET_IDS: Bucket.Type
    PAGES_DOMAINS: Bucket.Type
    PAGES_UNIQUE_DOMAINS: Bucket.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    type: Bucket.Type
    value: str
    def __init__(self, type: _Optional[_Union[Bucket.Type, str]] = ..., value: _Optional[str] = ...) -> None: ...

class Subject(_message.Message):
    __slots__ = ("type", "id")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Subject.Type]
        ORGANIZATION: _ClassVar[Subject.Type]
        NAMESPACE: _ClassVar[Subject.Type]
        PROJECT: _ClassVar[Subject.Type]
        USER: _ClassVar[Subject.Type]
    UNSPECIFIED: Subject.Type
    ORGANIZATION: Subject.Type
    NAMESPACE: Subject.Type
    PROJECT: Subject.Type
    USER: Subject.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    type: Subject.Type
    id: int
    def __init__(self, type: _Optional[_Union[Subject.Type, str]] = ..., id: _Optional[int] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("type", "rails_primary_key_id")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Source.Type]
        RAILS_TABLE_USERS: _ClassVar[Source.Type]
        RAILS_TABLE_EMAILS: _ClassVar[Source.Type]
        RAILS_TABLE_ROUTES: _ClassVar[Source.Type]
        RAILS_TABLE_PROJECTS: _ClassVar[Source.Type]
        RAILS_TABLE_NAMESPACES: _ClassVar[Source.Type]
        RAILS_TABLE_ORGANIZATIONS: _ClassVar[Source.Type]
        RAILS_TABLE_REDIRECT_ROUTES: _ClassVar[Source.Type]
        RAILS_TABLE_GPG_KEYS: _ClassVar[Source.Type]
        RAILS_TABLE_KEYS: _ClassVar[Source.Type]
        RAILS_TABLE_SERVICE_DESK_SETTINGS: _ClassVar[Source.Type]
        RAILS_TABLE_MEMBERS: _ClassVar[Source.Type]
        RAILS_TABLE_SNIPPETS: _ClassVar[Source.Type]
        RAILS_TABLE_PAGES_DOMAINS: _ClassVar[Source.Type]
        RAILS_TABLE_PROJECT_SETTINGS: _ClassVar[Source.Type]
        RAILS_TABLE_JIRA_CONNECT_INSTALLATIONS: _ClassVar[Source.Type]
    UNSPECIFIED: Source.Type
    RAILS_TABLE_USERS: Source.Type
    RAILS_TABLE_EMAILS: Source.Type
    RAILS_TABLE_ROUTES: Source.Type
    RAILS_TABLE_PROJECTS: Source.Type
    RAILS_TABLE_NAMESPACES: Source.Type
    RAILS_TABLE_ORGANIZATIONS: Source.Type
    RAILS_TABLE_REDIRECT_ROUTES: Source.Type
    RAILS_TABLE_GPG_KEYS: Source.Type
    RAILS_TABLE_KEYS: Source.Type
    RAILS_TABLE_SERVICE_DESK_SETTINGS: Source.Type
    RAILS_TABLE_MEMBERS: Source.Type
    RAILS_TABLE_SNIPPETS: Source.Type
    RAILS_TABLE_PAGES_DOMAINS: Source.Type
    RAILS_TABLE_PROJECT_SETTINGS: Source.Type
    RAILS_TABLE_JIRA_CONNECT_INSTALLATIONS: Source.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RAILS_PRIMARY_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    type: Source.Type
    rails_primary_key_id: bytes
    def __init__(self, type: _Optional[_Union[Source.Type, str]] = ..., rails_primary_key_id: _Optional[bytes] = ...) -> None: ...

class Metadata(_message.Message):
    __slots__ = ("bucket", "subject", "source", "user_data", "claim")
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    USER_DATA_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    bucket: Bucket
    subject: Subject
    source: Source
    user_data: _any_pb2.Any
    claim: _claim_pb2.Claim
    def __init__(self, bucket: _Optional[_Union[Bucket, _Mapping]] = ..., subject: _Optional[_Union[Subject, _Mapping]] = ..., source: _Optional[_Union[Source, _Mapping]] = ..., user_data: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., claim: _Optional[_Union[_claim_pb2.Claim, _Mapping]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("uuid", "metadata", "cell_id", "status", "lease_uuid", "created_at", "updated_at")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Record.Status]
        ACTIVE: _ClassVar[Record.Status]
        LEASE_CREATING: _ClassVar[Record.Status]
        LEASE_DESTROYING: _ClassVar[Record.Status]
    UNSPECIFIED: Record.Status
    ACTIVE: Record.Status
    LEASE_CREATING: Record.Status
    LEASE_DESTROYING: Record.Status
    UUID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEASE_UUID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    uuid: _uuid_pb2.UUID
    metadata: Metadata
    cell_id: int
    status: Record.Status
    lease_uuid: _uuid_pb2.UUID
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, uuid: _Optional[_Union[_uuid_pb2.UUID, _Mapping]] = ..., metadata: _Optional[_Union[Metadata, _Mapping]] = ..., cell_id: _Optional[int] = ..., status: _Optional[_Union[Record.Status, str]] = ..., lease_uuid: _Optional[_Union[_uuid_pb2.UUID, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class LeaseRecord(_message.Message):
    __slots__ = ("uuid", "created_at", "updated_at")
    UUID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    uuid: _uuid_pb2.UUID
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, uuid: _Optional[_Union[_uuid_pb2.UUID, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
