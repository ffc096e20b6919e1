"""Exceptions of the package.

Each reason code maps to one exception class. Codes are the same in every language package and on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from leasehold import _native

__all__ = [
    "BatchLostError",
    "BusyError",
    "ChangedError",
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
    "LeaseholdError",
    "LockLostError",
    "MisconfiguredError",
    "MissingExtraError",
    "NoOrphanError",
    "NotFoundError",
    "NotOwnerError",
    "OtherStoreError",
    "OutOfTurnError",
    "OverloadedError",
    "RolledBackError",
    "RowsError",
    "SessionInUseError",
    "TakenError",
    "TraceError",
    "UnauthenticatedError",
    "UnavailableError",
]


@dataclass(frozen=True)
class Detail:
    """One claim of an update that was refused, and the reason.

    Attributes
    ----------
    list : {"creates", "destroys"}
        The list of the update that contains the claim.
    position : int
        The index of the claim in that list, from 0.
    bucket_type : int
        The number of the bucket type.
    code : str
        The reason code, as in `ErrorInfo.reason` on the wire.
    number : int
        The number of the reason in the engine; 0 if this version does not know the code.
    message : str
        A description for people. It never contains the value.
    """

    list: Literal["creates", "destroys"]
    position: int
    bucket_type: int
    code: str
    number: int
    message: str


class LeaseholdError(Exception):
    """Base class of every exception that this package raises for a failed request.

    Parameters
    ----------
    message : str
        A description for people. It never contains the value of a claim.
    code : str
        The reason code, for programs.
    details : iterable of Detail, optional
        The refused claims, if single claims are the cause.
    retry_after_seconds : float, optional
        The delay before a retry, if a retry can succeed.
    metadata : mapping of str to str, optional
        Further facts for programs, such as the limit that was exceeded.

    Attributes
    ----------
    outcome_is_unknown : bool
        True if the request may have taken effect although no answer arrived.
    idempotency_key : str or None
        The key of the failed begin. A repeated begin with this key and the same update returns the same lease.
    lease_uuid : str or None
        The lease whose commit or rollback failed.
    grpc_status : str or None
        The name of the gRPC status with which a call failed, such as `NOT_FOUND`; None if no call failed.

    Examples
    --------
    >>> import leasehold
    >>> try:
    ...     leasehold.canonical_form(leasehold.BucketType.USERNAMES, "two words")
    ... except leasehold.LeaseholdError as error:
    ...     print(type(error).__name__, error.code, error.number)
    InvalidError VALUE_NOT_ALLOWED 3
    """

    is_temporary: bool = False
    """True if the same request can succeed later, although the caller changes nothing."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        details: Iterable[Detail] = (),
        retry_after_seconds: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message: Final = message
        self.code: Final = code
        self.details: Final = tuple(details)
        self.retry_after_seconds: Final = retry_after_seconds
        self.metadata: Final = dict(metadata or {})
        self.outcome_is_unknown: bool = False
        self.idempotency_key: str | None = None
        self.lease_uuid: str | None = None
        self.grpc_status: str | None = None

    @property
    def number(self) -> int:
        """The engine's number of the reason code; 0 if the code is not one of the engine's reasons."""
        return NUMBERS.get(self.code, 0)

    def __reduce__(self) -> tuple[object, ...]:
        # CPython's `BaseException.__reduce__` calls the class with `self.args` only (Objects/exceptions.c,
        # BaseException_reduce). `code` is keyword-only, so without this method an exception of a worker process could not be
        # unpickled.
        arguments = (type(self), self.message, self.code, self.details, self.retry_after_seconds, self.metadata)
        state = {name: getattr(self, name) for name in ("outcome_is_unknown", "idempotency_key", "lease_uuid", "grpc_status")}
        return _restore, arguments, state


class InvalidError(LeaseholdError):
    """The request is malformed, exceeds a limit, or contains a value that its bucket type does not allow."""


class TakenError(LeaseholdError):
    """Another claim of the bucket exists, and no lease holds that claim. A retry cannot succeed."""


class BusyError(LeaseholdError):
    """Another lease holds the bucket. A retry can succeed after that lease ends."""

    is_temporary = True


class ChangedError(LeaseholdError):
    """The claim that the update destroys comes from another source row than the update says."""


class NotFoundError(LeaseholdError):
    """The claim or the lease does not exist; `code` tells which."""


class NotOwnerError(LeaseholdError):
    """The claim or the lease belongs to another cell."""


class RolledBackError(LeaseholdError):
    """The lease cannot be committed, because it was rolled back before."""


class CommittedError(LeaseholdError):
    """The lease cannot be rolled back, because it was committed before."""


class MisconfiguredError(LeaseholdError, ValueError):
    """The caller's configuration or arguments cannot work. The request had no effect."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "MISCONFIGURED",
        details: Iterable[Detail] = (),
        retry_after_seconds: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, code=code, details=details, retry_after_seconds=retry_after_seconds, metadata=metadata)


class MissingExtraError(MisconfiguredError, ImportError):
    """A library of an extra is not installed, and this part of the package needs it.

    Parameters
    ----------
    library : str
        The name of the library, or the reason why it cannot be imported.
    extra : str
        The name of the extra that installs it.
    """

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"`{library}` cannot be imported: run `pip install 'leasehold[{extra}]'`")
        self.extra: Final = extra
        self._library = library

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._library, self.extra)


class OtherStoreError(MisconfiguredError):
    """The server has another store than the client was created for.

    The request had no effect, unless the server does not tell its store.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "OTHER_STORE",
        details: Iterable[Detail] = (),
        retry_after_seconds: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, code=code, details=details, retry_after_seconds=retry_after_seconds, metadata=metadata)


class UnauthenticatedError(LeaseholdError):
    """The client certificate carries no identity."""


class DeniedError(LeaseholdError):
    """The identity in the client certificate is not allowed to make this call."""


class LockLostError(LeaseholdError):
    """The session of a lock was lost while the lock was needed. Another process may hold the lock now."""


class BatchLostError(LeaseholdError):
    """The session of a batch was lost before its end. The requests are another worker's by now; the work may run twice."""


class NoOrphanError(LeaseholdError):
    """No lock of the namespace waited for a cleanup in the time of the wait."""

    is_temporary = True


class OverloadedError(LeaseholdError):
    """The server rejects new requests because too many are in progress."""

    is_temporary = True


class UnavailableError(LeaseholdError):
    """The server cannot be reached, or its store is down. The request may have taken effect."""

    is_temporary = True


class DeadlineExceededError(LeaseholdError):
    """No answer arrived within the timeout. The request may have taken effect."""

    is_temporary = True


class RowsError(InvalidError):
    """A verification run refuses the rows or records that it was given. The state of the run is unchanged."""


class ColumnError(RowsError):
    """A column of a table cannot be read. No row of its batch was used.

    Parameters
    ----------
    column : str
        The name of the column.
    """

    def __init__(self, message: str, *, code: str, column: str = "") -> None:
        super().__init__(message, code=code)
        self.column: Final = column

    def __reduce__(self) -> tuple[object, ...]:
        return _restore_column, (type(self), self.message, self.code, self.column)


class ColumnMissingError(ColumnError):
    """The table has no column with the requested name, or more than one."""


class ColumnTypeError(ColumnError):
    """The column has a type that keys, values, subjects or times cannot have."""


class ColumnNullError(ColumnError):
    """The column has null in a row that needs a value there."""


class ColumnValueError(ColumnError):
    """The column contains an invalid value, such as a negative key or text that is not UTF-8."""


class ColumnTimeZoneError(ColumnError):
    """The times in the column have no time zone, and `assume_utc` is not set."""


class ColumnOrderError(ColumnError):
    """The rows are not sorted by their encoded keys, or a key is duplicated."""


class TraceError(InvalidError):
    """The text is not a trace of a simulation, or it can't be replayed."""


class ImpossibleError(LeaseholdError):
    """The event is impossible in the current state of a simulated world. The world is unchanged."""


class OutOfTurnError(LeaseholdError):
    """A run of reconciliation or verification got an answer that does not match its current step. The run is unchanged."""


class SessionInUseError(LeaseholdError):
    """Another thread is using this run or service at the moment. Create one object per thread."""


class InternalError(LeaseholdError):
    """A defect in Leasehold. Please report it."""


NUMBERS: Final[Mapping[str, int]] = {code: number for code, number, _, _ in _native.reasons()}
"""The engine's number of each of its reason codes."""

BY_CODE: Final[Mapping[str, type[LeaseholdError]]] = {
    **{code: globals()[name] for code, _, name, _ in _native.reasons()},
    "BATCH_LOST": BatchLostError,
    "IMPOSSIBLE": ImpossibleError,
    "INVALID_ARGUMENT": InvalidError,
    "INVALID_CHECKPOINT": InvalidError,
    "INVALID_ROWS": RowsError,
    "INVALID_TRACE": TraceError,
    "NO_IDENTITY": UnauthenticatedError,
    "NO_TRACE": TraceError,
    "LOCK_LOST": LockLostError,
    "MISCONFIGURED": MisconfiguredError,
    "OTHER_STORE": OtherStoreError,
    "OUT_OF_TURN": OutOfTurnError,
    "OVERLOADED": OverloadedError,
    "RULE_DENIED": DeniedError,
    "SESSION_IN_USE": SessionInUseError,
    "STORE_UNAVAILABLE": UnavailableError,
}
"""The exception class of each reason code.

The extension supplies the engine's own codes, so that a new reason in Rust cannot lack a class here.
"""


def error_for_code(
    code: str,
    message: str,
    details: Iterable[tuple[Literal["creates", "destroys"], int, int, str, int, str]] = (),
    retry_after_micros: int | None = None,
) -> LeaseholdError:
    """Return the exception for a reason code. The extension calls this function (`python/src/errors.rs`).

    Parameters
    ----------
    code : str
        The reason code. An unknown code returns an `InternalError`.
    message : str
        A description for people.
    details : iterable of tuple, optional
        The fields of a `Detail` for each refused claim.
    retry_after_micros : int, optional
        The delay before a retry in microseconds, if a retry can succeed.

    Returns
    -------
    LeaseholdError
        The exception. The caller raises it.
    """
    retry_after_seconds = None if retry_after_micros is None else retry_after_micros / 1e6
    claims = [Detail(*members) for members in details]
    return BY_CODE.get(code, InternalError)(message, code=code, details=claims, retry_after_seconds=retry_after_seconds)


COLUMN_ERRORS: Final[Mapping[str, type[ColumnError]]] = {
    "COLUMN_MISSING": ColumnMissingError,
    "COLUMN_NULL": ColumnNullError,
    "COLUMN_ORDER": ColumnOrderError,
    "COLUMN_TIME_ZONE": ColumnTimeZoneError,
    "COLUMN_TYPE": ColumnTypeError,
    "COLUMN_VALUE": ColumnValueError,
}
"""The exception class of each code that the extension uses for an unreadable column."""


def column_error(code: str, column: str, message: str) -> ColumnError:
    """Return the exception for an unreadable column of a table.

    Parameters
    ----------
    code : str
        A key of `COLUMN_ERRORS`.
    column : str
        The name of the column.
    message : str
        A description for people.

    Returns
    -------
    ColumnError
        The exception. The caller raises it.
    """
    return COLUMN_ERRORS[code](message, code=code, column=column)


def _restore_column(kind: type[ColumnError], message: str, code: str, column: str) -> ColumnError:
    """Rebuild a pickled `ColumnError`. The default `__reduce__` would omit the keyword-only `code`."""
    return kind(message, code=code, column=column)


def _restore(
    kind: type[LeaseholdError],
    message: str,
    code: str,
    details: tuple[Detail, ...],
    retry_after_seconds: float | None,
    metadata: Mapping[str, str],
) -> LeaseholdError:
    """Rebuild a pickled `LeaseholdError`. The default `__reduce__` would omit the keyword-only `code`."""
    return kind(message, code=code, details=details, retry_after_seconds=retry_after_seconds, metadata=metadata)
