"""Tests of workers in processes of their own: processes that are killed, forked, interrupted, or end."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from support.certificates import Authority, Files
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.locks import LONG, ended, line, program
from support.queues import QUEUE, attempts, next_of, state, submit, taken, update

from leasehold import errors
from leasehold.client import Client, Tls
from leasehold.queues import LaneList, RequestState


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url) as client:
        yield client


KILLED = """
with client.lock_session(**SHORT) as session, client.take("sheets", session=session) as worker:
    for batch in worker:
        batch.note_progress(b"half")
        say(batch.requests[0].attempt)
        hear()
"""


def test_q03_q20_the_requests_and_the_progress_of_a_killed_worker_come_to_another(
    client: Client, embedded: ClaimsServer
) -> None:
    (one,) = submit(client, update())
    with program(KILLED, embedded.url) as process:
        assert line(process) == "1"
        process.kill()
        with client.take(QUEUE) as worker, next_of(worker) as again:
            assert ([each.id for each in again.requests], attempts(again), again.progress) == ([one], [2], b"half")
    assert state(client, one) == (RequestState.COMPLETE, 2)


# The exits of the blocks in the child must not touch the batch of the parent.
FORKED = """
import os
with client.take("sheets") as worker:
    for batch in worker:
        with batch:
            child = os.fork()
            if child == 0:
                say(batch.is_held, batch.is_lost)
                for call in (batch.complete, batch.check, lambda: batch.note_progress(b"mine")):
                    try:
                        call()
                    except LeaseholdError as error:
                        say(error.code)
                break
            assert os.waitpid(child, 0) == (child, 0)
            say(batch.is_held)
            worker.stop()
if child == 0:
    sys.stdout.flush()
    os._exit(0)
"""


def test_a_forked_child_does_not_settle_the_batch_of_its_parent(client: Client, embedded: ClaimsServer) -> None:
    (one,) = submit(client, update())
    with program(FORKED, embedded.url) as parent:
        assert [line(parent) for _ in range(4)] == ["False True", "FORKED", "BATCH_LOST", "FORKED"]
        assert line(parent) == "True"
        # gRPC says that other threads call it at the fork.
        code, said, told = ended(parent)
        assert (code, said, "Traceback" in told) == (0, "", False)
    assert state(client, one) == (RequestState.COMPLETE, 1)


INTERRUPTED = """
try:
    for batch in client.take("sheets", credit=2):
        with batch:
            say(batch.requests[0].attempt)
            sys.stdin.readline()
except KeyboardInterrupt:
    say("interrupted")
"""


def test_q11_an_interrupted_loop_gives_back_what_it_holds(client: Client, embedded: ClaimsServer) -> None:
    ids = submit(client, update("7"), update("8"))
    with program(INTERRUPTED, embedded.url) as process:
        assert line(process) == "1"
        taken(client, 2)
        process.send_signal(signal.SIGINT)
        assert line(process) == "interrupted"
        assert ended(process) == (0, "", "")
    assert [state(client, each) for each in ids] == [(RequestState.NEW, 0)] * 2


# No block closes the worker: its threads wait in gRPC and in the extension when the interpreter ends.
EXIT = """
worker = client.take("sheets")
worker.open()
say(worker.next_batch().requests[0].attempt)
"""


def test_a_process_may_end_with_an_open_worker(client: Client, embedded: ClaimsServer) -> None:
    submit(client, update())
    with program(EXIT, embedded.url) as process:
        assert line(process) == "1"
        assert ended(process) == (0, "", "")
    # Another process may still work on the batch, so it passes on by the silence of its session only.
    assert [lane.key for lane in client.lanes(QUEUE, LaneList.TAKEN)] == ["7"]


def test_a_service_works_the_queues_of_its_namespaces(authority: Authority) -> None:
    def connect(files: Files) -> Client:
        return Client(server.url, tls=Tls(files.ca, files.certificate, files.key))

    access = '[[locks.access]]\ncaller = "service/billing"\nnamespaces = ["bill"]\n'
    with (
        ClaimsServer(tls=authority.server(), settings=access) as server,
        connect(authority.service("billing")) as client,
        connect(authority.admin()) as admin,
    ):
        one = client.submit("bill.month", "7").id
        with client.lock_session(**LONG) as session, client.take("bill.month", session=session) as worker:
            assert attempts(next_of(worker)) == [1]
        # The end of the worker has listed and given back what it held.
        assert state(admin, one) == (RequestState.NEW, 0)
        for denied in (
            lambda: client.submit("user", "7"),
            lambda: client.pause_queue("bill.month"),
            lambda: next(iter(client.take("user"))),
            lambda: admin.submit("bill.month", "7"),
        ):
            assert isinstance(raised_by(denied), errors.DeniedError)
        admin.pause_queue("bill.month")
        assert client.get_queue("bill.month").is_paused
