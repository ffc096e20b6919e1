"""Leasehold keeps names unique across many databases. This is its engine for operators and analysts.

The functions are those of the server: written in Rust, called from Python.
"""

from leasehold.calls import canonical_form, check_batch, encode_source_id
from leasehold.claims import BucketType, Claim, Source, SourceType, Subject, SubjectType
from leasehold.errors import (
    BusyError,
    ChangedError,
    CommittedError,
    DeniedError,
    Detail,
    ImpossibleError,
    InternalError,
    InvalidError,
    LeaseholdError,
    NotFoundError,
    NotOwnerError,
    OutOfTurnError,
    OverloadedError,
    RolledBackError,
    RowsError,
    SessionInUseError,
    TakenError,
    TraceError,
    UnauthenticatedError,
    UnavailableError,
)

__all__ = [
    "BucketType",
    "BusyError",
    "ChangedError",
    "Claim",
    "CommittedError",
    "DeniedError",
    "Detail",
    "ImpossibleError",
    "InternalError",
    "InvalidError",
    "LeaseholdError",
    "NotFoundError",
    "NotOwnerError",
    "OutOfTurnError",
    "OverloadedError",
    "RolledBackError",
    "RowsError",
    "SessionInUseError",
    "Source",
    "SourceType",
    "Subject",
    "SubjectType",
    "TakenError",
    "TraceError",
    "UnauthenticatedError",
    "UnavailableError",
    "canonical_form",
    "check_batch",
    "encode_source_id",
]
