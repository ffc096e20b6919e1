"""Tests of `leasehold-py leases` against the real server."""

from __future__ import annotations

from support.claims import username
from support.claims_server import ClaimsServer
from support.command import answer, on_terminal, run

from leasehold.client import Client


def test_b31_leases_are_listed_by_age_oldest_first(cli_server: ClaimsServer, cli_client: Client) -> None:
    begun = [cli_client.begin([username(name)]).uuid for name in ("ann", "bob", "carol")]
    found = answer("leases", "--server", cli_server.url, "--cell", "1")
    assert [lease["uuid"] for lease in found] == begun
    ages = [lease["age_seconds"] for lease in found]
    assert ages == sorted(ages, reverse=True)
    assert not any(lease["is_stale"] for lease in found)
    assert answer("leases", "--server", cli_server.url, "--cell", "2") == []


def test_a_lease_over_the_threshold_is_stale(cli_server: ClaimsServer, cli_client: Client) -> None:
    lease = cli_client.begin([username("ann")]).uuid
    options = ["--server", cli_server.url, "--cell", "1", "--stale-after-seconds"]
    assert [found["uuid"] for found in answer("leases", *options, "0", "--stale")] == [lease]
    assert answer("leases", *options, "3600", "--stale") == []
    assert "cell 1: 1 outstanding, 1 stale" in run("leases", *options, "0").stdout


def test_the_server_comes_from_the_environment(cli_server: ClaimsServer) -> None:
    assert run("leases", "--cell", "1", LEASEHOLD_SERVER=cli_server.url).returncode == 0


def test_exit_codes_tell_the_kind_of_failure(cli_server: ClaimsServer) -> None:
    unknown_cell = run("leases", "--server", cli_server.url, "--cell", "99")
    assert (unknown_cell.returncode, unknown_cell.stdout) == (3, "")
    assert unknown_cell.stderr.startswith("error: ")
    assert run("leases").returncode == 2
    huge = run("leases", "--cell", "99999999999999999999")
    assert (huge.returncode, "Traceback" in huge.stderr) == (2, False)
    assert run("leases", "--cell", "1", "--ca", "ca.pem").returncode == 2
    cli_server.kill()
    options = ["--server", cli_server.url, "--cell", "1", "--timeout-seconds", "1"]
    assert run("leases", *options).returncode in (4, 5)


def test_a_narrow_terminal_gets_whole_ids(cli_server: ClaimsServer, cli_client: Client) -> None:
    lease = cli_client.begin([username("ann")]).uuid
    for columns in (20, 60, 200):
        shown = on_terminal(columns, "leases", "--server", cli_server.url, "--cell", "1")
        assert (lease in shown, "…" in shown) == (True, False)
        assert "fresh" in shown


def test_help_lists_the_exit_codes() -> None:
    assert "nothing" not in run("--help").stderr
    assert "try again" in run("--help").stdout
    assert "stopped before the end" in run("--help").stdout
