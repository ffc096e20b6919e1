"""Runs the command line `leasehold-py` as a child process."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

COMMAND = [sys.executable, "-I", "-W", "error", "-m", "leasehold.cli"]
_TIMEOUT_SECONDS = 300


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without `LEASEHOLD_*` variables, plus `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
    return {**kept, "NO_COLOR": "1", "TERM": "dumb", **variables}


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `leasehold-py` and wait for its exit."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**variables),
        timeout=_TIMEOUT_SECONDS,
    )


def answer(*arguments: str, code: int = 0) -> list[Any]:
    """Run `leasehold-py` with `--json` and return the values of its output lines."""
    ended = run(*arguments, "--json")
    assert ended.returncode == code, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def interrupted(ready: str, *arguments: str) -> tuple[int, str]:
    """Run `leasehold-py`, and send SIGINT once a line on standard error contains `ready`. Return exit code and stdout."""
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stderr is not None
        assert any(ready in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=_TIMEOUT_SECONDS)
    return process.returncode, shown


def on_terminal(columns: int, *arguments: str) -> str:
    """Run `leasehold-py` with a terminal of this width as standard output, and return what the terminal gets."""
    terminal, standard_output = pty.openpty()
    fcntl.ioctl(standard_output, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    # A terminal that is dumb has no width.
    with subprocess.Popen([*COMMAND, *arguments], stdout=standard_output, env=environment(TERM="xterm")) as process:
        os.close(standard_output)
        shown = b"".join(_reads(terminal))
        assert process.wait(_TIMEOUT_SECONDS) == 0
    os.close(terminal)
    return shown.decode()


def interrupted_on_terminal(ready: str, *arguments: str) -> tuple[int, str, str]:
    """Run `leasehold-py` with a terminal as standard error, and send SIGINT once it shows `ready`.

    Returns the exit code, the standard output, and what the terminal got.
    """
    terminal, standard_error = pty.openpty()
    shown_environment = environment(TERM="xterm")
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=standard_error, text=True, env=shown_environment
    ) as process:
        os.close(standard_error)
        said, is_interrupted = "", False
        for part in _reads(terminal):
            said += part.decode(errors="replace")
            if ready in said and not is_interrupted:
                process.send_signal(signal.SIGINT)
                is_interrupted = True
        shown, _ = process.communicate(timeout=_TIMEOUT_SECONDS)
    os.close(terminal)
    return process.returncode, shown, said


def _reads(terminal: int) -> Iterator[bytes]:
    # Linux reports the end of the last process with the terminal as an error.
    with suppress(OSError):
        while part := os.read(terminal, 65_536):
            yield part
