"""A temporary PostgreSQL cluster for tests: real processes on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from typing_extensions import LiteralString, Self

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


def program(name: str) -> str:
    """Return the path of a program of the newest PostgreSQL."""
    versions = sorted((path for path in _VERSIONS.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return str(versions[-1] / "bin" / name)


class PostgresCluster:
    """A running PostgreSQL cluster, which the end of its `with` block stops and removes."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="leasehold-postgres"))
        self._directory.chmod(0o755)
        self._databases = 0
        self.port = 0

    def __enter__(self) -> Self:
        self._make("data")
        self._start()
        return self

    def upgrade(self) -> None:
        """Move all databases into a new cluster by pg_upgrade, which gives it another identifier."""
        self._stop()
        (self._directory / "data").rename(self._directory / "former")
        self._make("data")
        bin_directory, directory = Path(program("postgres")).parent, self._directory / "upgrade"
        directory.mkdir()
        if os.geteuid() == 0:
            shutil.chown(directory, _USER, _USER)
        former, data = self._directory / "former", self._directory / "data"
        where = ["-b", bin_directory, "-B", bin_directory, "-d", former, "-D", data, "-U", "leasehold"]
        subprocess.run([*as_user(), program("pg_upgrade"), *map(str, where)], check=True, cwd=directory, capture_output=True)
        self._start()

    def _make(self, name: str) -> None:
        data = self._directory / name
        data.mkdir()
        if os.geteuid() == 0:
            shutil.chown(data, _USER, _USER)
        make = ["--no-sync", "--auth=trust", "--username=leasehold", "--encoding=UTF8", "--locale=C", "-D", str(data)]
        subprocess.run([*as_user(), program("initdb"), *make], check=True, cwd="/", stdout=subprocess.DEVNULL)

    def _start(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        settings = [word for setting in [f"port={self.port}", *_SETTINGS] for word in ("-c", setting)]
        command = while_open([*as_user(), program("postgres"), "-D", str(self._directory / "data"), *settings], "INT")
        with (self._directory / "log").open("w") as log:
            self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/")
        wait_for("PostgreSQL to start", self._answers)

    def _stop(self) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()

    def __exit__(self, *_: object) -> None:
        self._stop()
        shutil.rmtree(self._directory)

    def url(self, database: str) -> str:
        """Return the connection URL of a database in the cluster."""
        return f"postgres://leasehold@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str | None = None) -> str:
        """Create an empty database in the cluster, by default with a new name. Return its connection URL."""
        if name is None:
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
