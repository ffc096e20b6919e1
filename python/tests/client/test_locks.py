"""Tests of locks on the real server: sessions, holders and waiters in one process."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import grpc
import pytest
from support.certificates import Authority, Files
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.locks import LONG, PATIENT, SHORT, STEADY
from support.tcp_proxy import TcpProxy
from support.waiting import wait_for

from leasehold import LockLostError, errors
from leasehold.client import Client, HeldLock, LockSession, Retry, Tls
from leasehold.client._errors import error_for_status
from leasehold.locks import GrantEnd, LockState, Standing

NAMESPACE = "user.update"


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url) as client:
        yield client


def waiting(client: Client, key: str, count: int) -> None:
    wait_for("the asks to wait", lambda: client.get_lock(NAMESPACE, key).waiting == count)


def fails_within(session: LockSession, key: str) -> None:
    with session.lock(NAMESPACE, key) as held:
        held.value = b"half"
        raise RuntimeError


def test_k01_k05_a_lock_has_one_holder_and_each_grant_a_larger_fence(client: Client) -> None:
    with client.lock_session(**LONG) as one, client.lock_session(**LONG) as other:
        first = one.acquire(NAMESPACE, "7")
        for session in (other, one):
            busy = raised_by(lambda session=session: session.try_acquire(NAMESPACE, "7"))  # type: ignore[misc]
            assert (type(busy), busy.code, busy.is_temporary) == (errors.BusyError, "LOCK_HELD", True)
        assert other.acquire(NAMESPACE, "8").name == "user.update/8"
        lock = client.get_lock(NAMESPACE, "7")
        assert (lock.state, lock.fence, lock.session_id, lock.last) == (LockState.HELD, first.fence, one.id, None)
        first.release(value=b"done")
        first.release(value=b"done")
        assert (first.is_held, first.remaining()) == (False, timedelta())
        second = other.acquire(NAMESPACE, "7")
        assert second.fence > first.fence
        last = client.get_lock(NAMESPACE, "7").last
        assert last is not None
        assert (last.fence, last.end, last.value) == (first.fence, GrantEnd.SUCCEEDED, b"done")
    assert client.get_lock(NAMESPACE, "7").state is LockState.FREE


def test_k19_a_release_under_a_passed_fence_changes_nothing(client: Client) -> None:
    with client.lock_session(**LONG) as session:
        stale = session.acquire(NAMESPACE, "7")
        stale.release()
        with session.lock(NAMESPACE, "7") as held:
            before = client.get_lock(NAMESPACE, "7")
            lost = raised_by(lambda: stale.release(failed=True))
            assert (type(lost), lost.code, lost.is_temporary) == (LockLostError, "LOCK_LOST", False)
            assert client.get_lock(NAMESPACE, "7") == before
            assert held.is_held


def test_k03_the_end_of_a_block_releases_as_succeeded_or_failed(client: Client) -> None:
    ends = []
    with client.lock_session(**LONG) as session:
        with session.lock(NAMESPACE, "7") as held:
            held.value = b"whole"
        ends.append(client.get_lock(NAMESPACE, "7").last)
        with pytest.raises(RuntimeError):
            fails_within(session, "7")
        ends.append(client.get_lock(NAMESPACE, "7").last)
        with session.lock(NAMESPACE, "7") as held:
            held.release(failed=True, value=b"own")
        ends.append(client.get_lock(NAMESPACE, "7").last)
    assert [(end.end, end.value) for end in ends if end] == [
        (GrantEnd.SUCCEEDED, b"whole"),
        (GrantEnd.FAILED, b"half"),
        (GrantEnd.FAILED, b"own"),
    ]


def test_k01_k08_k09_waiters_learn_their_place_and_are_served_in_order(client: Client) -> None:
    places: list[list[int]] = [[], [], []]
    served: list[int] = []

    def work(session: LockSession, number: int) -> None:
        with session.lock(NAMESPACE, "q", wait_seconds=PATIENT, on_place=places[number].append):
            served.append(number)

    with client.lock_session(**LONG) as session, ThreadPoolExecutor() as pool:
        held = session.acquire(NAMESPACE, "q")
        works = []
        for number in range(3):
            works.append(pool.submit(work, session, number))
            waiting(client, "q", number + 1)
        held.release()
        for ended in works:
            ended.result()
    assert served == [0, 1, 2]
    assert [seen[0] for seen in places] == [0, 1, 2]


def test_k01_k10_a_wait_that_is_over_leaves_the_queue(client: Client) -> None:
    with client.lock_session(**LONG) as session:
        held = session.acquire(NAMESPACE, "q")
        late = raised_by(lambda: session.acquire(NAMESPACE, "q", wait_seconds=0.05))
        assert (type(late), late.code) == (errors.BusyError, "LOCK_HELD")
        assert client.get_lock(NAMESPACE, "q").waiting == 0
        held.release()


def test_k11_an_evicted_session_is_lost_at_once(client: Client) -> None:
    told = threading.Event()
    with client.lock_session(**LONG) as other, client.lock_session(**STEADY, on_lost=told.set) as session:
        assert session.standing is Standing.SAFE
        held = session.acquire(NAMESPACE, "q")
        assert timedelta() < held.remaining() < timedelta(seconds=10)
        held.check()
        client.evict_lock_session(session.id)
        wait_for("the loss to be told", told.is_set)
        assert (session.standing, held.is_held, held.remaining()) == (Standing.LOST, False, timedelta())
        for call in (held.check, held.release, lambda: session.acquire(NAMESPACE, "other")):
            assert isinstance(raised_by(call), LockLostError)
        lock = client.get_lock(NAMESPACE, "q")
        assert (lock.state, lock.fence, lock.session_id) == (LockState.WITHHELD, held.fence, None)
        withheld = raised_by(lambda: other.try_acquire(NAMESPACE, "q"))
        assert (type(withheld), withheld.is_temporary) == (errors.BusyError, True)
        assert other.acquire(NAMESPACE, "q", wait_seconds=PATIENT).fence > held.fence


def test_k11_a_block_whose_lock_has_passed_on_raises_at_its_end(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def lose(error: Exception | None) -> None:
        with client.lock_session(**LONG) as session, session.lock(NAMESPACE, f"{type(error)}"):
            client.evict_lock_session(session.id)
            if error is not None:
                raise error

    assert isinstance(raised_by(lambda: lose(None)), LockLostError)
    with pytest.raises(RuntimeError):
        lose(RuntimeError())
    assert "another process may hold the lock" in caplog.text


def test_k07_k11_a_server_that_is_killed_and_restarted_loses_no_hold(client: Client, embedded: ClaimsServer) -> None:
    jeopardy, safe = threading.Event(), threading.Event()
    terms: dict[str, Any] = {"duration_seconds": 1, "grace_seconds": 60}
    with client.lock_session(**terms, on_jeopardy=jeopardy.set, on_safe=safe.set) as session:
        held = session.acquire(NAMESPACE, "q")
        embedded.kill()
        wait_for("the jeopardy to be told", jeopardy.is_set)
        assert (session.standing, held.is_held, held.is_lost) == (Standing.JEOPARDY, True, False)
        embedded.start()
        wait_for("the safety to be told", safe.is_set)
        assert client.get_lock(NAMESPACE, "q").fence == held.fence
        held.release()


def test_k06_k11_a_session_knows_its_deadline_without_the_server(client: Client, embedded: ClaimsServer) -> None:
    told = threading.Event()
    session = client.lock_session(**STEADY, on_lost=told.set)
    session.open()
    held = session.acquire(NAMESPACE, "q")
    embedded.kill()
    wait_for("the loss to be told", told.is_set)
    assert (held.is_held, held.is_lost, session.standing) == (False, True, Standing.LOST)
    embedded.start()
    # The server counts the whole silence again, and gives the lock to nobody meanwhile.
    assert client.get_lock(NAMESPACE, "q").fence == held.fence
    session.close()
    assert client.get_lock(NAMESPACE, "q").state is LockState.FREE


def test_k22_a_wait_goes_on_after_a_restart_of_the_server(client: Client, embedded: ClaimsServer) -> None:
    with client.lock_session(**LONG) as session, ThreadPoolExecutor() as pool:
        held = session.acquire(NAMESPACE, "q")
        later = pool.submit(session.acquire, NAMESPACE, "q", wait_seconds=PATIENT)
        waiting(client, "q", 1)
        embedded.stop()
        embedded.start()
        waiting(client, "q", 1)
        held.release()
        assert later.result().fence > held.fence


@contextmanager
def session_beside(server: ClaimsServer, client: Client) -> Iterator[LockSession]:
    """Open a session whose calls go through a client's proxy, and whose renewals do not."""
    with Client(server.url) as direct, direct.lock_session(**LONG) as session:
        session._client = client
        yield session
        session._client = direct


def test_k05_an_acquire_whose_answer_is_lost_gets_its_own_grant(embedded: ClaimsServer, proxy: TcpProxy) -> None:
    with Client(f"http://{proxy.address}") as client, session_beside(embedded, client) as session:
        cut = threading.Event()
        proxy.cut_next_answer(cut.set)
        held = session.try_acquire(NAMESPACE, "q")
        assert (cut.is_set(), client.get_lock(NAMESPACE, "q").fence) == (True, held.fence)
        cut.clear()
        proxy.cut_next_answer(cut.set)
        other = session.acquire(NAMESPACE, "r", wait_seconds=PATIENT)
        assert (cut.is_set(), client.get_lock(NAMESPACE, "r").fence) == (True, other.fence)


def test_k09_an_acquire_without_an_answer_leaves(embedded: ClaimsServer, proxy: TcpProxy) -> None:
    once = Retry(attempts=1, attempt_timeout_seconds=60)
    with (
        Client(f"http://{proxy.address}", retry=once, timeout_seconds=60) as client,
        session_beside(embedded, client) as session,
    ):
        proxy.cut_next_answer(lambda: None)
        silent = raised_by(lambda: session.try_acquire(NAMESPACE, "q"))
        assert (type(silent), silent.outcome_is_unknown) == (errors.UnavailableError, True)
        assert client.get_lock(NAMESPACE, "q").state is LockState.FREE


def test_a_session_that_is_dropped_ends_by_its_silence(client: Client) -> None:
    with client.lock_session(**LONG) as other:
        session = client.lock_session(**SHORT, on_lost=lambda: None)
        session.open()
        held = session.acquire(NAMESPACE, "q")
        fence = held.fence
        del session, held
        gc.collect()
        assert other.acquire(NAMESPACE, "q", wait_seconds=PATIENT).fence > fence
        last = client.get_lock(NAMESPACE, "q").last
        assert last is not None
        assert last.end is GrantEnd.EXPIRED
    wait_for("the threads to end", lambda: "leasehold-news" not in [thread.name for thread in threading.enumerate()])


def test_a_session_is_opened_once_and_closed_by_the_first_close(client: Client) -> None:
    session = client.lock_session(**LONG)
    assert (session.standing, session.remaining()) == (Standing.LOST, timedelta())
    session.close()
    assert raised_by(lambda: session.acquire(NAMESPACE, "q")).code == "CLOSED"
    with session:
        held = session.acquire(NAMESPACE, "q")
        assert raised_by(session.open).code == "CLOSED"
    session.close()
    assert not held.is_held
    assert isinstance(raised_by(held.release), LockLostError)
    assert isinstance(raised_by(lambda: session.acquire(NAMESPACE, "q")), LockLostError)


def test_a_function_that_fails_is_logged_and_the_next_one_called(
    client: Client, embedded: ClaimsServer, caplog: pytest.LogCaptureFixture
) -> None:
    told = threading.Event()

    def fail() -> None:
        raise RuntimeError("mine")

    with client.lock_session(**STEADY, on_jeopardy=fail, on_lost=told.set):
        embedded.kill()
        wait_for("the loss to be told", told.is_set)
        embedded.start()
    assert "the news `jeopardy`" in caplog.text


@pytest.mark.parametrize(
    ("duration", "grace", "code"),
    [
        (0, 1, "INVALID_UPDATE"),
        (1, 0, "INVALID_UPDATE"),
        (365 * 86_400, 1, "LIMIT_EXCEEDED"),
        (1, 1e30, "LIMIT_EXCEEDED"),
        (-1, 1, "MISCONFIGURED"),
        (float("nan"), 1, "MISCONFIGURED"),
        (1, float("inf"), "MISCONFIGURED"),
    ],
)
def test_k21_terms_beyond_their_bounds_are_refused(client: Client, duration: float, grace: float, code: str) -> None:
    def enter() -> None:
        with client.lock_session(duration_seconds=duration, grace_seconds=grace):
            pass

    assert raised_by(enter).code == code


def test_k16_k21_k24_malformed_names_are_refused_without_their_text(client: Client) -> None:
    long = "k" * 2048
    cases = [
        ("", "k", "INVALID_UPDATE"),
        ("a..b", "k", "INVALID_UPDATE"),
        (".a", "k", "INVALID_UPDATE"),
        ("a", "", "INVALID_UPDATE"),
        ("a", "secret\n", "INVALID_UPDATE"),
        ("a", "secret\ud800", "INVALID_UPDATE"),
        ("a", long, "LIMIT_EXCEEDED"),
        (long, "k", "LIMIT_EXCEEDED"),
    ]
    with client.lock_session(**LONG) as session:
        held = session.acquire("a", "k")
        for namespace, key, code in cases:
            for wait in (0, 1):
                refused = raised_by(lambda: session.acquire(namespace, key, wait_seconds=wait))  # noqa: B023
                assert (type(refused), refused.code) == (errors.InvalidError, code), (namespace, key)
                assert "secret" not in str(refused)
        for wait_seconds in (86_401, 1e10, 1e30):
            refused = raised_by(lambda: session.acquire("a", "k", wait_seconds=wait_seconds))  # noqa: B023
            assert refused.code == "LIMIT_EXCEEDED"
        for seconds in (-1.0, float("nan"), float("inf")):
            assert raised_by(lambda: session.acquire("a", "k", wait_seconds=seconds)).code == "MISCONFIGURED"  # noqa: B023
        assert raised_by(lambda: held.release(value=b"v" * 2049)).code == "LIMIT_EXCEEDED"
        # A value that is too long is refused before the end of the block, which then releases the lock.
        with pytest.raises(errors.InvalidError), session.lock("a", "other") as other:
            other.value = b"v" * 2049
        assert not other.is_held
        assert held.is_held
        assert [lock.fence for lock in client.locks("a")] == [held.fence]


def test_arguments_of_wrong_types_are_named_without_their_value(client: Client) -> None:
    wrong: Any = b"secret"
    with client.lock_session(**LONG) as session, session.lock("a", "k") as held:
        calls: dict[str, Callable[[], object]] = {
            "namespace": lambda: client.list_locks(wrong),
            "key": lambda: session.acquire("a", wrong),
            "value": lambda: held.release(value=str(wrong)),  # type: ignore[arg-type]
        }
        for name, call in calls.items():
            with pytest.raises(TypeError, match=f"`{name}` is a") as raised:
                call()
            assert "secret" not in str(raised.value)


def test_k16_a_list_has_the_locks_of_a_namespace_and_of_those_in_it_in_pages(client: Client) -> None:
    with client.lock_session(**LONG) as session:
        for namespace, key in [("user", "b"), ("user", "a"), ("user.update", "c"), ("user-2", "d"), ("other", "e")]:
            session.acquire(namespace, key)
        session.acquire("user.z", "free").release()
        first = client.list_locks("user", limit=2)
        assert ([lock.key for lock in first.locks], first.truncated) == (["a", "b"], True)
        rest = client.list_locks("user", limit=2, after=first.locks[-1])
        assert ([lock.key for lock in rest.locks], rest.truncated) == (["c"], False)
        assert [lock.key for lock in client.locks()] == ["e", "a", "b", "d", "c"]
        assert raised_by(lambda: client.list_locks("user", limit=1001)).code == "LIMIT_EXCEEDED"
        assert raised_by(lambda: client.list_locks("user", limit=-1)).code == "MISCONFIGURED"


def test_k20_a_forced_lock_is_withheld_and_its_holder_told(client: Client) -> None:
    forced: list[int] = []
    with client.lock_session(**LONG, on_forced=forced.append) as session:
        held = session.acquire(NAMESPACE, "q")
        for fence in (0, held.fence + 1, 2**64 - 1):
            refused = raised_by(lambda fence=fence: client.force_lock(NAMESPACE, "q", fence))  # type: ignore[misc]
            assert (type(refused), refused.code) == (errors.ChangedError, "FENCE_PASSED")
        assert raised_by(lambda: client.force_lock(NAMESPACE, "q", -1)).code == "MISCONFIGURED"
        kept = session.acquire(NAMESPACE, "kept")
        client.force_lock(NAMESPACE, "q", held.fence)
        assert client.get_lock(NAMESPACE, "q").state is LockState.WITHHELD
        wait_for("the loss of the lock to be told", lambda: forced == [held.fence])
        assert (held.is_lost, held.is_held, kept.is_lost) == (True, True, False)
        assert "an operator" in str(raised_by(held.check))
        assert isinstance(raised_by(held.release), LockLostError)
        client.force_lock(NAMESPACE, "kept", kept.fence, at_once=True)
        assert client.get_lock(NAMESPACE, "kept").state is LockState.FREE
        wait_for("the second loss to be told", lambda: forced == [held.fence, kept.fence])
    for session_id in ("", "nonsense", None):
        with pytest.raises(errors.InvalidError, match="`session_id`"):
            client.evict_lock_session(session_id)  # type: ignore[arg-type]


def held_until(held: HeldLock) -> float:
    """The second on the monotonic clock at which the lock ends if nothing renews it."""
    return time.monotonic() + held.remaining().total_seconds()


def test_rights_by_namespace_and_tls_of_the_keepalive(authority: Authority) -> None:
    def connect(files: Files) -> Client:
        return Client(server.url, tls=Tls(files.ca, files.certificate, files.key))

    access = '[[locks.access]]\ncaller = "service/billing"\nnamespaces = ["bill"]\n'
    with ClaimsServer(tls=authority.server(), settings=access) as server:
        terms: dict[str, Any] = {"duration_seconds": 1, "grace_seconds": 60}
        with connect(authority.service("billing")) as client, client.lock_session(**terms) as session:
            held: HeldLock = session.acquire("bill.month", "7")
            denied = raised_by(lambda: session.acquire("user", "7"))
            assert (type(denied), denied.code) == (errors.DeniedError, "RULE_DENIED")
            # Ends are compared, not what remains: the first read may follow a renewal closely, and
            # no later one has to leave as much.
            acquired = held_until(held)
            # The keepalive has a connection of its own, with the same certificate.
            wait_for("a renewal", lambda: held_until(held) > acquired + 0.1)
            assert isinstance(raised_by(lambda: client.force_lock("bill.month", "7", held.fence)), errors.DeniedError)
        with connect(authority.cell(1)) as cell:
            assert isinstance(raised_by(cell.lock_session().open), errors.DeniedError)
        with connect(authority.admin()) as admin:
            assert list(admin.locks()) == []


def test_a_server_without_locks_is_a_fault_of_the_configuration() -> None:
    error = error_for_status(grpc.StatusCode.UNIMPLEMENTED, "this server has no sessions and locks", ())
    assert (type(error), error.code, error.outcome_is_unknown) == (errors.MisconfiguredError, "UNIMPLEMENTED", False)


def test_a_keepalive_refuses_a_tls_file_that_is_gone(authority: Authority) -> None:
    files = authority.service("billing")
    with Client("https://localhost:1", tls=Tls(files.ca, files.certificate, files.key)) as client:
        files.key.unlink()
        gone = raised_by(client.lock_session().open)
    assert (type(gone), "key" in str(gone)) == (errors.MisconfiguredError, True)


def test_a_keepalive_needs_no_client_certificate(authority: Authority) -> None:
    with Client("https://localhost:1", tls=Tls(authority.ca)) as client:
        # It reads the authority only: this keepalive is one, and after the file is gone it is refused.
        client._new_keepalive(bytes(16), 1_000_000, 1_000_000)
        authority.ca.unlink()
        gone = raised_by(lambda: client._new_keepalive(bytes(16), 1_000_000, 1_000_000))
    assert (type(gone), "ca" in str(gone)) == (errors.MisconfiguredError, True)
