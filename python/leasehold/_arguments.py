"""Errors for arguments that the engine's types cannot hold, in place of exceptions of Python, pyo3 and pyarrow."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

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


def check_key(key: object) -> None:
    """Check that a primary key is no bool, which Python takes for the integer 0 or 1.

    Raises
    ------
    TypeError
        The key is a bool.
    """
    if isinstance(key, bool):
        raise TypeError("the key is a bool: pass an integer or a string")


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
