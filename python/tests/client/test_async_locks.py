"""Tests of locks under asyncio on the real server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from support.claims_server import ClaimsServer
from support.locks import LONG, PATIENT, STEADY, ended, line, program
from support.waiting import DEADLINE_SECONDS

from leasehold import LeaseholdError, LockLostError, errors
from leasehold.client import LOCK_LOST, AsyncClient, AsyncHeldLock, AsyncLockSession
from leasehold.locks import GrantEnd, LockState, Standing

NAMESPACE = "user.update"


def run(server: ClaimsServer, play: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            await asyncio.wait_for(play(client), DEADLINE_SECONDS)

    asyncio.run(main())


async def raised_by(call: Awaitable[object]) -> LeaseholdError:
    try:
        await call
    except LeaseholdError as error:
        return error
    raise AssertionError("the call raised no error")


async def waiting(client: AsyncClient, key: str, count: int) -> None:
    while (await client.get_lock(NAMESPACE, key)).waiting != count:
        pass


async def last_end(client: AsyncClient, key: str) -> tuple[GrantEnd, bytes]:
    last = (await client.get_lock(NAMESPACE, key)).last
    assert last is not None
    return last.end, last.value


def test_k01_k05_locks_under_asyncio_are_held_waited_for_and_released(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async with client.lock_session(**LONG) as one, client.lock_session(**LONG) as other:
            async with one.lock(NAMESPACE, "q") as held:
                assert (held.is_held, one.standing) == (True, Standing.SAFE)
                busy = await raised_by(other.try_acquire(NAMESPACE, "q"))
                assert (type(busy), busy.code) == (errors.BusyError, "LOCK_HELD")
                assert (await raised_by(other.acquire(NAMESPACE, "q", wait_seconds=0.05))).code == "LOCK_HELD"
                places: list[int] = []
                later = asyncio.create_task(other.acquire(NAMESPACE, "q", wait_seconds=PATIENT, on_place=places.append))
                await waiting(client, "q", 1)
                assert [(lock.fence, lock.session_id) async for lock in client.locks("user")] == [(held.fence, one.id)]
                held.value = b"done"
            next_held = await later
            assert (next_held.fence > held.fence, held.is_held, held.remaining()) == (True, False, timedelta())
            assert places[0] == 0
            assert await last_end(client, "q") == (GrantEnd.SUCCEEDED, b"done")
            await next_held.release(failed=True)
            assert await last_end(client, "q") == (GrantEnd.FAILED, b"")

    run(embedded, play)


async def lose(client: AsyncClient, session: AsyncLockSession, seen: list[object]) -> None:
    """Hold a lock until its loss cancels this task."""
    async with session.lock(NAMESPACE, "q") as held:
        # The news of the loss may come before the answer to this call, so another task makes it.
        eviction = asyncio.create_task(client.evict_lock_session(session.id))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            seen += [*error.args, held.is_lost]
            raise
        finally:
            await eviction


def test_k11_the_loss_of_a_lock_cancels_the_task_of_its_block_with_a_reason(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        seen: list[object] = []
        told = asyncio.Event()
        async with client.lock_session(**LONG, on_lost=told.set) as session:
            error = await raised_by(lose(client, session, seen))
            assert (type(error), error.code, seen) == (LockLostError, LOCK_LOST, [LOCK_LOST, True])
            assert isinstance(error.__cause__, asyncio.CancelledError)
            assert isinstance(await raised_by(session.acquire(NAMESPACE, "other")), LockLostError)
            await told.wait()
        # The task lives on: its cancellation was taken back.
        task = asyncio.current_task()
        if sys.version_info >= (3, 11):
            assert task is not None
            assert task.cancelling() == 0

    run(embedded, play)


def test_k11_a_loss_without_an_answer_of_the_server_cancels_the_block_too(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        jeopardy = asyncio.Event()

        async def work() -> None:
            async with session.lock(NAMESPACE, "q"):
                embedded.kill()
                await asyncio.Event().wait()

        async with client.lock_session(**STEADY, on_jeopardy=jeopardy.set) as session:
            task = asyncio.create_task(work())
            await jeopardy.wait()
            assert isinstance(await raised_by(task), LockLostError)
            embedded.start()

    run(embedded, play)


def test_a_cancellation_by_somebody_else_stays_one_and_releases_as_failed(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async with client.lock_session(**LONG) as session:
            inside = asyncio.Event()

            async def work() -> None:
                async with session.lock(NAMESPACE, "q") as held:
                    held.value = b"half"
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel("mine")
            with pytest.raises(asyncio.CancelledError, match="mine"):
                await task
            assert await last_end(client, "q") == (GrantEnd.FAILED, b"half")

    run(embedded, play)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a task counts its cancellations since Python 3.11")
def test_a_cancellation_beside_the_loss_goes_on(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async with client.lock_session(**LONG) as session:
            inside = asyncio.Event()

            async def work() -> None:
                async with session.lock(NAMESPACE, "q"):
                    inside.set()
                    try:
                        await asyncio.Event().wait()
                    finally:
                        task.cancel()
                        await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await inside.wait()
            await client.evict_lock_session(session.id)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

    run(embedded, play)


def test_an_error_of_the_block_goes_on_after_a_loss(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async def work(session: AsyncLockSession) -> None:
            async with session.lock(NAMESPACE, "q"):
                try:
                    await client.evict_lock_session(session.id)
                    await asyncio.Event().wait()
                finally:
                    raise KeyError("mine")

        async with client.lock_session(**LONG) as session:
            with pytest.raises(KeyError, match="mine"):
                await work(session)

    run(embedded, play)


def test_k10_a_cancelled_wait_leaves_the_queue(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async with client.lock_session(**LONG) as session, session.lock(NAMESPACE, "q"):
            task = asyncio.create_task(session.acquire(NAMESPACE, "q", wait_seconds=PATIENT))
            await waiting(client, "q", 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await client.get_lock(NAMESPACE, "q")).waiting == 0

    run(embedded, play)


def test_k22_a_wait_goes_on_after_a_restart_of_the_server(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async with client.lock_session(**LONG) as session:
            held = await session.acquire(NAMESPACE, "q")
            later = asyncio.create_task(session.acquire(NAMESPACE, "q", wait_seconds=PATIENT))
            await waiting(client, "q", 1)
            await asyncio.to_thread(embedded.stop)
            embedded.start()
            await waiting(client, "q", 1)
            await held.release()
            assert (await later).fence > held.fence

    run(embedded, play)


def test_k20_a_lock_that_an_operator_takes_cancels_its_block_only(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async def work(session: AsyncLockSession) -> None:
            async with session.lock(NAMESPACE, "q") as held:
                await client.force_lock(NAMESPACE, "q", held.fence)
                await asyncio.Event().wait()

        async with client.lock_session(**LONG) as session:
            kept: AsyncHeldLock = await session.acquire(NAMESPACE, "kept")
            error = await raised_by(work(session))
            assert (type(error), "an operator" in str(error)) == (LockLostError, True)
            assert [lock.state async for lock in client.locks()] == [LockState.HELD, LockState.WITHHELD]
            await client.force_lock(NAMESPACE, "kept", kept.fence, at_once=True)
            assert isinstance(await raised_by(kept.release()), LockLostError)

    run(embedded, play)


EXIT = """
import asyncio

async def main():
    async with AsyncClient(sys.argv[1]) as other:
        session = other.lock_session(on_lost=lambda: say("told the loss"))
        await session.open()
        say((await session.acquire("work", "q")).fence)
    return session

session = asyncio.run(main())
client.evict_lock_session(session.id)
# The loss is told to a loop that is closed. The thread then ends.
session._watcher.join()
"""


def test_a_process_may_end_with_an_open_session_and_a_closed_loop(embedded: ClaimsServer) -> None:
    with program(EXIT, embedded.url) as process:
        assert int(line(process)) > 0
        assert ended(process) == (0, "", "")
