from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AuthorizationRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RULE_UNSPECIFIED: _ClassVar[AuthorizationRule]
    RULE_ALLOW_ANY_AUTHENTICATED: _ClassVar[AuthorizationRule]
    RULE_ALLOW_ANY_CELL: _ClassVar[AuthorizationRule]
    RULE_ALLOW_MATCHING_CELL_ONLY: _ClassVar[AuthorizationRule]
    RULE_ALLOW_ANY_ROUTER: _ClassVar[AuthorizationRule]
    RULE_ALLOW_ANY_ADMIN: _ClassVar[AuthorizationRule]
    RULE_ALLOW_ANY_SERVICE: _ClassVar[AuthorizationRule]
    RULE_ALLOW_ANY_SERVER: _ClassVar[AuthorizationRule]
RULE_UNSPECIFIED: AuthorizationRule
RULE_ALLOW_ANY_AUTHENTICATED: AuthorizationRule
RULE_ALLOW_ANY_CELL: AuthorizationRule
RULE_ALLOW_MATCHING_CELL_ONLY: AuthorizationRule
RULE_ALLOW_ANY_ROUTER: AuthorizationRule
RULE_ALLOW_ANY_ADMIN: AuthorizationRule
RULE_ALLOW_ANY_SERVICE: AuthorizationRule
RULE_ALLOW_ANY_SERVER: AuthorizationRule
ACCESS_CONTROL_FIELD_NUMBER: _ClassVar[int]
access_control: _descriptor.FieldDescriptor

class AccessControl(_message.Message):
    __slots__ = ("authorization_rules",)
    AUTHORIZATION_RULES_FIELD_NUMBER: _ClassVar[int]
    authorization_rules: _containers.RepeatedScalarFieldContainer[AuthorizationRule]
    def __init__(self, authorization_rules: _Optional[_Iterable[_Union[AuthorizationRule, str]]] = ...) -> None: ...
