"""Leasehold keeps names unique across many databases.

This package is for operators and analysts. Its rules are the server's own Rust functions, called from Python.

- `leasehold.calls`: pure functions, such as `canonical_form` and `check_batch`.
- `leasehold.client`: the gRPC client, blocking and asyncio, with locks and queues.
- `leasehold.locks`: locks as the server stores them.
- `leasehold.queues`: requests to submit, and requests, lanes and queues as the server stores them.
- `leasehold.relay`: hands what transactions have written into an outbox on to the server.
- `leasehold.service`: the claims service in memory, for tests and studies.
- `leasehold.verification`, `leasehold.reconciliation`: state machines that the caller drives.
- `leasehold.tables`: verification of PostgreSQL tables, files and Arrow data against a server.
- `leasehold.simulation`: deterministic worlds of cells, databases, network and clocks.
"""

from leasehold import reconciliation, simulation, verification
from leasehold.calls import canonical_form, check_batch, encode_source_id
from leasehold.claims import (
    Bucket,
    BucketType,
    Claim,
    Lease,
    LeasePage,
    OutstandingLease,
    Record,
    RecordPage,
    Source,
    SourceType,
    Subject,
    SubjectType,
    UserData,
)
from leasehold.errors import (
    BatchLostError,
    BusyError,
    ChangedError,
    ColumnError,
    ColumnMissingError,
    ColumnNullError,
    ColumnOrderError,
    ColumnTimeZoneError,
    ColumnTypeError,
    ColumnValueError,
    CommittedError,
    DeadlineExceededError,
    DeniedError,
    Detail,
    ImpossibleError,
    InternalError,
    InvalidError,
    LeaseholdError,
    LockLostError,
    MisconfiguredError,
    MissingExtraError,
    NoOrphanError,
    NotFoundError,
    NotOwnerError,
    OtherStoreError,
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
from leasehold.service import ClaimsService

__all__ = [
    "BatchLostError",
    "Bucket",
    "BucketType",
    "BusyError",
    "ChangedError",
    "Claim",
    "ClaimsService",
    "ColumnError",
    "ColumnMissingError",
    "ColumnNullError",
    "ColumnOrderError",
    "ColumnTimeZoneError",
    "ColumnTypeError",
    "ColumnValueError",
    "CommittedError",
    "DeadlineExceededError",
    "DeniedError",
    "Detail",
    "ImpossibleError",
    "InternalError",
    "InvalidError",
    "Lease",
    "LeasePage",
    "LeaseholdError",
    "LockLostError",
    "MisconfiguredError",
    "MissingExtraError",
    "NoOrphanError",
    "NotFoundError",
    "NotOwnerError",
    "OtherStoreError",
    "OutOfTurnError",
    "OutstandingLease",
    "OverloadedError",
    "Record",
    "RecordPage",
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
    "UserData",
    "canonical_form",
    "check_batch",
    "encode_source_id",
    "reconciliation",
    "simulation",
    "verification",
]
