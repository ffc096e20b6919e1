"""Calls with one wrong value in the place of a good one, at any depth of the arguments."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from leasehold.errors import LeaseholdError

AWKWARD: list[Any] = [
    None,
    True,
    "",
    "secret",
    "secret\ud83d",
    b"secret",
    -1,
    2**31,
    2**32,
    2**63,
    2**64,
    10**23,
    10**5000,
    1.5,
    float("nan"),
    float("inf"),
    [],
    ["secret"],
    {},
    {"other": "secret"},
    {1: "secret"},
    object(),
    uuid.UUID(int=7),
    timedelta(1),
    datetime(2026, 1, 1),  # noqa: DTZ001 - a time without a zone is one of the awkward values
]
"""Values that are hardly ever the right ones."""

# Words of Rust, of serde, of pyo3 and of the interpreter.
_INSIDES = re.compile(
    r"line \d+ column|invalid (type|value|length)|expected|\b[iu](8|16|32|64)\b|missing field|Argument\b|"
    r"failed to extract|cannot be|has no attribute|not iterable|object is not|unsupported operand"
)


def problem_of(call: Callable[[], object]) -> str | None:
    """Return what is wrong with the answer to a call with a wrong value; None for a good answer or a plain refusal."""
    try:
        call()
    except (LeaseholdError, TypeError) as error:
        text = str(error)
        if found := _INSIDES.search(text):
            return f"`{found[0]}` in: {text}"
        if "secret" in text.replace("`secret`", ""):
            return f"the value in: {text}"
        text.encode()
        return None if len(text) < 1500 else f"a text of {len(text)} characters"
    except Exception as error:  # noqa: BLE001 - each other exception is a fault
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None


def changed(value: Any, awkward: Any) -> Iterator[tuple[str, Any]]:
    """Yield each copy of a value in which `awkward` is in the place of one part, with the path of the part."""
    yield "", awkward
    if isinstance(value, dict):
        for name, part in value.items():
            for path, other in changed(part, awkward):
                yield f".{name}{path}", {**value, name: other}
        yield ".other", {**value, "other": awkward}
    if isinstance(value, (list, tuple)):
        for at, part in enumerate(value):
            for path, other in changed(part, awkward):
                yield f"[{at}]{path}", type(value)([*value[:at], other, *value[at + 1 :]])


def lacking(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each copy of a value without one of the members of its dicts, with the path of the member."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield f".{name}", {other: each for other, each in value.items() if other != name}
            for path, other in lacking(part):
                yield f".{name}{path}", {**value, name: other}
    if isinstance(value, (list, tuple)):
        for at, part in enumerate(value):
            for path, other in lacking(part):
                yield f"[{at}]{path}", type(value)([*value[:at], other, *value[at + 1 :]])
