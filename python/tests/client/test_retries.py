"""Tests of calls whose responses are lost or late, on the real server behind a proxy."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.claims import raised_by, username
from support.claims_server import ClaimsServer
from support.tcp_proxy import TcpProxy
from support.waiting import DEADLINE_SECONDS, wait_for

from leasehold import errors
from leasehold.claims import Lease
from leasehold.client import Client, Retry
from leasehold.client._retry import Attempts

PATIENT = Retry(attempts=2, attempt_timeout_seconds=60.0, backoff_seconds=0.01)
HASTY = Retry(attempts=2, attempt_timeout_seconds=0.3, backoff_seconds=0.01)


@pytest.fixture
def direct(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url, cell_id=1) as client:
        yield client


def proxied(proxy: TcpProxy, retry: Retry) -> Client:
    client = Client(f"http://{proxy.address}", cell_id=1, retry=retry)
    # Connect now, so that the next data from the server is the response to the call under test.
    client.cells(timeout_seconds=60)
    return client


def begun(client: Client) -> list[str]:
    return [lease.uuid for lease in client.leases()]


def test_b09_a_retry_after_a_cut_connection_returns_the_first_lease(direct: Client, proxy: TcpProxy) -> None:
    with proxied(proxy, PATIENT) as client:
        proxy.cut_next_answer(lambda: wait_for("the lease of the first attempt", lambda: begun(direct)))
        lease = client.begin([username("alice")], timeout_seconds=60)
    assert begun(direct) == [lease.uuid]
    assert lease.fence == 1


def test_b09_a_retry_after_a_timeout_returns_the_first_lease(direct: Client, proxy: TcpProxy) -> None:
    leases: list[Lease] = []
    # The attempts after the second one are for a machine that pauses for longer than an attempt may take.
    with proxied(proxy, Retry(attempts=100, attempt_timeout_seconds=2.0, backoff_seconds=0.01)) as client:
        proxy.hold_answers()
        caller = threading.Thread(target=lambda: leases.append(client.begin([username("alice")], timeout_seconds=120)))
        caller.start()
        wait_for("the lease of the first attempt", lambda: begun(direct))
        sent = proxy.client_bytes
        wait_for("the second attempt", lambda: proxy.client_bytes > sent)
        proxy.release_answers()
        caller.join()
    assert begun(direct) == [lease.uuid for lease in leases]


def test_each_attempt_has_its_timeout_and_the_last_one_raises(proxy: TcpProxy) -> None:
    with proxied(proxy, HASTY) as client:
        proxy.hold_answers()
        start = time.monotonic()
        name = str(uuid.uuid4())
        error = raised_by(lambda: client.commit(name, timeout_seconds=300))
        elapsed = time.monotonic() - start
    assert isinstance(error, errors.DeadlineExceededError)
    # An attempt that has the timeout of the whole call takes five minutes.
    assert 0.55 < elapsed < 60
    assert (error.outcome_is_unknown, error.lease_uuid, error.is_temporary) == (True, name, True)


def test_the_timeout_of_a_call_bounds_all_attempts(proxy: TcpProxy) -> None:
    many = Retry(attempts=600, attempt_timeout_seconds=0.2, backoff_seconds=0.01)
    with proxied(proxy, many) as client:
        proxy.hold_answers()
        start = time.monotonic()
        error = raised_by(lambda: client.begin([username("alice")], timeout_seconds=0.7, idempotency_key="mine"))
        elapsed = time.monotonic() - start
    assert isinstance(error, errors.DeadlineExceededError)
    # Without this timeout, the attempts alone take more than two minutes.
    assert elapsed < 60
    assert (error.outcome_is_unknown, error.idempotency_key) == (True, "mine")


def test_a_refusal_is_not_retried(direct: Client, proxy: TcpProxy) -> None:
    direct.begin([username("alice")])
    # A second attempt comes after two minutes or more, and within the time of the call.
    many = Retry(attempts=2, attempt_timeout_seconds=60, backoff_seconds=240.0, max_backoff_seconds=240.0)
    with proxied(proxy, many) as client:
        start = time.monotonic()
        for name, refusal in (("alice", errors.BusyError), ("no name", errors.InvalidError)):
            error = raised_by(lambda: client.begin([username(name)], timeout_seconds=600))  # noqa: B023
            assert isinstance(error, refusal)
        assert time.monotonic() - start < 60


def test_a_killed_server_keeps_its_leases(server: ClaimsServer) -> None:
    # The attempts end by their number: at the end of a call's time, the last one may fail as late instead.
    few = Retry(attempts=3, attempt_timeout_seconds=60)
    with Client(server.url, cell_id=1, retry=few, timeout_seconds=120) as client:
        lease = client.begin([username("alice")], idempotency_key="mine")
        server.kill()
        error = raised_by(lambda: client.commit(lease.uuid))
        assert isinstance(error, errors.UnavailableError)
        assert error.outcome_is_unknown
        server.start()
        patient = Client(server.url, cell_id=1, retry=Retry(attempts=100))
        assert patient.begin([username("alice")], idempotency_key="mine", timeout_seconds=60) == lease
        patient.commit(lease.uuid)
        patient.close()


def test_attempts_continue_until_the_server_is_back(server: ClaimsServer) -> None:
    with Client(server.url, cell_id=1, retry=Retry(attempts=1000), timeout_seconds=60) as client:
        client.cells()
        server.kill()
        leases: list[Lease] = []
        caller = threading.Thread(target=lambda: leases.append(client.begin([username("alice")])))
        caller.start()
        server.start()
        caller.join()
        assert begun(client) == [lease.uuid for lease in leases]


def test_a_restarted_server_is_found_within_one_call(embedded: ClaimsServer) -> None:
    # The attempts are enough for gRPC's reconnect backoff to reach its maximum.
    with Client(embedded.url, cell_id=1, retry=Retry(attempts=7, attempt_timeout_seconds=60), timeout_seconds=300) as client:
        client.cells()
        embedded.kill()
        assert isinstance(raised_by(client.cells), errors.UnavailableError)
        embedded.start()
        client.cells()


def test_a_server_that_is_down_is_tried_at_short_intervals() -> None:
    seen_enough = threading.Event()

    def call_on(client: Client) -> None:
        while not seen_enough.is_set():
            raised_by(lambda: client.cells(timeout_seconds=1))

    eager = Retry(attempts=1000, backoff_seconds=0.05, max_backoff_seconds=0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as down,
        Client(f"http://127.0.0.1:{down.getsockname()[1]}", cell_id=1, retry=eager) as client,
        ThreadPoolExecutor() as pool,
    ):
        caller = pool.submit(call_on, client)
        down.settimeout(DEADLINE_SECONDS)
        start = time.monotonic()
        try:
            for _ in range(9):
                down.accept()[0].close()
            # With the backoff of gRPC itself, which grows up to two minutes, the ninth connection comes after 56 s or more.
            assert time.monotonic() - start < 40
        finally:
            seen_enough.set()
        caller.result(DEADLINE_SECONDS)


def test_a_closed_client_raises(embedded: ClaimsServer) -> None:
    client = Client(embedded.url, cell_id=1)
    client.close()
    error = raised_by(client.cells)
    assert (type(error), error.code) == (errors.MisconfiguredError, "CLOSED")


def test_the_delay_is_bounded_after_thousands_of_attempts() -> None:
    attempts = Attempts(Retry(attempts=10_000, max_backoff_seconds=2.0), timeout_seconds=1e6)
    for _ in range(2_000):
        attempts.attempt_timeout_seconds()
    delay = attempts.wait_seconds(errors.UnavailableError("the server is down", code="UNAVAILABLE"))
    assert delay is not None
    assert 1.0 <= delay <= 2.0


@pytest.mark.parametrize("cell", [0, -1, 2**63, "1"])
def test_an_invalid_cell_id_is_refused(cell: int) -> None:
    assert "`cell_id`" in str(raised_by(lambda: Client(cell_id=cell)))


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_an_invalid_timeout_is_refused(seconds: float) -> None:
    with Client() as client:
        assert "`timeout_seconds`" in str(raised_by(lambda: client.cells(timeout_seconds=seconds)))
    assert "`timeout_seconds`" in str(raised_by(lambda: Client(timeout_seconds=seconds)))
    assert "`backoff_seconds`" in str(raised_by(lambda: Retry(backoff_seconds=seconds)))
    assert "`attempts`" in str(raised_by(lambda: Retry(attempts=0)))
