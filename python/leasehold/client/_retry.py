"""Which failures are tried again, when, and for how long."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

from leasehold.errors import (
    DeadlineExceededError,
    LeaseholdError,
    MisconfiguredError,
    OverloadedError,
    UnavailableError,
)


def check_seconds(name: str, seconds: float) -> float:
    """Return the time, if it is one that can be waited for."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise MisconfiguredError(f"`{name}` is {seconds}: give a number of seconds above 0")
    return seconds


@dataclass(frozen=True)
class Retry:
    """How a call is tried again where no answer came, or the server was overloaded. Every try of a begin has one key.

    Attributes
    ----------
    attempts
        How often a call is tried, at the most; unless told, more often than the usual time of a call has room for.
    attempt_timeout_seconds
        The time for one try; the time for all of them is the call's own.
    backoff_seconds
        The wait before the second try, at the most; it doubles with each, and is drawn from its upper half.
    max_backoff_seconds
        What it grows to.
    """

    attempts: int = 20
    attempt_timeout_seconds: float = 3.0
    backoff_seconds: float = 0.1
    max_backoff_seconds: float = 2.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise MisconfiguredError(f"`attempts` is {self.attempts}: at least 1 is needed")
        for name in ("attempt_timeout_seconds", "backoff_seconds", "max_backoff_seconds"):
            check_seconds(name, getattr(self, name))


ONCE = Retry(attempts=1)


class Course:
    """The tries of one call."""

    def __init__(self, retry: Retry, timeout_seconds: float) -> None:
        self._retry = retry
        self._deadline = time.monotonic() + check_seconds("timeout_seconds", timeout_seconds)
        self._made = 0
        self._may_have_happened = False

    def attempt_timeout_seconds(self) -> float:
        """Begin a try: the time for it."""
        self._made += 1
        return max(0.0, min(self._retry.attempt_timeout_seconds, self._remaining_seconds()))

    def wait_seconds(self, error: LeaseholdError) -> float | None:
        """Say how long to wait before the next try, or that this failure is the last."""
        self._may_have_happened |= error.outcome_is_unknown
        # What was not even looked at says nothing about the tries before.
        if isinstance(error, OverloadedError):
            error.outcome_is_unknown = self._may_have_happened
        if not _may_be_tried_again(error) or self._made >= self._retry.attempts:
            return None
        wait = max(self._backoff_seconds(), error.retry_after_seconds or 0.0)
        return wait if wait < self._remaining_seconds() else None

    def _backoff_seconds(self) -> float:
        longest = min(self._retry.backoff_seconds * 2.0 ** (self._made - 1), self._retry.max_backoff_seconds)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - it only spreads callers

    def _remaining_seconds(self) -> float:
        return self._deadline - time.monotonic()


def _may_be_tried_again(error: LeaseholdError) -> bool:
    if isinstance(error, OverloadedError):
        # Without the server's own code it may be the answer that is too large, which it will be again.
        return error.code == "OVERLOADED"
    return isinstance(error, UnavailableError | DeadlineExceededError)
