"""Runs the command line `leasehold-py` as a child process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
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
