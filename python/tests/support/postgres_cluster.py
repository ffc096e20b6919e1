"""A temporary PostgreSQL cluster for tests: real processes on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from typing_extensions import Self

from support.waiting import wait_for

_VERSIONS = Path("/usr/lib/postgresql")
# The operating system user that runs the cluster if root runs the tests: PostgreSQL refuses root.
_USER = "postgres"
# Shell script that runs a program until its standard input is closed. The kernel closes this pipe however the test process
# ends, even by SIGKILL, so no database server is left behind.
_WHILE_OPEN = '"$@" <&- & pid=$!; cat >/dev/null; kill -s "$0" $pid; wait $pid'
_SETTINGS = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=50"]


def as_user() -> list[str]:
    """Return the words before a command that run it as the cluster's user, if root runs the tests."""
    return ["setpriv", "--reuid", _USER, "--regid", _USER, "--init-groups", "--"] if os.geteuid() == 0 else []


def while_open(command: list[str], end: str = "QUIT") -> list[str]:
    """Return a command that runs another one until its standard input is closed, and ends it by the signal `end` then."""
    return ["sh", "-c", _WHILE_OPEN, end, *command]


def _program(name: str) -> str:
    versions = sorted((path for path in _VERSIONS.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return str(versions[-1] / "bin" / name)


class PostgresCluster:
    """A running PostgreSQL cluster, which the end of its `with` block stops and removes."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="leasehold-postgres"))
        self._directory.chmod(0o755)
        self._databases = 0

    def __enter__(self) -> Self:
        data = self._directory / "data"
        data.mkdir()
        if os.geteuid() == 0:
            shutil.chown(data, _USER, _USER)
        make = ["--no-sync", "--auth=trust", "--username=leasehold", "--encoding=UTF8", "--locale=C", "-D", str(data)]
        subprocess.run([*as_user(), _program("initdb"), *make], check=True, cwd="/", stdout=subprocess.DEVNULL)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        settings = [word for setting in [f"port={self.port}", *_SETTINGS] for word in ("-c", setting)]
        command = while_open([*as_user(), _program("postgres"), "-D", str(data), *settings])
        with (self._directory / "log").open("w") as log:
            self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/")
        wait_for("PostgreSQL to start", self._answers)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self._directory)

    def url(self, database: str) -> str:
        """Return the connection URL of a database in the cluster."""
        return f"postgres://leasehold@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """Create an empty database in the cluster. Return its connection URL."""
        self._databases += 1
        name = f"database_{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
        return self.url(name)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url("postgres")):
                return True
        except psycopg.OperationalError:
            return False


def execute(url: str, statement: LiteralString, *arguments: object) -> list[tuple[Any, ...]]:
    """Execute one SQL statement on a new connection. Return the result rows."""
    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement, arguments or None)
        return cursor.fetchall() if cursor.description else []
