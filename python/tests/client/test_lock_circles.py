"""Tests of asks that wait for each other in a circle, on the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import pytest
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.locks import LONG, PATIENT
from support.waiting import DEADLINE_SECONDS, wait_for

from leasehold import errors
from leasehold.client import AsyncClient, AsyncLockSession, Client, LockSession
from leasehold.errors import ChangedError, LeaseholdError

NAMESPACE = "user.update"
# Longer than the time after which the server searches for a circle.
SEARCHED_SECONDS = 0.6


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url) as client:
        yield client


def is_free(client: Client, key: str) -> bool:
    return client.get_lock(NAMESPACE, key).session_id is None


def waiting(client: Client, key: str, count: int) -> None:
    wait_for("the asks to wait", lambda: client.get_lock(NAMESPACE, key).waiting == count)


def refused(call: Callable[[], object]) -> str:
    error = raised_by(call)
    assert type(error) in (ChangedError, errors.BusyError)
    assert not error.outcome_is_unknown
    return error.code


@pytest.mark.parametrize("together", [False, True])
def test_k15_one_of_two_threads_that_close_a_circle_is_refused(client: Client, together: bool) -> None:
    both_hold = Barrier(2, timeout=DEADLINE_SECONDS)

    def cross(session: LockSession, own: str, wanted: str) -> str:
        try:
            with session.lock(NAMESPACE, own):
                both_hold.wait()
                if together:
                    with session.lock_all([(NAMESPACE, wanted)], wait_seconds=PATIENT):
                        return "served"
                with session.lock(NAMESPACE, wanted, wait_seconds=PATIENT):
                    return "served"
        except ChangedError as error:
            return error.code

    with client.lock_session(**LONG) as one, client.lock_session(**LONG) as other, ThreadPoolExecutor() as pool:
        for second in (one, other):
            threads = [pool.submit(cross, one, "a", "b"), pool.submit(cross, second, "b", "a")]
            assert {thread.result(DEADLINE_SECONDS) for thread in threads} == {"served", "LOCK_CIRCLE"}
            assert is_free(client, "a")
            assert is_free(client, "b")


def test_k15_a_lock_is_refused_within_its_own_block(client: Client) -> None:
    with client.lock_session(**LONG) as session, session.lock(NAMESPACE, "a"):
        with session.lock_all([(NAMESPACE, "b"), (NAMESPACE, "c")]):
            for key in ("a", "b", "c"):
                assert refused(lambda: session.acquire(NAMESPACE, key, wait_seconds=PATIENT)) == "LOCK_CIRCLE"  # noqa: B023
            both = [(NAMESPACE, "d"), (NAMESPACE, "a")]
            assert refused(lambda: session.acquire_all(both, wait_seconds=PATIENT)) == "LOCK_CIRCLE"
            assert is_free(client, "d")
        # Without a wait, the lock is only busy. A block that has ended names its locks no more.
        assert refused(lambda: session.acquire(NAMESPACE, "a")) == "LOCK_HELD"
        with session.lock(NAMESPACE, "b", wait_seconds=PATIENT) as held:
            assert held.is_held


def test_k15_a_thread_that_is_started_in_a_block_may_wait_for_its_lock(client: Client) -> None:
    with client.lock_session(**LONG) as session, ThreadPoolExecutor() as pool:
        with session.lock(NAMESPACE, "a"):
            later = pool.submit(session.acquire, NAMESPACE, "a", wait_seconds=PATIENT)
            waiting(client, "a", 1)
            # The server has searched for circles by the time of this answer.
            assert refused(lambda: session.acquire(NAMESPACE, "a", wait_seconds=PATIENT)) == "LOCK_CIRCLE"
        later.result(DEADLINE_SECONDS).release()


def test_k15_only_locks_that_a_block_still_holds_count(client: Client) -> None:
    with client.lock_session(**LONG) as session, client.lock_session(**LONG) as other:
        with session.lock(NAMESPACE, "a") as held:
            held.release()
            later = other.acquire(NAMESPACE, "a")
            assert refused(lambda: session.acquire(NAMESPACE, "a", wait_seconds=SEARCHED_SECONDS)) == "LOCK_HELD"
        # The lock has no block.
        assert refused(lambda: other.acquire(NAMESPACE, "a", wait_seconds=SEARCHED_SECONDS)) == "LOCK_HELD"
        later.release()


def test_k15_k17_the_lock_of_a_cleanup_counts(reaped: ClaimsServer) -> None:
    with Client(reaped.url) as client, client.lock_session(**LONG) as cleaner:
        with client.lock_session(**LONG) as dead:
            dead.acquire("reaped", "7")
        with cleaner.reap("reaped", wait_seconds=PATIENT):
            assert refused(lambda: cleaner.acquire("reaped", "7", wait_seconds=PATIENT)) == "LOCK_CIRCLE"


def test_k15_k21_the_innermost_64_locks_count(client: Client) -> None:
    with client.lock_session(**LONG) as session, ExitStack() as blocks:
        for number in range(65):
            blocks.enter_context(session.lock(NAMESPACE, str(number)))
        assert refused(lambda: session.acquire(NAMESPACE, "1", wait_seconds=PATIENT)) == "LOCK_CIRCLE"
        assert refused(lambda: session.acquire(NAMESPACE, "64", wait_seconds=PATIENT)) == "LOCK_CIRCLE"
        assert refused(lambda: session.acquire(NAMESPACE, "0", wait_seconds=SEARCHED_SECONDS)) == "LOCK_HELD"


def run(server: ClaimsServer, play: Callable[[AsyncLockSession, AsyncLockSession], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client, client.lock_session(**LONG) as one, client.lock_session(**LONG) as other:
            await asyncio.wait_for(play(one, other), DEADLINE_SECONDS)

    asyncio.run(main())


async def code_of(call: Awaitable[object]) -> str:
    try:
        await call
    except LeaseholdError as error:
        assert type(error) in (ChangedError, errors.BusyError)
        return error.code
    return "served"


def test_k15_one_of_two_tasks_that_close_a_circle_is_refused(embedded: ClaimsServer) -> None:
    async def play(one: AsyncLockSession, other: AsyncLockSession) -> None:
        async def cross(session: AsyncLockSession, own: str, wanted: str, held: dict[str, asyncio.Event]) -> None:
            async with session.lock(NAMESPACE, own):
                held[own].set()
                await held[wanted].wait()
                async with session.lock(NAMESPACE, wanted, wait_seconds=PATIENT):
                    pass

        for second in (one, other):
            held = {"a": asyncio.Event(), "b": asyncio.Event()}
            crossings = cross(one, "a", "b", held), cross(second, "b", "a", held)
            codes = await asyncio.gather(*(code_of(crossing) for crossing in crossings))
            assert sorted(codes) == ["LOCK_CIRCLE", "served"]

    run(embedded, play)


def test_k15_a_task_holds_the_locks_of_its_own_blocks_only(embedded: ClaimsServer) -> None:
    async def play(one: AsyncLockSession, _: AsyncLockSession) -> None:
        def ask(key: str, seconds: float) -> Awaitable[str]:
            return code_of(one.acquire(NAMESPACE, key, wait_seconds=seconds))

        async with one.lock(NAMESPACE, "a"):
            async with one.lock_all([(NAMESPACE, "b")]):
                assert [await ask(key, PATIENT) for key in "ab"] == ["LOCK_CIRCLE"] * 2
            # A task that is created in the block has a copy of its context.
            task = asyncio.create_task(code_of(one.acquire(NAMESPACE, "a", wait_seconds=SEARCHED_SECONDS)))
            assert await task == "LOCK_HELD"
        async with one.lock(NAMESPACE, "b", wait_seconds=PATIENT):
            later = asyncio.create_task(code_of(one.acquire(NAMESPACE, "b", wait_seconds=PATIENT)))
            assert await ask("b", PATIENT) == "LOCK_CIRCLE"
        assert await later == "served"

    run(embedded, play)
