"""Tests that `leasehold-py` answers as the program `leasehold` does: errors, JSON, exit codes, the version and help."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.certificates import Authority, Files
from support.claims_server import ClaimsServer, binary
from support.command import environment, run
from support.refusing_server import RefusingServer

from leasehold.errors import NUMBERS

ABSENT = "http://127.0.0.1:1"
COMMANDS = {
    "leases": ["--cell", "1"],
    "verify": ["users.csv", "--cell", "1", "--source", "USERS", "--claim", "USERNAMES=username,USER=id"],
    "load": ["--cell", "1", "--saves", "1"],
    "work": ["sheets", "json:dumps"],
    "relay": ["--database", "postgres://127.0.0.1:1/none"],
}
# Reasons whose hints in `leasehold` are for other commands than those of `leasehold-py`.
OTHER_HINTS = {
    "CLAIM_TAKEN",
    "CLAIM_CHANGED",
    "CLAIM_NOT_FOUND",
    "LEASE_NOT_FOUND",
    "LEASE_ROLLED_BACK",
    "LEASE_COMMITTED",
    "LIMIT_EXCEEDED",
    "IDEMPOTENCY_KEY_REUSED",
    "FENCE_PASSED",
}


@pytest.fixture(scope="module")
def refusing() -> Iterator[RefusingServer]:
    with RefusingServer() as server:
        yield server


def of_leasehold(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(binary()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), timeout=60)


def both(*arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON errors of `leasehold` and `leasehold-py`, whose exit codes are those of the processes."""
    errors = []
    for ended in (of_leasehold(*arguments, "--json"), run(*arguments, "--json")):
        assert ended.stdout == ""
        (line,) = ended.stderr.splitlines()
        error = json.loads(line)["error"]
        assert error["exitCode"] == ended.returncode
        errors.append(error)
    return errors[0], errors[1]


def texts(*arguments: str) -> tuple[str, str]:
    return of_leasehold(*arguments).stderr, run(*arguments).stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_an_absent_server_is_said_at_once_in_the_words_of_leasehold(name: str, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("id,username\n1,ann\n")
    arguments = [argument.replace("users.csv", str(tmp_path / "users.csv")) for argument in COMMANDS[name]]
    start = time.monotonic()
    ended = run(name, *arguments, "--server", ABSENT, "--json", "--timeout-seconds", "60")
    # A client would try again for at least 16 seconds: after each of its 20 attempts but the last.
    assert time.monotonic() - start < 15
    assert (ended.returncode, ended.stdout) == (5, "")
    (error,) = (json.loads(line)["error"] for line in ended.stderr.splitlines())
    wanted, _ = both("leases", "--cell", "1", "--server", ABSENT)
    # Python has no number of the operating system's error in its text.
    assert error == {**wanted, "message": wanted["message"].partition(" (os error")[0]}


def test_an_unknown_name_of_a_server_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.cell(1)
    options = ["--ca", str(authority.ca), "--cert", str(files.certificate), "--key", str(files.key)]
    ended = run("leases", "--cell", "1", "--server", "https://nowhere.invalid:7171", *options)
    assert ended.returncode == 5
    assert ended.stderr.startswith("error: cannot reach https://nowhere.invalid:7171: ")
    assert ended.stderr.endswith("\nhint: start one with `leasehold serve`, or name yours with --server\n")


@pytest.mark.parametrize("status", [status for status in grpc.StatusCode if status is not grpc.StatusCode.OK])
def test_each_grpc_status_is_reported_as_by_leasehold(refusing: RefusingServer, status: grpc.StatusCode) -> None:
    refusing.status, refusing.reason, refusing.retry_after_seconds = status, "", None
    arguments = ["leases", "--cell", "1", "--server", refusing.url]
    wanted, found = both(*arguments)
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        # `leasehold` replaces the server's message by its own.
        assert wanted.pop("message").startswith("no answer")
        del found["message"]
    assert found == wanted


@pytest.mark.parametrize("reason", [*NUMBERS, "OVERLOADED", "STORE_UNAVAILABLE", "NO_IDENTITY", "RULE_DENIED"])
def test_each_reason_is_reported_as_by_leasehold(refusing: RefusingServer, reason: str) -> None:
    refusing.status, refusing.reason, refusing.retry_after_seconds = grpc.StatusCode.FAILED_PRECONDITION, reason, 0.25
    wanted, found = both("leases", "--cell", "1", "--server", refusing.url)
    if reason in OTHER_HINTS:
        del wanted["hint"], found["hint"]
    assert found == wanted


@pytest.mark.parametrize("status", [status for status in grpc.StatusCode if status is not grpc.StatusCode.OK])
def test_a_reason_of_a_newer_server_is_reported_as_by_leasehold(refusing: RefusingServer, status: grpc.StatusCode) -> None:
    refusing.status, refusing.reason, refusing.retry_after_seconds = status, "OF_TOMORROW", 0.25
    wanted, found = both("leases", "--cell", "1", "--server", refusing.url)
    assert (found["reason"], found["code"]) == ("OF_TOMORROW", status.name)
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        # `leasehold` replaces the server's answer by its own.
        assert found["exitCode"] == wanted["exitCode"]
    else:
        assert found == wanted


def test_a_reason_of_a_proxy_is_none_of_leasehold(refusing: RefusingServer) -> None:
    refusing.status, refusing.reason, refusing.retry_after_seconds = grpc.StatusCode.UNAVAILABLE, "CLAIM_TAKEN", None
    refusing.domain = "proxy.example.com"
    try:
        wanted, found = both("leases", "--cell", "1", "--server", refusing.url)
    finally:
        refusing.domain = "leasehold"
    assert found == wanted
    assert found["reason"] is None


def test_a_server_that_asks_for_no_certificate_is_reached_with_the_authority_alone(authority: Authority) -> None:
    with RefusingServer(authority.server()) as server:
        server.status, server.reason = grpc.StatusCode.NOT_FOUND, "LEASE_NOT_FOUND"
        ca = ["--ca", str(authority.ca)]
        wanted, found = both("leases", "--cell", "1", "--server", server.url, *ca)
        del wanted["hint"], found["hint"]
        assert found == wanted
        assert found["reason"] == "LEASE_NOT_FOUND"
        _, found = both("leases", "--cell", "1", "--server", server.url.removeprefix("https://"), *ca)
        assert found["reason"] == "LEASE_NOT_FOUND"


def test_an_incomplete_identity_is_refused_as_by_leasehold(authority: Authority) -> None:
    files = authority.cell(1)
    ca, cert, key = ["--ca", str(files.ca)], ["--cert", str(files.certificate)], ["--key", str(files.key)]
    for options in ([*ca, *cert], [*ca, *key], cert, key):
        wanted, found = both("leases", "--cell", "1", "--server", "https://127.0.0.1:1", *options)
        assert (found["message"], found["exitCode"]) == (wanted["message"], wanted["exitCode"]) == (found["message"], 2)
    for server in ("https://127.0.0.1:1", "http://127.0.0.1:1"):
        _, found = both("leases", "--cell", "1", "--server", server, *cert, *key)
        assert (found["exitCode"], "--ca" in found["message"]) == (2, True)


def test_texts_have_the_reason_and_the_hint(refusing: RefusingServer) -> None:
    refusing.status, refusing.reason, refusing.retry_after_seconds = grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", 0.25
    wanted, found = texts("leases", "--cell", "1", "--server", refusing.url)
    assert found == wanted == "error: no (OVERLOADED)\nhint: try again in 250 ms\n"


def test_a_refusal_of_the_real_server_is_reported_as_by_leasehold(cli_server: ClaimsServer) -> None:
    wanted, found = both("leases", "--cell", "99", "--server", cli_server.url)
    assert found == wanted
    assert found["reason"]
    in_text = texts("leases", "--cell", "99", "--server", cli_server.url)
    assert in_text[0] == in_text[1]


def test_a_server_with_other_encryption_or_certificates_is_explained_as_by_leasehold(
    authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    me, stranger = authority.cell(1), other.cell(2)
    mine = ["--ca", str(me.ca), "--cert", str(me.certificate), "--key", str(me.key)]
    refused = ["--ca", str(me.ca), "--cert", str(stranger.certificate), "--key", str(stranger.key)]
    foreign = authority.stranger()
    for tls, scheme, options, code in (
        (authority.server(), "http", [], 5),
        (None, "https", mine, 5),
        (Files(authority.ca, other.server().certificate, other.server().key), "https", mine, 5),
        (foreign, "https", mine, 5),
        (authority.server(), "https", refused, 6),
        (authority.server(), "https", ["--ca", str(me.ca)], 6),
    ):
        with ClaimsServer(tls=tls) as server:
            url = f"{scheme}://{server.address}"
            wanted, found = both("leases", "--cell", "1", "--server", url, *options, "--timeout-seconds", "3")
        assert (found["exitCode"], wanted["exitCode"]) == (code, code), (wanted, found)
        assert (found["hint"], found["code"], found["reason"]) == (wanted["hint"], wanted["code"], wanted["reason"])
        # The texts of OpenSSL and of rustls on a certificate differ.
        assert found["message"].split(": ")[:2] == wanted["message"].split(": ")[:2]


VERIFY = ["verify", "users.csv", "--cell", "1", "--source", "users", "--claim", "USERNAMES=username,USER=id"]


@pytest.mark.parametrize(
    ("words", "option", "wanted"),
    [
        ([*VERIFY, "--taken-at", "2026-01-31"], "--taken-at", "a time such as 2026-01-31T12:00:00Z"),
        ([*VERIFY, "--max-destroy-share", "2"], "--max-destroy-share", "a number, 0 to 1"),
        ([*VERIFY, "--rows-per-page", "1.5"], "--rows-per-page", "an integer, 1 to 4294967295"),
        (["leases", "--cell", "x"], "--cell", "an integer, 1 to 9223372036854775807"),
        (["work", "queue", "module:function", "--credit", "257"], "--credit", "an integer, 1 to 256"),
    ],
)
def test_a_refused_value_says_what_to_pass(words: list[str], option: str, wanted: str) -> None:
    ended = run(*words)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[0] == f"error: invalid value for `{option}`: pass {wanted}"
