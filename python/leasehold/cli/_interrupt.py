"""Ctrl-C in long commands: the first one ends the command after its current part, so that no result is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def until_interrupt() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets. A second Ctrl-C interrupts the program."""
    stop = threading.Event()

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, former)
        stop.set()

    former = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, former)
