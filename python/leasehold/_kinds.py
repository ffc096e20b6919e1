"""The kinds of arguments that enter the extension as JSON.

A kind is a function that returns a value as JSON has it, or raises an `InvalidError` with the path of the value, what was
given and what to pass. The words and the bounds are those of the package for JavaScript (`wasm/js/arguments.js`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from leasehold.errors import LeaseholdError, error_for_code

Kind: TypeAlias = Callable[[object, str], Any]

MISSING = object()
"""Stands for a member that a dict does not have."""

# A duration has 64 bits of microseconds.
MAX_SECONDS = (2**64 - 1) // 1_000_000

_UUID = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)
_MAX_SHOWN = 40


def invalid_argument(message: str) -> LeaseholdError:
    """Return the error for an argument that has not the form of its type."""
    return error_for_code("INVALID_ARGUMENT", message)


def given(value: object) -> str:
    """Return a few words for a value. They never show a text, which may be a claimed value (V09)."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return shortened(_digits(value))
    return of_type(value)


def of_type(value: object) -> str:
    """Return the name of a value's type with its article."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {shortened(name)}"


def as_integer(value: object) -> int | None:
    """Return a value that is an integer, also one of numpy; None for another one."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def as_finite(value: object) -> float | None:
    """Return a value that is a finite number as a float; None for another one."""
    if isinstance(value, (bool, str, bytes)):
        return None
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def shortened(text: str) -> str:
    """Return a text for a message: its beginning, and without halves of surrogate pairs."""
    text = text.encode(errors="backslashreplace").decode()
    return f"{text[:_MAX_SHOWN]}…" if len(text) > _MAX_SHOWN else text


def integer(low: int, high: int) -> Kind:
    """Return the kind of an integer from `low` to `high`. A bool is none."""

    def check(value: object, path: str) -> int:
        number = as_integer(value)
        if number is None or not low <= number <= high:
            raise _refused(path, value, f"an integer from {low} to {high}")
        return number

    return check


INT32 = integer(-(2**31), 2**31 - 1)
UINT8 = integer(0, 2**8 - 1)
UINT16 = integer(0, 2**16 - 1)
UINT32 = integer(0, 2**32 - 1)
UINT64 = integer(0, 2**64 - 1)
# The number of rows of a page. The engine would take 0 for 1.
PAGE_ROWS = integer(1, 2**32 - 1)


def number(low: float, high: float) -> Kind:
    """Return the kind of a number from `low` to `high`. Neither a bool nor NaN is one."""

    def check(value: object, path: str) -> float:
        found = value if isinstance(value, float) else as_integer(value)
        # The comparison with NaN is false.
        if found is None or not low <= found <= high:
            raise _refused(path, value, f"a number from {low} to {high}")
        return found

    return check


SECONDS = number(0, MAX_SECONDS)
SHARE = number(0, 1)


def flag(value: object, path: str) -> bool:
    """Check that a value is True or False."""
    if not isinstance(value, bool):
        raise _refused(path, value, "True or False")
    return value


def text(value: object, path: str) -> str:
    """Check that a value is a string of valid Unicode."""
    if not isinstance(value, str):
        # A number in place of a name may be the claimed value, which no message shows.
        raise _refused(path, value, "a string", of_type(value))
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid_argument(f"`{path}` has a lone surrogate, so it is not valid Unicode: correct it") from None
    return value


def uuid(value: object, path: str) -> str:
    """Check that a value is a UUID as a string."""
    if isinstance(value, str) and _UUID.fullmatch(value):
        return value
    raise _refused(path, value, "a UUID as a string")


def word(*words: str) -> Kind:
    """Return the kind of one of these words."""

    def check(value: object, path: str) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise _refused(path, value, _one_of(words), _unknown(value))

    return check


def optional(kind: Kind) -> Kind:
    """Return the kind of a value that may be absent or None."""
    return lambda value, path: MISSING if value is None or value is MISSING else kind(value, path)


def items(kind: Kind, length: int | None = None) -> Kind:
    """Return the kind of a list whose items are of one kind."""

    def check(value: object, path: str) -> list[Any]:
        if not isinstance(value, (list, tuple)) or len(value) != (len(value) if length is None else length):
            raise _refused(path, value, "a list" if length is None else f"a list of {length}")
        return [kind(item, f"{path}[{at}]") for at, item in enumerate(value)]

    return check


def iterable(kind: Kind) -> Kind:
    """Return the kind of an iterable whose items are of one kind. A string is none of these."""

    def check(value: object, path: str) -> list[Any]:
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise _refused(path, value, "a list")
        return [kind(item, f"{path}[{at}]") for at, item in enumerate(value)]

    return check


def pair(first: Kind, second: Kind) -> Kind:
    """Return the kind of a list of two values."""
    both = items(lambda value, _: value, 2)

    def check(value: object, path: str) -> list[Any]:
        one, other = both(value, path)
        return [first(one, f"{path}[0]"), second(other, f"{path}[1]")]

    return check


def members(kinds: Mapping[str, Kind]) -> Kind:
    """Return the kind of a dict with these members. The path of keyword arguments is empty."""

    def check(value: object, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _refused(path, value, f"a dict with {_listed(kinds)}")
        prefix = f"{path}." if path else ""
        for name in value:
            if name not in kinds:
                raise invalid_argument(f"`{prefix}{shortened(str(name))}` is unknown: pass only {_listed(kinds)}")
        checked = {name: kind(value.get(name, MISSING), prefix + name) for name, kind in kinds.items()}
        return {name: member for name, member in checked.items() if member is not MISSING}

    return check


def variant(forms: Mapping[str, Kind | None]) -> Kind:
    """Return the kind of one of several forms.

    A form without content is its name. Another one is a dict whose only key is the name of the form. `forms` has the kind of
    each content, None for no content.
    """

    def check(value: object, path: str) -> Any:  # noqa: ANN401 - a value of JSON
        name = next(iter(value)) if isinstance(value, Mapping) and len(value) == 1 else value
        if not isinstance(name, str) or name not in forms:
            raise _refused(path, value, _one_of(forms), _unknown(value))
        content = forms[name]
        if content is not None:
            return {name: content(value[name] if isinstance(value, Mapping) else MISSING, f"{path}.{name}")}
        if name != value:
            raise _refused(path, value, f"the string `{name}`")
        return name

    return check


def _refused(path: str, value: object, wanted: str, description: str | None = None) -> LeaseholdError:
    what = "missing" if value is MISSING else description or given(value)
    return invalid_argument(f"`{path}` is {what}: pass {wanted}")


def _digits(value: float) -> str:
    # Python refuses to write an integer of more than 4,300 digits (`sys.set_int_max_str_digits`).
    is_huge = isinstance(value, int) and abs(value) >= 10**_MAX_SHOWN
    return f"an integer of {value.bit_length()} bits" if is_huge and isinstance(value, int) else str(value)


def _unknown(value: object) -> str | None:
    """Return the description of a value that is none of several words or forms."""
    if isinstance(value, str):
        return "an unknown string"
    if not isinstance(value, Mapping):
        return None
    if len(value) != 1:
        return f"a dict with {len(value)} keys" if value else "an empty dict"
    return f"a dict with the unknown key `{shortened(str(next(iter(value))))}`"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in words)


def _one_of(words: Iterable[str]) -> str:
    words = list(words)
    return f"one of {_listed(words)}" if len(words) > 1 else _listed(words)
