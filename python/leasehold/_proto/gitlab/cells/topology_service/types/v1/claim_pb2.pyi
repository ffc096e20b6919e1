from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ClaimType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLAIM_TYPE_UNSPECIFIED: _ClassVar[ClaimType]
    CLAIM_TYPE_ROUTE: _ClassVar[ClaimType]
    CLAIM_TYPE_ORGANIZATION_PATH: _ClassVar[ClaimType]
    CLAIM_TYPE_REDIRECT_ROUTE: _ClassVar[ClaimType]
    CLAIM_TYPE_USERNAME: _ClassVar[ClaimType]
    CLAIM_TYPE_EMAIL: _ClassVar[ClaimType]
    CLAIM_TYPE_PROJECT_ID: _ClassVar[ClaimType]
    CLAIM_TYPE_NAMESPACE_ID: _ClassVar[ClaimType]
    CLAIM_TYPE_GPG_KEY: _ClassVar[ClaimType]
    CLAIM_TYPE_SSH_KEY: _ClassVar[ClaimType]
    CLAIM_TYPE_USER_ID: _ClassVar[ClaimType]
    CLAIM_TYPE_ORGANIZATION_ID: _ClassVar[ClaimType]
    CLAIM_TYPE_SERVICE_DESK_CUSTOM_EMAIL: _ClassVar[ClaimType]
    CLAIM_TYPE_GPG_KEY_FINGERPRINT: _ClassVar[ClaimType]
    CLAIM_TYPE_SERVICE_DESK_PROJECT_KEY_ADDRESS_SLUG: _ClassVar[ClaimType]
    CLAIM_TYPE_SSH_KEY_FINGERPRINT: _ClassVar[ClaimType]
    CLAIM_TYPE_SNIPPET_ID: _ClassVar[ClaimType]
    CLAIM_TYPE_PAGES_DOMAIN: _ClassVar[ClaimType]
    CLAIM_TYPE_PAGES_UNIQUE_DOMAIN: _ClassVar[ClaimType]
CLAIM_TYPE_UNSPECIFIED: ClaimType
CLAIM_TYPE_ROUTE: ClaimType
CLAIM_TYPE_ORGANIZATION_PATH: ClaimType
CLAIM_TYPE_REDIRECT_ROUTE: ClaimType
CLAIM_TYPE_USERNAME: ClaimType
CLAIM_TYPE_EMAIL: ClaimType
CLAIM_TYPE_PROJECT_ID: ClaimType
CLAIM_TYPE_NAMESPACE_ID: ClaimType
CLAIM_TYPE_GPG_KEY: ClaimType
CLAIM_TYPE_SSH_KEY: ClaimType
CLAIM_TYPE_USER_ID: ClaimType
CLAIM_TYPE_ORGANIZATION_ID: ClaimType
CLAIM_TYPE_SERVICE_DESK_CUSTOM_EMAIL: ClaimType
CLAIM_TYPE_GPG_KEY_FINGERPRINT: ClaimType
CLAIM_TYPE_SERVICE_DESK_PROJECT_KEY_ADDRESS_SLUG: ClaimType
CLAIM_TYPE_SSH_KEY_FINGERPRINT: ClaimType
CLAIM_TYPE_SNIPPET_ID: ClaimType
CLAIM_TYPE_PAGES_DOMAIN: ClaimType
CLAIM_TYPE_PAGES_UNIQUE_DOMAIN: ClaimType

class Claim(_message.Message):
    __slots__ = ("route", "organization_path", "redirect_route", "username", "email", "project_id", "namespace_id", "gpg_key", "ssh_key", "user_id", "organization_id", "service_desk_custom_email", "gpg_key_fingerprint", "service_desk_project_key_address_slug", "ssh_key_fingerprint", "snippet_id", "pages_domain", "pages_unique_domain")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ORGANIZATION_PATH_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_ROUTE_FIELD_NUMBER: _ClassVar[int]
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    EMAIL_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    GPG_KEY_FIELD_NUMBER: _ClassVar[int]
    SSH_KEY_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ORGANIZATION_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_DESK_CUSTOM_EMAIL_FIELD_NUMBER: _ClassVar[int]
    GPG_KEY_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SERVICE_DESK_PROJECT_KEY_ADDRESS_SLUG_FIELD_NUMBER: _ClassVar[int]
    SSH_KEY_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SNIPPET_ID_FIELD_NUMBER: _ClassVar[int]
    PAGES_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PAGES_UNIQUE_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    route: str
    organization_path: str
    redirect_route: str
    username: str
    email: str
    project_id: int
    namespace_id: int
    gpg_key: str
    ssh_key: str
    user_id: int
    organization_id: int
    service_desk_custom_email: str
    gpg_key_fingerprint: str
    service_desk_project_key_address_slug: str
    ssh_key_fingerprint: str
    snippet_id: int
    pages_domain: str
    pages_unique_domain: str
    def __init__(self, route: _Optional[str] = ..., organization_path: _Optional[str] = ..., redirect_route: _Optional[str] = ..., username: _Optional[str] = ..., email: _Optional[str] = ..., project_id: _Optional[int] = ..., namespace_id: _Optional[int] = ..., gpg_key: _Optional[str] = ..., ssh_key: _Optional[str] = ..., user_id: _Optional[int] = ..., organization_id: _Optional[int] = ..., service_desk_custom_email: _Optional[str] = ..., gpg_key_fingerprint: _Optional[str] = ..., service_desk_project_key_address_slug: _Optional[str] = ..., ssh_key_fingerprint: _Optional[str] = ..., snippet_id: _Optional[int] = ..., pages_domain: _Optional[str] = ..., pages_unique_domain: _Optional[str] = ...) -> None: ...
