"""Errors for arguments that the engine's types cannot hold, in place of exceptions of Python, pyo3 and pyarrow."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar
from uuid import UUID

from leasehold._kinds import as_integer, of_type
from leasehold.errors import LeaseholdError, column_error, error_for_code

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# pyarrow names the column of a pandas frame that it cannot convert (pyarrow/pandas_compat.py, `convert_column`).
_UNCONVERTIBLE = re.compile(r"Conversion failed for column (.*) with type")


def representable(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a function raise an `InvalidError` for a text without UTF-8, and for an integer that is out of range.

    The exceptions that pyo3 raises for these quote the text, which may be a claimed value (V09).
    """

    @functools.wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (OverflowError, UnicodeEncodeError, TypeError) as error:
            problem = _problem(error)
            if problem is None:
                raise
            raise error_for_code("INVALID_ARGUMENT", problem) from None

    return checked


def checked_key(key: object) -> int | str:
    """Return a primary key as the extension takes it: an integer, or a string.

    Raises
    ------
    TypeError
        The key is of another type, also a bool, which Python takes for the integer 0 or 1.
    """
    if isinstance(key, str):
        return key
    if isinstance(key, UUID):
        return str(key)
    number = as_integer(key)
    if number is None:
        raise TypeError(f"the key is {of_type(key)}: pass an integer, a string or a UUID")
    return number


def check_integer(name: str, value: object, bits: int) -> None:
    """Check that the engine's type can hold the integer of a field. The engine itself refuses values of other types.

    Raises
    ------
    TypeError
        The value is a bool.
    InvalidError
        The integer needs more bits than these.
    """
    if isinstance(value, bool):
        raise TypeError(f"`{name}` is a bool: pass an integer")
    if isinstance(value, int) and not -(2**bits) <= value < 2**bits:
        raise error_for_code("INVALID_ARGUMENT", f"`{name}` is out of range: the largest is 2**{bits} - 1") from None


def check_number(name: str, value: object, bits: int) -> None:
    """Check that a value is an integer that the engine's type can hold.

    Raises
    ------
    TypeError
        The value is of another type, also a bool.
    InvalidError
        The integer needs more bits than these.
    """
    if as_integer(value) is None:
        raise TypeError(f"`{name}` is {of_type(value)}: pass an integer")
    check_integer(name, value, bits)


def check_text(name: str, value: object) -> None:
    """Check that a value is a string.

    Raises
    ------
    TypeError
        The value is of another type.
    """
    if not isinstance(value, str):
        raise TypeError(f"`{name}` is {of_type(value)}: pass a string")


def check_bytes(name: str, value: object) -> None:
    """Check that a value is bytes.

    Raises
    ------
    TypeError
        The value is of another type.
    """
    if not isinstance(value, bytes):
        raise TypeError(f"`{name}` is {of_type(value)}: pass bytes")


@contextmanager
def named_claims(**lists: Sequence[object]) -> Iterator[None]:
    """Raise a `TypeError` that names the claim, if one of these lists has another object in the place of a claim.

    The claims are looked at only if the extension refuses a list. Its error names types of Rust.
    """
    try:
        yield
    except (TypeError, AttributeError) as error:
        faults = (_fault_of_claim(f"{name}[{at}]", claim) for name, claims in lists.items() for at, claim in enumerate(claims))
        fault = next(filter(None, faults), None)
        if _problem(error) is not None or fault is None:
            raise
        raise TypeError(fault) from None


def listed(name: str, values: Iterable[Result]) -> list[Result]:
    """Return the items of an iterable.

    Raises
    ------
    TypeError
        The value is none, or a string.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"`{name}` is {of_type(values)}: pass a list")
    return list(values)


# The members of a claim, of its subject and of its source, with their types.
_MEMBERS: Mapping[str, Mapping[str, tuple[type, str]]] = {
    "": {"bucket_type": (int, "an integer"), "bucket_value": (str, "a string")},
    "subject": {"subject_type": (int, "an integer"), "id": (int, "an integer")},
    "source": {"source_type": (int, "an integer"), "id": (bytes, "bytes")},
}


def _fault_of_claim(path: str, claim: object) -> str | None:
    """Return what is wrong with an object in the place of a claim; None if it has the form of one."""
    if not all(hasattr(claim, name) for name in ("bucket_type", "bucket_value", "subject", "source")):
        return f"`{path}` is {of_type(claim)}: pass a `Claim`"
    for part, wanted in _MEMBERS.items():
        owner = getattr(claim, part) if part else claim
        if owner is None:
            continue
        place = f"{path}.{part}" if part else path
        for name, (kind, words) in wanted.items():
            if not hasattr(owner, name):
                return f"`{place}` is {of_type(owner)}: pass a `{part.capitalize()}`"
            if not isinstance(getattr(owner, name), kind):
                return f"`{place}.{name}` is {of_type(getattr(owner, name))}: pass {words}"
    return None


@contextmanager
def stream_errors() -> Iterator[None]:
    """Raise a `RowsError` for values that cannot be exported as an Arrow stream. Their libraries' exceptions quote them."""
    try:
        yield
    except Exception as error:
        converted = _stream_error(error)
        if converted is None:
            raise
        raise converted from None


def _stream_error(error: Exception) -> LeaseholdError | None:
    column = _UNCONVERTIBLE.search(str(error))
    if column is not None:
        name = column[1]
        problem = f"the column `{name}` mixes types, so it has no Arrow type: convert it to strings or to integers"
        return column_error("COLUMN_TYPE", name, problem)
    problem_of_value = _problem(error)
    return None if problem_of_value is None else error_for_code("INVALID_ROWS", f"the data cannot be read: {problem_of_value}")


def _problem(error: BaseException) -> str | None:
    for cause in _causes(error):
        if isinstance(cause, UnicodeEncodeError):
            return "a text has a lone surrogate, so it is not valid Unicode: correct it"
        if isinstance(cause, OverflowError):
            return "an integer is out of range: keys and ids have 63 bits, types 31"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and its causes: pyo3 wraps the error of a field in a `TypeError` for each struct around it."""
    while error is not None:
        yield error
        error = error.__cause__
