"""Tests of `leasehold-py relay` with a real PostgreSQL and the real server: relays in processes of their own."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.claims_server import ClaimsServer
from support.command import COMMAND, environment, run
from support.outbox import create_outbox, is_relayed, write
from support.postgres_cluster import PostgresCluster
from support.queues import SECRET
from support.waiting import wait_for

from leasehold.client import Client


@pytest.fixture
def database(cluster: PostgresCluster) -> str:
    return create_outbox(cluster)


@contextmanager
def relaying(server: ClaimsServer, database: str) -> Iterator[subprocess.Popen[str]]:
    """Run a relay, from its first word on. It is killed at the end of the block."""
    command = [*COMMAND, "relay", "--database", database, "--server", server.url, "--poll-seconds", "0.1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stderr is not None
            assert "press Ctrl-C" in process.stderr.readline()
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_q14_what_commits_is_handed_on_until_a_signal(
    cli_server: ClaimsServer, cli_client: Client, database: str, number: signal.Signals
) -> None:
    with relaying(cli_server, database) as process:
        one = write(database, SECRET, SECRET)
        wait_for("the request", lambda: cli_client.get_request(one))
        wait_for("its acknowledgement", lambda: is_relayed(database))
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, "")
    two = write(database, "2")
    assert cli_client.get_request(two) is None


def test_q09_a_relay_that_is_killed_is_followed_by_another_one(
    cli_server: ClaimsServer, cli_client: Client, database: str
) -> None:
    with relaying(cli_server, database) as killed, relaying(cli_server, database):
        ids = []
        for key in range(50):
            ids.append(write(database, str(key)))
            if key == 25:
                killed.kill()
        wait_for("the requests", lambda: cli_client.get_request(ids[-1]))
    assert all(cli_client.get_request(each) for each in ids)


def test_failures_have_the_exit_codes_of_other_commands(cli_server: ClaimsServer, cluster: PostgresCluster) -> None:
    for url, code, text in (
        (cluster.create_database(), 2, "no outbox of this version in the search path: run the SQL of `leasehold outbox`"),
        ("postgres://leasehold@127.0.0.1:1/none", 5, "connection"),
    ):
        refused = run("relay", "--database", url, "--server", cli_server.url)
        assert (refused.returncode, text in refused.stderr, "Traceback" in refused.stderr) == (code, True, False)
    assert run("relay", "--server", cli_server.url).returncode == 2
