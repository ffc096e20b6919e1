"""Tests of the cleanup after holders that have died, on the real server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.locks import LONG, PATIENT, ended, line, program
from support.tcp_proxy import TcpProxy
from support.waiting import wait_for

from leasehold import errors
from leasehold.client import Client, LockSession
from leasehold.client._lock_base import OrphanWait
from leasehold.locks import GrantEnd, LockState, Standing

NAMESPACE = "reaped.runner"


@pytest.fixture
def client(reaped: ClaimsServer) -> Iterator[Client]:
    with Client(reaped.url) as client:
        yield client


@pytest.fixture
def cleaner(client: Client) -> Iterator[LockSession]:
    with client.lock_session(**LONG) as session:
        yield session


def die_holding(client: Client, key: str) -> int:
    """Let a session end while it holds a lock. Return the fence of its grant."""
    with client.lock_session(**LONG) as session:
        return session.acquire(NAMESPACE, key).fence


def state(client: Client, key: str) -> LockState:
    return client.get_lock(NAMESPACE, key).state


def clean_badly(session: LockSession) -> tuple[int, int]:
    with pytest.raises(RuntimeError), session.reap("reaped", wait_seconds=PATIENT) as orphan:
        raise RuntimeError
    return orphan.former_fence, orphan.attempt


def take_in_vain(session: LockSession) -> None:
    with session.reap("reaped", wait_seconds=0):
        raise AssertionError("nothing waits for a cleanup")


def test_k17_a_lock_passes_on_after_its_cleanup_has_succeeded(client: Client, cleaner: LockSession) -> None:
    fence = die_holding(client, "7")
    obituary = client.get_lock(NAMESPACE, "7").obituary
    assert obituary is not None
    assert (obituary.fence, obituary.end, obituary.attempts, obituary.most_attempts) == (fence, GrantEnd.CLOSED, 0, 2)
    with client.lock_session(**LONG) as other, ThreadPoolExecutor() as pool:
        later = pool.submit(other.acquire, NAMESPACE, "7", wait_seconds=PATIENT)
        wait_for("the ask to wait", lambda: client.get_lock(NAMESPACE, "7").waiting == 1)
        assert state(client, "7") is LockState.ORPHANED
        assert [lock.key for lock in client.locks("reaped")] == ["7"]
        with cleaner.reap("reaped", wait_seconds=PATIENT) as orphan:
            assert (orphan.namespace, orphan.key, orphan.name) == (NAMESPACE, "7", f"{NAMESPACE}/7")
            assert (orphan.former_fence, orphan.attempt, orphan.most_attempts) == (fence, 1, 2)
            assert orphan.fence > fence
            assert (orphan.is_held, bool(orphan.remaining())) == (True, True)
            orphan.check()
            lock = client.get_lock(NAMESPACE, "7")
            assert (lock.state, lock.fence, lock.waiting) == (LockState.HELD, orphan.fence, 1)
        held = later.result()
        assert held.fence > orphan.fence
        # A release needs no cleanup, even after work that has failed.
        held.release(failed=True)
    assert (state(client, "7"), client.get_lock(NAMESPACE, "7").obituary) == (LockState.FREE, None)


def test_k17_a_failed_cleanup_comes_again_until_the_lock_is_set_aside(client: Client, cleaner: LockSession) -> None:
    fence = die_holding(client, "7")
    assert clean_badly(cleaner) == (fence, 1)
    assert state(client, "7") is LockState.ORPHANED
    assert clean_badly(cleaner) == (fence, 2)
    assert state(client, "7") is LockState.SET_ASIDE

    for wrong in (fence - 1, fence + 100):
        passed = raised_by(lambda wrong=wrong: client.resolve_orphan(NAMESPACE, "7", wrong, retry=True))  # type: ignore[misc]
        assert (type(passed), passed.code) == (errors.ChangedError, "FENCE_PASSED")
    for decision in ({}, {"retry": True, "cleaned": True}):
        unclear = raised_by(lambda decision=decision: client.resolve_orphan(NAMESPACE, "7", fence, **decision))  # type: ignore[misc]
        assert isinstance(unclear, errors.MisconfiguredError)
    client.resolve_orphan(NAMESPACE, "7", fence, retry=True)
    assert clean_badly(cleaner) == (fence, 1)
    client.resolve_orphan(NAMESPACE, "7", fence, cleaned=True)
    assert state(client, "7") is LockState.FREE


KILLED = """
with client.lock_session(**SHORT) as session, session.reap("reaped") as orphan:
    say(orphan.former_fence, orphan.attempt)
    hear()
"""


def test_k17_the_cleanup_of_a_cleaner_that_was_killed_comes_again(
    client: Client, cleaner: LockSession, reaped: ClaimsServer
) -> None:
    fence = die_holding(client, "7")
    with program(KILLED, reaped.url) as process:
        assert line(process) == f"{fence} 1"
        process.kill()
        with cleaner.reap("reaped", wait_seconds=PATIENT) as orphan:
            assert (orphan.former_fence, orphan.attempt) == (fence, 2)
    assert state(client, "7") is LockState.FREE


def test_k17_a_wait_that_is_over_takes_nothing(client: Client, cleaner: LockSession) -> None:
    late = raised_by(lambda: take_in_vain(cleaner))
    assert (type(late), late.code, late.is_temporary) == (errors.NoOrphanError, "NO_ORPHAN", True)
    fence = die_holding(client, "7")
    with client.lock_session(**LONG) as other, other.reap("reaped", wait_seconds=PATIENT) as orphan:
        assert (orphan.former_fence, orphan.attempt) == (fence, 1)


INTERRUPTED = """
session = client.lock_session(duration_seconds=3600)
session.open()
try:
    say("waits")
    with session.reap("reaped") as orphan:
        say("reaped")
except KeyboardInterrupt:
    say("interrupted")
hear()
"""


def test_k17_an_interrupted_wait_takes_nothing(client: Client, cleaner: LockSession, reaped: ClaimsServer) -> None:
    with program(INTERRUPTED, reaped.url) as process:
        assert line(process) == "waits"
        process.send_signal(signal.SIGINT)
        assert line(process) == "interrupted"
        # The session of the process lives on.
        fence = die_holding(client, "7")
        with cleaner.reap("reaped", wait_seconds=PATIENT) as orphan:
            assert (orphan.former_fence, orphan.attempt) == (fence, 1)


def reaped_later(session: LockSession) -> tuple[str, int]:
    with session.reap("reaped", wait_seconds=PATIENT) as orphan:
        return orphan.key, orphan.attempt


@pytest.mark.parametrize("end", [ClaimsServer.stop, ClaimsServer.kill])
def test_k17_k22_a_wait_goes_on_after_a_restart_of_the_server(
    client: Client, cleaner: LockSession, reaped: ClaimsServer, end: Callable[[ClaimsServer], None]
) -> None:
    with ThreadPoolExecutor() as pool:
        later = pool.submit(reaped_later, cleaner)
        # The call waits as soon as it has taken the first lock, and has another one to wait for.
        die_holding(client, "before")
        assert later.result() == ("before", 1)
        later = pool.submit(reaped_later, cleaner)
        end(reaped)
        reaped.start()
        die_holding(client, "after")
        assert later.result() == ("after", 1)


def test_k22_the_silence_of_a_wait_counts_from_the_end_of_its_stream() -> None:
    broken = errors.UnavailableError("the connection broke", code="UNAVAILABLE")
    wait = OrphanWait(bytes(16), "reaped", None)
    wait._heard_at -= 3600
    wait.hear_end(has_begun=False)
    assert raised_by(lambda: wait.pause_seconds(broken, Standing.SAFE)) is broken
    wait.hear_end(has_begun=True)
    assert wait.pause_seconds(broken, Standing.SAFE) > 0
    assert isinstance(raised_by(lambda: wait.pause_seconds(broken, Standing.LOST)), errors.LockLostError)


def test_k05_k17_a_reap_whose_answer_is_lost_gets_the_same_lock(reaped: ClaimsServer) -> None:
    with (
        Client(reaped.url) as direct,
        TcpProxy(reaped.address) as proxy,
        Client(f"http://{proxy.address}") as client,
        direct.lock_session(**LONG) as session,
    ):
        fence = die_holding(direct, "7")
        session._client = client
        cut = threading.Event()
        proxy.cut_next_answer(cut.set)
        with session.reap("reaped", wait_seconds=PATIENT) as orphan:
            session._client = direct
            assert (cut.is_set(), orphan.former_fence, orphan.attempt) == (True, fence, 1)
            assert direct.get_lock(NAMESPACE, "7").fence == orphan.fence


def test_k11_the_end_of_the_session_ends_the_wait(client: Client, cleaner: LockSession) -> None:
    with ThreadPoolExecutor() as pool:
        later = pool.submit(lambda: raised_by(lambda: reaped_later(cleaner)))
        client.evict_lock_session(cleaner.id)
        assert later.result().code in ("SESSION_ENDED", "LOCK_LOST")
    wait_for("the loss to be known", lambda: cleaner.standing is Standing.LOST)
    assert isinstance(raised_by(lambda: reaped_later(cleaner)), errors.LockLostError)


def test_k11_a_block_whose_session_is_lost_raises_at_its_end(client: Client) -> None:
    def lose() -> None:
        with client.lock_session(**LONG) as session, session.reap("reaped", wait_seconds=PATIENT):
            client.evict_lock_session(session.id)

    fence = die_holding(client, "7")
    assert isinstance(raised_by(lose), errors.LockLostError)
    # An operator's eviction withholds the lock, so its cleanup is not offered yet.
    lock = client.get_lock(NAMESPACE, "7")
    assert lock.obituary is not None
    assert (lock.state, lock.obituary.fence, lock.obituary.attempts) == (LockState.WITHHELD, fence, 1)


def test_k16_k24_malformed_namespaces_are_refused_without_their_text(cleaner: LockSession) -> None:
    for namespace in ("", "secret..b", "secret\n", "secret\ud800"):
        with pytest.raises(errors.InvalidError) as refused, cleaner.reap(namespace):
            pass
        assert (refused.value.code, "secret" in str(refused.value)) == ("INVALID_UPDATE", False)
    for seconds in (-1.0, float("nan")):
        with pytest.raises(errors.MisconfiguredError), cleaner.reap("reaped", wait_seconds=seconds):
            pass


def test_a_process_of_cleanups_ends_without_a_word(reaped: ClaimsServer, client: Client) -> None:
    fence = die_holding(client, "7")
    work = 'with client.lock_session() as session, session.reap("reaped") as orphan:\n    say(orphan.former_fence)\n'
    with program(work, reaped.url) as process:
        assert ended(process) == (0, f"{fence}\n", "")
    assert state(client, "7") is LockState.FREE
