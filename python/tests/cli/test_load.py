"""Tests of `leasehold-py load` against the real server."""

from __future__ import annotations

import signal
import subprocess

from support.claims_server import ClaimsServer
from support.command import COMMAND, answer, environment, interrupted, run
from support.waiting import wait_for

from leasehold import BucketType, SourceType
from leasehold.client import Client


def owned(client: Client) -> int:
    return sum(1 for _ in client.records(SourceType.USERS, [BucketType.USERNAMES]))


def test_each_save_is_made_once_and_measured(cli_server: ClaimsServer, cli_client: Client) -> None:
    (found,) = answer("load", "--server", cli_server.url, "--cell", "1", "--saves", "100", "--claims", "3")
    assert (found["saves"], found["errors"]) == (100, {})
    assert 0 < found["p50_ms"] <= found["p90_ms"] <= found["p99_ms"] <= found["max_ms"]
    assert found["saves_per_second"] > 0
    assert owned(cli_client) == 300
    assert list(cli_client.leases()) == []


def test_a_histogram_is_printed(cli_server: ClaimsServer) -> None:
    shown = run("load", "--server", cli_server.url, "--cell", "1", "--saves", "20").stdout
    assert "saves per second" in shown
    assert "█" in shown


def test_ctrl_c_finishes_the_saves_in_progress_and_prints_the_results(cli_server: ClaimsServer, cli_client: Client) -> None:
    options = ["--server", cli_server.url, "--cell", "1", "--saves", "10000000", "--claims", "1", "--json"]
    code, shown = interrupted("press Ctrl-C to stop", "load", *options)
    assert code == 0
    assert f'"saves": {owned(cli_client)},' in shown
    assert list(cli_client.leases()) == []


def test_a_duration_ends_the_test_before_its_last_save(cli_server: ClaimsServer, cli_client: Client) -> None:
    options = ["--server", cli_server.url, "--cell", "1", "--saves", "10000000", "--claims", "1", "--duration-seconds", "1"]
    (found,) = answer("load", *options)
    assert (found["elapsed_seconds"] >= 1, found["errors"], found["saves"]) == (True, {}, owned(cli_client))


def test_failures_are_counted_by_code(cli_server: ClaimsServer) -> None:
    (found,) = answer("load", "--server", cli_server.url, "--cell", "99", "--saves", "5", code=1)
    assert (found["saves"], sum(found["errors"].values())) == (0, 5)


def test_a_server_that_goes_down_prints_one_warning(cli_server: ClaimsServer, cli_client: Client) -> None:
    command = [*COMMAND, "load", "--server", cli_server.url, "--cell", "1", "--saves", "10000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as ended:
        wait_for("saves", lambda: owned(cli_client) > 100)
        cli_server.kill()
        # The saves in progress have no server to succeed with.
        ended.send_signal(signal.SIGINT)
        shown, said = ended.communicate()
    assert (ended.returncode, "failed: UNAVAILABLE" in shown) == (1, True)
    assert len(said.splitlines()) <= 2
