"""The retry policy of the clients: which failures are retried, after which delay, and how often."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from leasehold._kinds import as_finite, given
from leasehold.errors import (
    DeadlineExceededError,
    LeaseholdError,
    MisconfiguredError,
    OverloadedError,
    UnavailableError,
)


def check_seconds(name: str, seconds: float) -> float:
    """Return `seconds` if it is a positive, finite duration; else raise `MisconfiguredError` for the parameter `name`."""
    found = as_finite(seconds)
    if found is None or found <= 0:
        raise MisconfiguredError(f"`{name}` is {given(seconds)}: pass a positive, finite number of seconds")
    return seconds


@dataclass(frozen=True)
class Retry:
    """The retry policy of a client.

    A call is retried if no answer arrived, or if the server was overloaded or its store was down. All attempts of a begin
    send the same idempotency key, so that a retry returns the lease of the first attempt.

    Attributes
    ----------
    attempts
        The maximum number of attempts. The default exceeds the number that fits into the default timeout of a call.
    attempt_timeout_seconds
        The timeout of one attempt. The `timeout_seconds` of the call bounds all attempts together.
    backoff_seconds
        The maximum delay before the second attempt. It doubles with each attempt. The actual delay is random
        between half of the maximum and the maximum. If the server asks for a longer delay, the client uses that delay.
    max_backoff_seconds
        The upper bound of the doubled delay. It does not bound a delay that the server asks for.
    """

    attempts: int = 20
    attempt_timeout_seconds: float = 3.0
    backoff_seconds: float = 0.1
    max_backoff_seconds: float = 2.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise MisconfiguredError(f"`attempts` is {self.attempts}: pass at least 1")
        for name in ("attempt_timeout_seconds", "backoff_seconds", "max_backoff_seconds"):
            check_seconds(name, getattr(self, name))

    def _delay_seconds(self, attempt: int) -> float:
        """Return the delay after an attempt, whose number counts from 1."""
        # Python refuses a power beyond the largest float, which is about 2 ** 1024.
        doubled = self.backoff_seconds * 2.0 ** min(attempt - 1, 1000)
        longest = min(doubled, self.max_backoff_seconds)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter needs no cryptographic randomness


ONCE = Retry(attempts=1)


class Attempts:
    """The attempts of one call: their number so far, the deadline of the call, and the delay before the next attempt."""

    def __init__(self, retry: Retry, timeout_seconds: float) -> None:
        self._retry = retry
        self._deadline = time.monotonic() + check_seconds("timeout_seconds", timeout_seconds)
        self._count = 0
        self._earlier_attempt_may_have_succeeded = False

    def attempt_timeout_seconds(self) -> float:
        """Count a new attempt. Return the timeout of this attempt."""
        self._count += 1
        return max(0.0, min(self._retry.attempt_timeout_seconds, self._remaining_seconds()))

    def wait_seconds(self, error: LeaseholdError) -> float | None:
        """Return the delay before the next attempt of this call; None if the call must not be retried after `error`."""
        self._earlier_attempt_may_have_succeeded |= error.outcome_is_unknown
        # An overloaded server refuses a request without executing it, so this attempt had no effect. But an earlier attempt
        # without an answer may have had one, so the outcome of the whole call stays unknown.
        if isinstance(error, OverloadedError):
            error.outcome_is_unknown = self._earlier_attempt_may_have_succeeded
        if not is_retryable(error) or self._count >= self._retry.attempts:
            return None
        wait = max(self._retry._delay_seconds(self._count), error.retry_after_seconds or 0.0)  # noqa: SLF001 - same module
        return wait if wait < self._remaining_seconds() else None

    def _remaining_seconds(self) -> float:
        return self._deadline - time.monotonic()


def is_retryable(error: LeaseholdError) -> bool:
    """Return True if the same call may succeed a moment later."""
    if isinstance(error, OverloadedError):
        # RESOURCE_EXHAUSTED without the reason OVERLOADED can also mean a response above `grpc.max_receive_message_length`. A
        # retry would get the same response.
        return error.code == "OVERLOADED"
    return isinstance(error, UnavailableError | DeadlineExceededError)
