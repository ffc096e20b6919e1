"""Tests of the exception class of each error code."""

from __future__ import annotations

import copy
import pickle

import pytest

import leasehold
from leasehold import Detail, InternalError, LeaseholdError, _native, errors


@pytest.mark.parametrize(("code", "number", "name", "is_temporary"), _native.reasons())
def test_every_reason_of_the_engine_has_a_class(code: str, number: int, name: str, is_temporary: bool) -> None:
    error = errors.error_for_code(code, "why")
    assert (type(error).__name__, error.code, error.number, error.is_temporary) == (name, code, number, is_temporary)
    assert getattr(leasehold, name) is type(error)


def test_reason_numbers_are_unique_and_complete() -> None:
    assert sorted(number for _, number, _, _ in _native.reasons()) == list(range(1, 23))


def test_every_class_is_public() -> None:
    classes = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, LeaseholdError)}
    assert {cls.__name__ for cls in classes} <= set(leasehold.__all__) & set(errors.__all__)


def test_an_unknown_code_raises_an_internal_error() -> None:
    error = errors.error_for_code("OF_TOMORROW", "why")
    assert (type(error), error.code, error.number) == (InternalError, "OF_TOMORROW", 0)


def test_exceptions_survive_pickling_and_copying() -> None:
    error = leasehold.BusyError(
        "busy",
        code="CLAIM_BUSY",
        details=[Detail("creates", 0, 4, "CLAIM_BUSY", 12, "busy")],
        retry_after_seconds=0.5,
        metadata={"limit": "claims"},
    )
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(other) is leasehold.BusyError
        assert vars(other) == vars(error)
        assert str(other) == "busy"
