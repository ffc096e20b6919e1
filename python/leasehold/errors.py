"""What is refused: the class is chosen by the code, which is the same in every language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from leasehold import _native

__all__ = [
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
    "MisconfiguredError",
    "NotFoundError",
    "NotOwnerError",
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
    """One claim that offends.

    Attributes
    ----------
    list : {"creates", "destroys"}
        The list of the update that it stands in.
    position : int
        Its position there, from 0.
    bucket_type : int
        Its bucket type's number.
    code : str
        The reason, as on the wire.
    number : int
        The reason's number in the engine; 0 for a reason that this version does not know.
    message : str
        What is wrong with it, for people. It shows no value.
    """

    list: Literal["creates", "destroys"]
    position: int
    bucket_type: int
    code: str
    number: int
    message: str


class LeaseholdError(Exception):
    """Whatever is refused, by the engine, a service or the way to it.

    Parameters
    ----------
    message : str
        What is wrong, for people. It shows no value.
    code : str
        The reason, for machines.
    details : iterable of Detail, optional
        Each claim that offends, where claims do.
    retry_after_seconds : float, optional
        When to try again, where that can help.
    metadata : mapping of str to str, optional
        More for machines: the limit that was passed, for example.

    Attributes
    ----------
    outcome_is_unknown : bool
        Whether a request to a service may have taken effect although it failed: no answer came.
    idempotency_key : str or None
        The name of the begin that failed: begun again under it, the same update gets the same lease.
    lease_uuid : str or None
        The lease that could not be settled.

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
    """Whether the same request can succeed later without anybody's decision."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        details: Iterable[Detail] = (),
        retry_after_seconds: float | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.message: Final = message
        self.code: Final = code
        self.details: Final = tuple(details)
        self.retry_after_seconds: Final = retry_after_seconds
        self.metadata: Final = dict(metadata)
        self.outcome_is_unknown: bool = False
        self.idempotency_key: str | None = None
        self.lease_uuid: str | None = None

    @property
    def number(self) -> int:
        """The reason's number in the engine; 0 where it is none of the engine's."""
        return NUMBERS.get(self.code, 0)

    def __reduce__(self) -> tuple[object, ...]:
        state = (type(self), self.message, self.code, self.details, self.retry_after_seconds, self.metadata)
        outcome = {name: getattr(self, name) for name in ("outcome_is_unknown", "idempotency_key", "lease_uuid")}
        return _restore, state, outcome


class InvalidError(LeaseholdError):
    """The request's form is wrong, a limit is passed, or a value is not allowed."""


class TakenError(LeaseholdError):
    """The bucket is owned, for good."""


class BusyError(LeaseholdError):
    """The bucket is under another lease, for now."""

    is_temporary = True


class ChangedError(LeaseholdError):
    """The claim to destroy has moved to another source row."""


class NotFoundError(LeaseholdError):
    """There is no such claim, or no such lease: the code says which."""


class NotOwnerError(LeaseholdError):
    """The claim or the lease is another cell's."""


class RolledBackError(LeaseholdError):
    """The lease to commit was rolled back."""


class CommittedError(LeaseholdError):
    """The lease to roll back was committed."""


class MisconfiguredError(LeaseholdError, ValueError):
    """It can't work as it is set up; nothing was done."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "MISCONFIGURED",
        details: Iterable[Detail] = (),
        retry_after_seconds: float | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message, code=code, details=details, retry_after_seconds=retry_after_seconds, metadata=metadata)


class UnauthenticatedError(LeaseholdError):
    """No certificate says who calls."""


class DeniedError(LeaseholdError):
    """The certificate does not allow this call."""


class OverloadedError(LeaseholdError):
    """Too much is under way."""

    is_temporary = True


class UnavailableError(LeaseholdError):
    """The service can't be reached, or its store is down. Whether the request took effect is unknown."""

    is_temporary = True


class DeadlineExceededError(LeaseholdError):
    """No answer came in time. Whether the request took effect is unknown."""

    is_temporary = True


class RowsError(InvalidError):
    """Rows or records are not such as a session can take. Nothing was applied."""


class ColumnError(RowsError):
    """A column of a table can't be read. Nothing of it was applied.

    Parameters
    ----------
    column : str
        The column's name.
    """

    def __init__(self, message: str, *, code: str, column: str = "") -> None:
        super().__init__(message, code=code)
        self.column: Final = column

    def __reduce__(self) -> tuple[object, ...]:
        return _restore_column, (type(self), self.message, self.code, self.column)


class ColumnMissingError(ColumnError):
    """The table has no column of that name, or two."""


class ColumnTypeError(ColumnError):
    """The column holds values of another type than are wanted there."""


class ColumnNullError(ColumnError):
    """The column is null where a value is wanted."""


class ColumnValueError(ColumnError):
    """The column has a value that can't be what it stands for: a negative key, or text that is not UTF-8."""


class ColumnTimeZoneError(ColumnError):
    """The column's times have no time zone, so that nobody knows which moments they are."""


class ColumnOrderError(ColumnError):
    """The rows are not in the order of their encoded keys, or a key is there twice."""


class TraceError(InvalidError):
    """The text is no trace of a simulation, or can't be replayed."""


class ImpossibleError(LeaseholdError):
    """The event can't happen in this world now. Nothing has changed."""


class OutOfTurnError(LeaseholdError):
    """A session was told what is no answer to its step. It is as before."""


class SessionInUseError(LeaseholdError):
    """Another thread is in this session: make one a thread."""


class InternalError(LeaseholdError):
    """A defect: please report it."""


NUMBERS: Final[Mapping[str, int]] = {code: number for code, number, _, _ in _native.reasons()}
"""The engine's reasons, with their numbers."""

BY_CODE: Final[Mapping[str, type[LeaseholdError]]] = {
    **{code: globals()[name] for code, _, name, _ in _native.reasons()},
    "IMPOSSIBLE": ImpossibleError,
    "INVALID_ARGUMENT": InvalidError,
    "INVALID_CHECKPOINT": InvalidError,
    "INVALID_ROWS": RowsError,
    "INVALID_TRACE": TraceError,
    "NO_IDENTITY": UnauthenticatedError,
    "OUT_OF_TURN": OutOfTurnError,
    "OVERLOADED": OverloadedError,
    "RULE_DENIED": DeniedError,
    "SESSION_IN_USE": SessionInUseError,
    "STORE_UNAVAILABLE": UnavailableError,
}
"""Codes, and the classes that they choose; the engine's own are told by the extension."""


def refusal(
    code: str,
    message: str,
    details: Iterable[tuple[Literal["creates", "destroys"], int, int, str, int, str]] = (),
    retry_after_micros: int | None = None,
) -> LeaseholdError:
    """Make the exception for a code.

    Parameters
    ----------
    code : str
        The reason. One that this version does not know makes an `InternalError`.
    message : str
        What is wrong, for people.
    details : iterable of tuple, optional
        Members of `Detail`, for each claim that offends.
    retry_after_micros : int, optional
        In how many microseconds to try again, where that can help.

    Returns
    -------
    LeaseholdError
        The exception, to be raised.
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
"""What can be wrong with a column."""


def column_error(code: str, column: str, message: str) -> ColumnError:
    """Make the exception for a column.

    Parameters
    ----------
    code : str
        What is wrong: a key of `COLUMN_ERRORS`.
    column : str
        The column's name.
    message : str
        What is wrong, for people.

    Returns
    -------
    ColumnError
        The exception, to be raised.
    """
    return COLUMN_ERRORS[code](message, code=code, column=column)


def _restore_column(kind: type[ColumnError], message: str, code: str, column: str) -> ColumnError:
    """Make an exception anew, in another process."""
    return kind(message, code=code, column=column)


def _restore(
    kind: type[LeaseholdError],
    message: str,
    code: str,
    details: tuple[Detail, ...],
    retry_after_seconds: float | None,
    metadata: Mapping[str, str],
) -> LeaseholdError:
    """Make an exception anew, in another process."""
    return kind(message, code=code, details=details, retry_after_seconds=retry_after_seconds, metadata=metadata)
