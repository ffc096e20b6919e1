"""Waiting for a condition instead of for some time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 60.0
_POLL = threading.Event()


def wait_for(what: str, condition: Callable[[], T | None]) -> T:
    """Return what the condition gives, once that is true."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"in vain waited for {what}")
        _POLL.wait(0.01)
