"""A pgbouncer in transaction mode for tests: a real process on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from typing_extensions import Self

from support.postgres_cluster import PostgresCluster, as_user, while_open
from support.waiting import wait_for

_PROGRAM = Path("/usr/sbin/pgbouncer")


class PgBouncer:
    """A running pgbouncer with one connection to each database of a cluster, which the end of its `with` block stops."""

    def __init__(self, cluster: PostgresCluster) -> None:
        self._cluster = cluster
        self._directory = Path(tempfile.mkdtemp(prefix="leasehold-pgbouncer"))
        self._directory.chmod(0o755)

    def __enter__(self) -> Self:
        users, settings = self._directory / "users.txt", self._directory / "pgbouncer.ini"
        users.write_text('"leasehold" ""\n')
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self._cluster.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\n"
            f"pool_mode = transaction\nauth_type = trust\nauth_file = {users}\ndefault_pool_size = 1\n"
        )
        program = str(_PROGRAM) if _PROGRAM.exists() else "pgbouncer"
        with (self._directory / "log").open("w") as log:
            # By other signals, some versions wait for the end of all connections.
            command = while_open([*as_user(), program, str(settings)], end="KILL")
            self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/")
        wait_for("pgbouncer to start", self._listens)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self._directory)

    def url(self, url: str) -> str:
        """Return the connection URL of a database of the cluster through pgbouncer."""
        return url.replace(f":{self._cluster.port}/", f":{self._port}/")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == os.EX_OK
