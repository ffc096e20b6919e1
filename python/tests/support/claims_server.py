"""Runs the real server as a child process of the test."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from typing_extensions import Self

from support.certificates import Files

ROOT = Path(__file__).resolve().parents[3]

_CELL = """
[[cells]]
id = {id}
name = "cell-{id}"
address = "https://cell-{id}.example.com"
session_prefix = "cell-{id}-"
sequence_range = {{ minval = {id}000, maxval = {id}999 }}
"""


def binary() -> Path:
    """Return the path of the server binary: `LEASEHOLD_BINARY`, or the binary that the workspace's tests have built."""
    named = os.environ.get("LEASEHOLD_BINARY")
    found = Path(named) if named else Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "leasehold"
    if not found.exists():
        raise AssertionError(f"`{found}` does not exist: build it with `cargo test --workspace --no-run`")
    return found


class ClaimsServer:
    """A running server with a temporary store or a given one. A test can kill it and start it again at the same address."""

    def __init__(self, *, store: str | None = None, tls: Files | None = None, settings: str = "") -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="leasehold-server"))
        self._listen = "127.0.0.1:0"
        self._scheme = "https" if tls else "http"
        self._arguments = ["--store", store] if store else ["--data", str(self._directory / "data")]
        if tls or settings:
            self._arguments += ["--config", str(self._configuration(tls, settings))]
        self._process: subprocess.Popen[str] | None = None
        self.store_id = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._directory)

    @property
    def address(self) -> str:
        """The host and port on which the server listens."""
        return self._listen

    @property
    def url(self) -> str:
        """The URL with which clients connect to the server."""
        return f"{self._scheme}://{self._listen}"

    def start(self) -> None:
        """Start the server and wait until it listens."""
        with (self._directory / "log").open("w") as log:
            command = [str(binary()), "serve", "--create", "--listen", self._listen, *self._arguments]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"listening on (\S+)", line):
                self._listen = found[1]
            if found := re.search(r"^  store +(\S+)", line):
                self.store_id = found[1]
                return
        raise AssertionError(f"the server did not start: {(self._directory / 'log').read_text()}")

    def kill(self) -> None:
        """Kill the server with SIGKILL. Every change that the server has acknowledged is on disk."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server with SIGTERM: it tells its streams, and ends."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def _configuration(self, tls: Files | None, settings: str) -> Path:
        path = self._directory / "leasehold.toml"
        files = f'[tls]\ncertificate = "{tls.certificate}"\nkey = "{tls.key}"\nclient_ca = "{tls.ca}"\n' if tls else ""
        path.write_text(files + "".join(_CELL.format(id=number) for number in (1, 2)) + settings)
        return path
