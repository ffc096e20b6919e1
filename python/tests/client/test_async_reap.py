"""Tests of the cleanup after holders that have died, under asyncio on the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from support.claims_server import ClaimsServer
from support.locks import LONG, PATIENT
from support.waiting import DEADLINE_SECONDS

from leasehold import LockLostError, NoOrphanError
from leasehold.client import LOCK_LOST, AsyncClient, AsyncLockSession
from leasehold.locks import LockState

NAMESPACE = "reaped.runner"


def run(server: ClaimsServer, play: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            await asyncio.wait_for(play(client), DEADLINE_SECONDS)

    asyncio.run(main())


async def die_holding(client: AsyncClient, key: str) -> int:
    async with client.lock_session(**LONG) as session:
        return (await session.acquire(NAMESPACE, key)).fence


async def state(client: AsyncClient, key: str) -> LockState:
    return (await client.get_lock(NAMESPACE, key)).state


async def reaped_later(session: AsyncLockSession) -> tuple[str, int]:
    async with session.reap("reaped", wait_seconds=PATIENT) as orphan:
        return orphan.key, orphan.attempt


async def clean_badly(session: AsyncLockSession) -> int:
    try:
        async with session.reap("reaped", wait_seconds=PATIENT) as orphan:
            raise KeyError  # noqa: TRY301 - the failure of the block
    except KeyError:
        return orphan.attempt


def test_k17_an_async_block_cleans_up_or_leaves_the_lock_orphaned(reaped: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async with client.lock_session(**LONG) as session:
            fence = await die_holding(client, "7")
            assert await clean_badly(session) == 1
            assert await state(client, "7") is LockState.ORPHANED
            async with session.reap("reaped", wait_seconds=PATIENT) as orphan:
                assert (orphan.former_fence, orphan.attempt, orphan.most_attempts) == (fence, 2, 2)
                assert (orphan.fence > fence, orphan.is_held) == (True, True)
                orphan.check()
            assert await state(client, "7") is LockState.FREE
            fence = await die_holding(client, "8")
            assert [await clean_badly(session), await clean_badly(session)] == [1, 2]
            assert await state(client, "8") is LockState.SET_ASIDE
            await client.resolve_orphan(NAMESPACE, "8", fence, retry=True)
            assert await reaped_later(session) == ("8", 1)
            fence = await die_holding(client, "9")
            await client.resolve_orphan(NAMESPACE, "9", fence, cleaned=True)
            assert await state(client, "9") is LockState.FREE

    run(reaped, play)


def test_k17_a_wait_that_is_over_or_cancelled_takes_nothing(reaped: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async with client.lock_session(**LONG) as session, client.lock_session(**LONG) as other:
            with pytest.raises(NoOrphanError):
                async with session.reap("reaped", wait_seconds=0.1):
                    pass
            task = asyncio.create_task(reaped_later(session))
            # The call has been sent when another call of the same connection is answered.
            await client.get_lock(NAMESPACE, "7")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await die_holding(client, "7")
            assert await reaped_later(other) == ("7", 1)

    run(reaped, play)


def test_k17_k22_a_wait_goes_on_after_a_restart_of_the_server(reaped: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async with client.lock_session(**LONG) as session:
            later = asyncio.create_task(reaped_later(session))
            await client.get_lock(NAMESPACE, "7")
            await asyncio.to_thread(reaped.stop)
            reaped.start()
            await die_holding(client, "7")
            assert await later == ("7", 1)

    run(reaped, play)


def test_k11_the_loss_of_the_session_cancels_a_cleanup(reaped: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async def lose(session: AsyncLockSession) -> None:
            async with session.reap("reaped", wait_seconds=PATIENT):
                await client.evict_lock_session(session.id)
                await asyncio.Event().wait()

        await die_holding(client, "7")
        async with client.lock_session(**LONG) as session:
            with pytest.raises(LockLostError) as lost:
                await lose(session)
            assert lost.value.code == LOCK_LOST
            with pytest.raises(LockLostError):
                await reaped_later(session)

    run(reaped, play)
