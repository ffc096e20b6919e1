"""Tests of several locks that are acquired together, on the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.locks import LONG, PATIENT
from support.waiting import DEADLINE_SECONDS, wait_for

from leasehold import LockLostError, errors
from leasehold.client import AsyncClient, AsyncHeldLock, AsyncLockSession, Client, LockSession, WantedLock
from leasehold.client import _lock_calls as calls
from leasehold.client._lock_base import LocksWait
from leasehold.locks import GrantEnd, LockState

NAMESPACE = "user.update"


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url) as client:
        yield client


def names(*keys: str) -> list[WantedLock | tuple[str, str]]:
    return [(NAMESPACE, key) for key in keys]


def states(client: Client, *keys: str) -> list[tuple[LockState, int]]:
    locks = [client.get_lock(NAMESPACE, key) for key in keys]
    return [(lock.state, lock.waiting) for lock in locks]


def ends(client: Client, *keys: str) -> list[GrantEnd | None]:
    lasts = [client.get_lock(NAMESPACE, key).last for key in keys]
    return [last.end if last else None for last in lasts]


def waiting(client: Client, key: str, count: int) -> None:
    wait_for("the asks to wait", lambda: client.get_lock(NAMESPACE, key).waiting == count)


FREE, HELD = (LockState.FREE, 0), (LockState.HELD, 0)


def test_k14_several_locks_are_granted_all_or_none(client: Client) -> None:
    with client.lock_session(**LONG) as session, client.lock_session(**LONG) as other, ThreadPoolExecutor() as pool:
        held = session.acquire(NAMESPACE, "b")
        # Without a wait, or when the wait is over, nothing is held.
        for wait_seconds in (0, 0.05):
            busy = raised_by(lambda: other.acquire_all(names("a", "b", "c"), wait_seconds=wait_seconds))  # noqa: B023
            assert (type(busy), busy.code) == (errors.BusyError, "LOCK_HELD")
            assert states(client, "a", "b", "c") == [FREE, HELD, FREE]
        later = pool.submit(other.acquire_all, names("c", "b", "a"), wait_seconds=PATIENT)
        waiting(client, "b", 1)
        # The locks that came first are kept for the caller.
        assert raised_by(lambda: session.try_acquire(NAMESPACE, "a")).code == "LOCK_HELD"
        held.release()
        locks = later.result(DEADLINE_SECONDS)
        assert [lock.key for lock in locks] == ["c", "b", "a"]
        assert [lock.fence for lock in locks] == [client.get_lock(NAMESPACE, lock.key).fence for lock in locks]
        for lock in locks:
            lock.release()


def test_k13_k14_each_lock_is_shared_in_its_own_way(client: Client) -> None:
    wanted = [*names("a"), WantedLock(NAMESPACE, "s", shared=True), WantedLock(NAMESPACE, "p", permits=3)]
    with client.lock_session(**LONG) as session:
        permit = session.acquire(NAMESPACE, "p", permits=3)
        with session.lock_all(wanted) as held:
            assert [lock.slot for lock in held] == [0, 1, 2]
            assert [client.get_lock(NAMESPACE, key).permits for key in ("a", "s", "p")] == [0, 0, 3]
        assert (permit.is_held, states(client, "a", "s")) == (True, [FREE, FREE])
        assert client.get_lock(NAMESPACE, "p").taken_slots == 1


def test_k14_callers_with_opposite_orders_are_all_served(client: Client) -> None:
    def work(session: LockSession, *keys: str) -> int:
        served = 0
        for _ in range(10):
            with session.lock_all(names(*keys), wait_seconds=PATIENT) as held:
                served += [lock.key for lock in held] == list(keys)
        return served

    with client.lock_session(**LONG) as one, client.lock_session(**LONG) as other, ThreadPoolExecutor() as pool:
        orders = [(one, "abc"), (other, "cba"), (one, "bca"), (other, "acb")]
        callers = [pool.submit(work, session, *keys) for session, keys in orders]
        assert [caller.result(DEADLINE_SECONDS) for caller in callers] == [10] * 4


def test_k03_the_end_of_the_block_releases_every_lock_as_the_block_ends(client: Client) -> None:
    with client.lock_session(**LONG) as session:
        with session.lock_all(names("a", "b")) as (first, second):
            first.value = b"done"
            second.release()
        assert (ends(client, "a", "b"), states(client, "a", "b")) == ([GrantEnd.SUCCEEDED] * 2, [FREE, FREE])
        last = client.get_lock(NAMESPACE, "a").last
        assert last is not None
        assert last.value == b"done"
        with pytest.raises(KeyError), session.lock_all(names("a", "b")):
            raise KeyError
        assert ends(client, "a", "b") == [GrantEnd.FAILED] * 2


@pytest.mark.parametrize("forced", ["a", "b", "c"])
def test_k20_a_lock_that_is_taken_keeps_no_other_from_its_release(client: Client, forced: str) -> None:
    with client.lock_session(**LONG) as session:
        fences: list[int] = []

        def work() -> None:
            with session.lock_all(names("a", "b", "c")) as held:
                fences.extend(lock.fence for lock in held if lock.key == forced)
                client.force_lock(NAMESPACE, forced, fences[0])

        assert isinstance(raised_by(work), LockLostError)
        others = [key for key in "abc" if key != forced]
        assert (states(client, *others), ends(client, *others)) == ([FREE] * 2, [GrantEnd.SUCCEEDED] * 2)
        assert client.get_lock(NAMESPACE, forced).state is LockState.WITHHELD
        client.force_lock(NAMESPACE, forced, fences[0], at_once=True)


def test_k20_the_loss_of_one_of_several_locks_is_told(client: Client) -> None:
    told: list[int] = []
    with client.lock_session(**LONG, on_forced=told.append) as session:
        first, second = session.acquire_all(names("a", "b"))
        client.force_lock(NAMESPACE, "b", second.fence)
        wait_for("the loss to be told", lambda: told == [second.fence])
        assert (first.is_lost, second.is_lost) == (False, True)
        first.check()
        with pytest.raises(LockLostError):
            second.check()


def test_k20_a_force_of_a_kept_lock_ends_the_wait_for_all(client: Client) -> None:
    with client.lock_session(**LONG) as session, client.lock_session(**LONG) as other, ThreadPoolExecutor() as pool:
        session.acquire(NAMESPACE, "b")
        later = pool.submit(other.acquire_all, names("a", "b"), wait_seconds=PATIENT)
        waiting(client, "b", 1)
        fence = client.get_lock(NAMESPACE, "a").fence
        assert fence is not None
        client.force_lock(NAMESPACE, "a", fence, at_once=True)
        assert isinstance(later.exception(DEADLINE_SECONDS), errors.BusyError)
        assert states(client, "a", "b") == [FREE, HELD]


def test_k22_the_wait_for_several_locks_outlives_a_restart_of_the_server(client: Client, embedded: ClaimsServer) -> None:
    with client.lock_session(**LONG) as session, client.lock_session(**LONG) as other, ThreadPoolExecutor() as pool:
        held = session.acquire(NAMESPACE, "b")
        later = pool.submit(other.acquire_all, names("a", "b"), wait_seconds=PATIENT)
        waiting(client, "b", 1)
        kept = client.get_lock(NAMESPACE, "a").fence
        embedded.kill()
        embedded.start()
        held.release()
        assert later.result(DEADLINE_SECONDS)[0].fence == kept


def test_k14_asks_of_which_others_have_left_leave_and_ask_anew(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    listen, asked = LockSession._listen, []

    def listen_after_a_break(session: LockSession, wait: LocksWait) -> object:
        asked.append(wait.asks)
        if len(asked) == 1:
            # The server knows the first ask only, as after a break during which the second one has left.
            session._client._run(calls.try_acquire(session._id.bytes, wait.asks[0], wait._wanted[0]), None)
        return listen(session, wait)

    monkeypatch.setattr(LockSession, "_listen", listen_after_a_break)
    with client.lock_session(**LONG) as session:
        locks = session.acquire_all(names("a", "b"))
        assert (len(asked), set(asked[0]).isdisjoint(asked[1])) == (2, True)
        assert [client.get_lock(NAMESPACE, lock.key).fence for lock in locks] == [lock.fence for lock in locks]
        assert ends(client, "a", "b") == [GrantEnd.LEFT, None]


def test_k21_k24_wrong_locks_are_refused_and_no_error_quotes_a_key(client: Client) -> None:
    with client.lock_session(**LONG) as session:
        types: list[Any] = [["secret"], [("secret",)], [["n", "secret"]], ("n", "secret"), [("n", 7)], [("n", "k", "secret")]]
        for locks in types:
            with pytest.raises(TypeError) as raised:
                session.acquire_all(locks)
            assert "secret" not in str(raised.value)
        refused: list[tuple[list[WantedLock | tuple[str, str]], str]] = [
            ([], "INVALID_UPDATE"),
            (names("secret", "secret"), "INVALID_UPDATE"),
            (names(*(f"secret{number}" for number in range(17))), "LIMIT_EXCEEDED"),
            ([WantedLock(NAMESPACE, "secret", permits=257)], "LIMIT_EXCEEDED"),
            ([WantedLock(NAMESPACE, "secret", shared=True, permits=2)], "MISCONFIGURED"),
        ]
        for wanted, code in refused:
            error = raised_by(lambda: session.acquire_all(wanted))  # noqa: B023
            assert (error.code, "secret" in str(error)) == (code, False)
    assert "secret" not in repr(WantedLock(NAMESPACE, "secret"))


def run(server: ClaimsServer, play: Callable[[AsyncClient, AsyncLockSession], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client, client.lock_session(**LONG) as session:
            await asyncio.wait_for(play(client, session), DEADLINE_SECONDS)

    asyncio.run(main())


async def asks(client: AsyncClient, key: str, count: int) -> None:
    while (await client.get_lock(NAMESPACE, key)).waiting != count:
        pass


async def end(client: AsyncClient, key: str) -> tuple[LockState, GrantEnd | None]:
    lock = await client.get_lock(NAMESPACE, key)
    return lock.state, lock.last.end if lock.last else None


def test_k14_several_locks_under_asyncio_are_granted_all_or_none(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient, session: AsyncLockSession) -> None:
        held = await session.acquire(NAMESPACE, "b")
        for wait_seconds in (0, 0.05):
            with pytest.raises(errors.BusyError):
                await session.acquire_all(names("a", "b"), wait_seconds=wait_seconds)
            assert [lock.key async for lock in client.locks()] == ["b"]

        async def work(*keys: str) -> list[str]:
            async with session.lock_all(names(*keys), wait_seconds=PATIENT) as locks:
                await asyncio.gather(*(client.get_lock(NAMESPACE, key) for key in keys))
                return [lock.key for lock in locks]

        # Their orders are opposite.
        callers = asyncio.gather(work("a", "b"), work("b", "a"), work("a", "b"))
        await asks(client, "b", 3)
        await held.release()
        assert list(await callers) == [["a", "b"], ["b", "a"], ["a", "b"]]
        assert [lock async for lock in client.locks()] == []
        with pytest.raises(KeyError):
            async with session.lock_all(names("a", "b")):
                raise KeyError
        assert [await end(client, key) for key in "ab"] == [(LockState.FREE, GrantEnd.FAILED)] * 2

    run(embedded, play)


def test_k09_a_cancelled_wait_for_several_locks_leaves_them_all(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient, session: AsyncLockSession) -> None:
        await session.acquire(NAMESPACE, "b")
        later = asyncio.create_task(session.acquire_all(names("a", "b", "c"), wait_seconds=PATIENT))
        await asks(client, "b", 1)
        later.cancel()
        with pytest.raises(asyncio.CancelledError):
            await later
        assert [await end(client, key) for key in "abc"] == [
            (LockState.FREE, GrantEnd.LEFT),
            (LockState.HELD, None),
            (LockState.FREE, GrantEnd.LEFT),
        ]
        assert (await client.get_lock(NAMESPACE, "b")).waiting == 0

    run(embedded, play)


@pytest.mark.parametrize("forced", [0, 1])
def test_k20_the_loss_of_one_of_several_locks_cancels_the_task_of_the_block(embedded: ClaimsServer, forced: int) -> None:
    async def play(client: AsyncClient, session: AsyncLockSession) -> None:
        lost: list[AsyncHeldLock] = []

        async def work() -> None:
            async with session.lock_all(names("a", "b")) as held:
                lost.append(held[forced])
                await client.force_lock(NAMESPACE, held[forced].key, held[forced].fence)
                await asyncio.Event().wait()

        with pytest.raises(LockLostError, match="an operator"):
            await work()
        kept = "ba"[forced]
        assert await end(client, kept) == (LockState.FREE, GrantEnd.FAILED)
        assert (await client.get_lock(NAMESPACE, lost[0].key)).state is LockState.WITHHELD
        await client.force_lock(NAMESPACE, lost[0].key, lost[0].fence, at_once=True)

    run(embedded, play)


def test_k20_a_lock_that_is_taken_at_the_end_of_the_block_keeps_no_other_from_its_release(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient, session: AsyncLockSession) -> None:
        async def work() -> None:
            async with session.lock_all(names("a", "b", "c")) as held:
                # Nothing tells this session of the loss before its next renewal.
                await client.force_lock(NAMESPACE, "b", held[1].fence, at_once=True)

        with pytest.raises(LockLostError):
            await work()
        assert [(await end(client, key))[0] for key in "abc"] == [LockState.FREE] * 3

    run(embedded, play)
