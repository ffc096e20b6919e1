"""Checks of the arguments that become fields of a request, and conversions of fields of a response."""

from __future__ import annotations

import enum
import uuid
from typing import TypeVar

from leasehold._kinds import as_finite, as_integer, given
from leasehold.errors import InternalError, MisconfiguredError, error_for_code

E = TypeVar("E", bound=enum.Enum)

# The largest numbers of unsigned fields. The server refuses smaller numbers by its own limits.
MAX_64 = 2**64 - 1
MAX_32 = 2**32 - 1


def check_text(name: str, value: object) -> None:
    """Raise if a value is not text that Protobuf can carry. No error contains the value (K24, Q22)."""
    if not isinstance(value, str):
        raise TypeError(f"`{name}` is a `{type(value).__name__}`, not a string: pass a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise error_for_code("INVALID_UPDATE", f"`{name}` has half of a surrogate pair: pass valid Unicode") from None


def micros(name: str, seconds: float) -> int:
    """Return a duration in microseconds. The server checks its bounds.

    Raises
    ------
    MisconfiguredError
        The duration is negative or not finite.
    """
    found = as_finite(seconds)
    if found is None or found < 0:
        raise MisconfiguredError(f"`{name}` is {given(seconds)}: pass a finite number of seconds that is not negative")
    return min(round(seconds * 1e6), MAX_64)


def number(name: str, value: object, largest: int, *, smallest: int = 0) -> int:
    """Return an integer within its bounds.

    Raises
    ------
    MisconfiguredError
        The value is not an integer, such as a bool, or out of bounds.
    """
    found = as_integer(value)
    if found is None or not smallest <= found <= largest:
        raise MisconfiguredError(f"`{name}` is {given(value)}: pass an integer from {smallest} to {largest}")
    return found


def rows_limit(limit: int | None) -> int:
    """Return the largest number of rows of a page; 0, which leaves it to the server, for None."""
    return 0 if limit is None else number("limit", limit, MAX_32)


def id_bytes(name: str, value: object, source: str) -> bytes:
    """Return the 16 bytes of an id. `source` tells the caller where to get it.

    Raises
    ------
    InvalidError
        The value is not a UUID.
    """
    try:
        return uuid.UUID(str(value)).bytes
    except ValueError:
        raise error_for_code("INVALID_UPDATE", f"`{name}` is not a UUID: pass {source}") from None


def id_text(value: bytes) -> str:
    """Return the text of an id that the server has sent."""
    return str(uuid.UUID(bytes=value))


def member(enumeration: type[E], number: int) -> E:
    """Return the member of an enumeration by the number that the server has sent.

    Raises
    ------
    InternalError
        This version of the package does not know the number.
    """
    try:
        return enumeration(number)
    except ValueError:
        name = enumeration.__name__
        raise InternalError(f"the server sent the unknown `{name}` {number}: install a newer client", code="INTERNAL") from None
