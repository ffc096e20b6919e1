"""Tests of `leasehold-py work` against the real server: workers in processes of their own."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.claims_server import ClaimsServer
from support.command import COMMAND, environment, run
from support.queues import QUEUE, SECRET, state, submit, taken, update
from support.waiting import wait_for

from leasehold.client import Client
from leasehold.queues import RequestState

STOPPING = "stopping; a second signal gives unfinished batches back at once\n"

# The functions of the tests write a line for each batch, so that a test sees what was worked.
JOBS = """
import asyncio, pathlib, signal, threading, time

def note(batch):
    with pathlib.Path("worked").open("a") as file:
        for request in batch.requests:
            file.write(f"{batch.key} {request.attempt} {request.body.decode()}\\n")

def work(batch):
    note(batch)

def fail(batch):
    note(batch)
    if batch.requests[0].attempt == 1:
        raise ValueError(batch.requests[0].body)

both = threading.Barrier(2)

def meet(batch):
    both.wait(60)
    note(batch)

def hang(batch):
    note(batch)
    time.sleep(600)

def until_told(batch):
    note(batch)
    while not pathlib.Path("go").exists():
        time.sleep(0.01)

async def work_async(batch):
    await asyncio.sleep(0)
    note(batch)

async def hang_async(batch):
    note(batch)
    await asyncio.sleep(600)

def told_elsewhere(batch):
    note(batch)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(600)

class Worker:
    async def __call__(self, batch):
        note(batch)

worker = Worker()
nothing = 1
"""


@contextmanager
def working(server: ClaimsServer, directory: Path, function: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker in a directory, from its first word on. It is killed at the end of the block."""
    (directory / "jobs.py").write_text(JOBS)
    command = [*COMMAND, "work", QUEUE, f"jobs:{function}", "--server", server.url, *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=directory, stdout=pipe, stderr=pipe, text=True, env=environment()) as process:
        try:
            assert process.stderr is not None
            assert "press Ctrl-C" in process.stderr.readline()
            yield process
        finally:
            process.kill()


def stop(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send the first signal, and wait until the worker has heard it."""
    process.send_signal(number)
    assert process.stderr is not None
    assert process.stderr.readline() == STOPPING


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Send a signal. Return the exit code, and the rest of the standard error."""
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def worked(directory: Path) -> list[str]:
    path = directory / "worked"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("function", ["work", "work_async", "worker"])
def test_q01_a_function_works_the_batches_until_a_signal(
    cli_server: ClaimsServer, cli_client: Client, tmp_path: Path, function: str
) -> None:
    ids = submit(cli_client, update("7", "a"), update("7", "b"), update("8", "c"))
    with working(cli_server, tmp_path, function, "--max-requests", "1") as process:
        wait_for("the end of the work", lambda: [state(cli_client, each)[0] for each in ids] == [RequestState.COMPLETE] * 3)
        assert ended(process, signal.SIGTERM) == (0, STOPPING)
    assert sorted(worked(tmp_path)) == ["7 1 a", "7 1 b", "8 1 c"]


def test_q03_the_requests_of_a_worker_that_was_killed_come_to_another_one(
    cli_server: ClaimsServer, cli_client: Client, tmp_path: Path
) -> None:
    (one,) = submit(cli_client, update("7", "a"))
    with working(cli_server, tmp_path, "hang") as process:
        wait_for("the work", lambda: worked(tmp_path) == ["7 1 a"])
        process.kill()
        process.wait()
    with working(cli_server, tmp_path, "work"):
        wait_for("the work of the other", lambda: worked(tmp_path) == ["7 1 a", "7 2 a"])
        wait_for("its end", lambda: state(cli_client, one) == (RequestState.COMPLETE, 2))


def test_q13_a_worker_survives_a_batch_that_fails_and_shows_no_payload(
    cli_server: ClaimsServer, cli_client: Client, tmp_path: Path
) -> None:
    (one,) = submit(cli_client, update(SECRET, SECRET))
    with working(cli_server, tmp_path, "fail") as process:
        wait_for("the second attempt", lambda: state(cli_client, one) == (RequestState.COMPLETE, 2))
        code, said = ended(process, signal.SIGINT)
    assert (code, SECRET in said) == (0, False)
    assert "a batch of the queue `sheets` has failed by `ValueError`" in said
    assert "raise ValueError" in said


def test_credit_batches_are_worked_at_a_time(cli_server: ClaimsServer, cli_client: Client, tmp_path: Path) -> None:
    submit(cli_client, update("7", "a"), update("8", "b"))
    with working(cli_server, tmp_path, "meet", "--credit", "2"):
        wait_for("both batches", lambda: sorted(worked(tmp_path)) == ["7 1 a", "8 1 b"])


def test_q11_a_stop_lets_the_batch_that_is_worked_end_and_takes_nothing_more(
    cli_server: ClaimsServer, cli_client: Client, tmp_path: Path
) -> None:
    ids = submit(cli_client, update("7", "a"))
    with working(cli_server, tmp_path, "until_told") as process:
        wait_for("the work", lambda: worked(tmp_path) == ["7 1 a"])
        stop(process, signal.SIGTERM)
        ids += submit(cli_client, update("8", "b"))
        (tmp_path / "go").touch()
        _, said = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, "")
    assert [state(cli_client, each) for each in ids] == [(RequestState.COMPLETE, 1), (RequestState.NEW, 0)]


@pytest.mark.parametrize("function", ["hang", "hang_async"])
def test_q11_a_stop_gives_back_what_is_not_finished_in_time(
    cli_server: ClaimsServer, cli_client: Client, tmp_path: Path, function: str
) -> None:
    ids = submit(cli_client, update("7", "a"), update("8", "b"))
    with working(cli_server, tmp_path, function, "--credit", "2", "--stop-within-seconds", "0.1") as process:
        wait_for("the work", lambda: sorted(worked(tmp_path)) == ["7 1 a", "8 1 b"])
        code, said = ended(process, signal.SIGTERM)
    assert (code, "Traceback" in said) == (0, False)
    assert [state(cli_client, each) for each in ids] == [(RequestState.NEW, 0)] * 2
    taken(cli_client, 0)


def test_a_signal_is_heard_in_whichever_thread_it_comes(cli_server: ClaimsServer, cli_client: Client, tmp_path: Path) -> None:
    (one,) = submit(cli_client, update("7", "a"))
    with working(cli_server, tmp_path, "told_elsewhere", "--stop-within-seconds", "0.1") as process:
        process.communicate(timeout=60)
    assert (process.returncode, worked(tmp_path)) == (0, ["7 1 a"])
    assert state(cli_client, one) == (RequestState.NEW, 0)


def test_q11_a_second_signal_does_not_wait(cli_server: ClaimsServer, cli_client: Client, tmp_path: Path) -> None:
    (one,) = submit(cli_client, update("7", "a"))
    with working(cli_server, tmp_path, "hang", "--stop-within-seconds", "600") as process:
        wait_for("the work", lambda: worked(tmp_path) == ["7 1 a"])
        stop(process, signal.SIGINT)
        code, said = ended(process, signal.SIGTERM)
    assert (code, "given back" in said) == (0, True)
    assert state(cli_client, one) == (RequestState.NEW, 0)


def test_a_function_that_cannot_be_imported_is_a_usage_error(cli_server: ClaimsServer) -> None:
    for name, text in {
        "jobs": "names no function",
        "no_such_module:work": "cannot be imported",
        "json:no_such_function": "has no function",
        "json:__name__": "has no function",
    }.items():
        refused = run("work", QUEUE, name, "--server", cli_server.url)
        assert (refused.returncode, text in refused.stderr, "Traceback" in refused.stderr) == (2, True, False)
    assert run("work", "a..b", "json:dumps", "--server", cli_server.url).returncode == 3
