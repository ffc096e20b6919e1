"""Waits until a condition is true, instead of for a fixed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 60.0
_POLL = threading.Event()


def wait_for(what: str, condition: Callable[[], T | None]) -> T:
    """Poll a condition until it returns a true value, and return that value."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for {what}")
        _POLL.wait(0.01)
