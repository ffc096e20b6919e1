"""Tests of the end of a `with` block's lease, for every way in which the block can end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from support.claims import bucket, raised_by, username
from support.claims_server import ClaimsServer
from support.tcp_proxy import TcpProxy
from support.waiting import wait_for

from leasehold import errors
from leasehold.client import Client, Retry


class LocalError(Exception):
    """An error that the caller's own code raises inside a block."""


def is_claimed(client: Client, name: str) -> bool:
    try:
        return client.get(bucket(name)).record.lease_uuid is None
    except errors.NotFoundError:
        return False


def outstanding(client: Client) -> list[str]:
    return [lease.uuid for lease in client.leases()]


def test_the_end_of_the_block_commits(client: Client) -> None:
    with client.update(creates=[username("alice")]) as lease:
        assert outstanding(client) == [lease.uuid]
        assert lease.fence == lease.lease.fence
    assert is_claimed(client, "alice")
    with client.update(destroys=[username("alice")], creates=[username("bob")]):
        pass
    assert (is_claimed(client, "alice"), is_claimed(client, "bob"), outstanding(client)) == (False, True, [])


@pytest.mark.parametrize("kind", [LocalError, KeyboardInterrupt, SystemExit])
def test_an_exception_in_the_block_rolls_back_and_propagates(client: Client, kind: type[BaseException]) -> None:
    with pytest.raises(kind), client.update(creates=[username("alice")]):
        raise kind
    assert (is_claimed(client, "alice"), outstanding(client)) == (False, [])


def test_r02_an_exception_in_local_commit_leaves_the_lease_outstanding(client: Client) -> None:
    with pytest.raises(LocalError), client.update(creates=[username("alice")]) as lease, lease.local_commit():
        raise LocalError
    assert outstanding(client) == [lease.uuid]


def test_an_exception_after_local_commit_commits_and_propagates(client: Client) -> None:
    def fails_late() -> None:
        with client.update(creates=[username("alice")]) as lease:
            with lease.local_commit():
                pass
            raise LocalError

    with pytest.raises(LocalError):
        fails_late()
    assert (is_claimed(client, "alice"), outstanding(client)) == (True, [])


def test_a_refused_begin_skips_the_block_and_leaves_no_lease(client: Client) -> None:
    ran = []

    def refused() -> None:
        with client.update(creates=[username("two words")]):
            ran.append(True)

    assert isinstance(raised_by(refused), errors.InvalidError)
    assert (ran, outstanding(client)) == ([], [])


def test_b23_a_refused_commit_raises(client: Client) -> None:
    def reconciled_too_early() -> None:
        with client.update(creates=[username("alice")]) as lease:
            client.rollback(lease.uuid)

    error = raised_by(reconciled_too_early)
    assert isinstance(error, errors.RolledBackError)
    assert (error.lease_uuid is not None, error.outcome_is_unknown) == (True, False)


def test_a_failed_rollback_does_not_replace_the_exception_of_the_block(client: Client) -> None:
    def settles_and_fails() -> None:
        with client.update(creates=[username("alice")]) as lease:
            client.commit(lease.uuid)
            raise LocalError

    with pytest.raises(LocalError):
        settles_and_fails()
    assert is_claimed(client, "alice")


def test_reading_the_lease_before_the_block_raises(client: Client) -> None:
    with pytest.raises(RuntimeError, match="with"):
        client.update(creates=[username("alice")]).uuid  # noqa: B018


def test_a_server_killed_during_a_save_leaves_the_lease_to_a_later_settlement(
    server: ClaimsServer, caplog: pytest.LogCaptureFixture
) -> None:
    once = Retry(attempts=1, attempt_timeout_seconds=60)
    with Client(server.url, cell_id=1, retry=once, timeout_seconds=60) as client:
        # The server is killed before the commit, so the commit's outcome is unknown: no rollback, and a second commit is safe.
        update = client.update(creates=[username("alice")])

        def saves() -> None:
            with update:
                server.kill()

        error = raised_by(saves)
        assert isinstance(error, errors.UnavailableError)
        assert (error.outcome_is_unknown, error.lease_uuid) == (True, update.uuid)
    server.start()
    with Client(server.url, cell_id=1, retry=once, timeout_seconds=60) as client:
        assert outstanding(client) == [update.uuid]
        client.commit(update.uuid)
        assert is_claimed(client, "alice")

        # The server is killed before the rollback: the block's exception propagates, and a warning names the outstanding lease.
        def fails() -> None:
            with client.update(creates=[username("bob")]):
                server.kill()
                raise LocalError

        with pytest.raises(LocalError):
            fails()
    assert "reconciliation" in caplog.text
    server.start()
    with Client(server.url, cell_id=1) as client:
        assert len(outstanding(client)) == 1


def test_b09_a_begin_without_an_answer_is_rolled_back(embedded: ClaimsServer, proxy: TcpProxy) -> None:
    with (
        Client(embedded.url, cell_id=1) as direct,
        Client(f"http://{proxy.address}", cell_id=1, retry=Retry(attempts=1, attempt_timeout_seconds=60)) as client,
    ):
        client.cells(timeout_seconds=60)
        proxy.cut_next_answer(lambda: wait_for("the lease", lambda: outstanding(direct)))

        def saves() -> None:
            with client.update(creates=[username("alice")], timeout_seconds=60):
                raise AssertionError("the block must not run")

        error = raised_by(saves)
        assert isinstance(error, errors.UnavailableError)
        assert error.outcome_is_unknown
        # The client has rolled the begin back; if it could not reconnect in time, a note on the error names the lease.
        assert outstanding(direct) == [] or "reconciliation" in "".join(getattr(error, "__notes__", []))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Make SIGINT raise `KeyboardInterrupt`. In background jobs of a shell, SIGINT is ignored by default."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_begin_is_rolled_back(embedded: ClaimsServer, proxy: TcpProxy) -> None:
    with (
        Client(embedded.url, cell_id=1) as direct,
        Client(f"http://{proxy.address}", cell_id=1) as client,
    ):
        client.cells()
        proxy.hold_answers()

        def interrupt() -> None:
            wait_for("the lease", lambda: outstanding(direct))
            sent = proxy.client_bytes
            os.kill(os.getpid(), signal.SIGINT)
            wait_for("the begin to be given up", lambda: proxy.client_bytes > sent)
            proxy.release_answers()

        other = threading.Thread(target=interrupt)
        other.start()
        with pytest.raises(KeyboardInterrupt), client.update(creates=[username("alice")], timeout_seconds=30):
            raise AssertionError("the block must not run")
        other.join()
        assert outstanding(direct) == []
