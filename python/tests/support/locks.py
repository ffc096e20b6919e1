"""Programs that hold locks in processes of their own, and their terms."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHORT: dict[str, Any] = {"duration_seconds": 1, "grace_seconds": 1}
"""The shortest terms: a second, and a grace of a second. They are for sessions that may be lost at any moment."""

STEADY: dict[str, Any] = {"duration_seconds": 1, "grace_seconds": 9}
"""Terms that pass in a test, but not during a pause of some seconds, which a busy machine may make at any moment."""

LONG: dict[str, Any] = {"duration_seconds": 3600, "grace_seconds": 60}
"""Terms that never pass in a test."""

REAPED = '[[locks.reaped]]\nnamespaces = ["reaped"]\nattempts = 2\n'
"""The settings of a server whose locks of `reaped` have at most two cleanups after a death."""

PATIENT = 60
"""A wait that no test reaches."""

_HEAD = """
import sys
from leasehold import *
from leasehold.client import *

SHORT = {"duration_seconds": 1, "grace_seconds": 1}
STEADY = {"duration_seconds": 1, "grace_seconds": 9}

def say(*words):
    print(*words, flush=True)

def hear():
    return sys.stdin.readline().strip()

client = Client(sys.argv[1])
"""


@contextmanager
def program(text: str, url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python program that has a client of a server. It is killed at the end of the block."""
    command = [sys.executable, "-I", "-W", "error", "-c", _HEAD + text, url, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a program says."""
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if not said:
        assert process.stderr is not None
        raise AssertionError(f"the program ended: {process.stderr.read()}")
    return said


def tell(process: subprocess.Popen[str], word: str = "on") -> None:
    """Tell a program a word."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a program. Return its exit code, and the rest of its output and of its errors."""
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors
