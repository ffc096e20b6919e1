"""Tests of locks that several holders share, and of permits, on the real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.locks import LONG, PATIENT, REAPED, SHORT
from support.waiting import DEADLINE_SECONDS, wait_for

from leasehold import LockLostError, errors
from leasehold.client import AsyncClient, AsyncHeldLock, AsyncLockSession, Client, LockSession
from leasehold.locks import GrantEnd, LockState

NAMESPACE = "user.update"


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url) as client:
        yield client


def waiting(client: Client, key: str, count: int) -> None:
    wait_for("the asks to wait", lambda: client.get_lock(NAMESPACE, key).waiting == count)


def test_k13_who_wants_the_lock_alone_is_not_starved_by_those_who_share_it(client: Client) -> None:
    with client.lock_session(**LONG) as session, client.lock_session(**LONG) as other, ThreadPoolExecutor() as pool:
        readers = [reader.try_acquire(NAMESPACE, "s", shared=True) for reader in (session, other)]
        assert [reader.slot for reader in readers] == [1, 2]
        lock = client.get_lock(NAMESPACE, "s")
        assert (lock.state, lock.slot, lock.taken_slots, lock.permits) == (LockState.SHARED, 0, 2, 0)
        writer = pool.submit(session.acquire, NAMESPACE, "s", wait_seconds=PATIENT)
        waiting(client, "s", 1)
        # A slot is free, but a later reader waits behind the writer.
        assert raised_by(lambda: other.try_acquire(NAMESPACE, "s", shared=True)).code == "LOCK_HELD"
        later = pool.submit(other.acquire, NAMESPACE, "s", wait_seconds=PATIENT, shared=True)
        waiting(client, "s", 2)
        readers[0].release()
        assert (client.get_lock(NAMESPACE, "s").waiting, writer.done()) == (2, False)
        readers[1].release()
        alone = writer.result(DEADLINE_SECONDS)
        assert (alone.slot, client.get_lock(NAMESPACE, "s").state, later.done()) == (0, LockState.HELD, False)
        alone.release()
        reader = later.result(DEADLINE_SECONDS)
        assert (reader.slot, reader.fence > alone.fence) == (1, True)


def test_k13_permits_keep_their_bound_and_each_has_fences_of_its_own(client: Client) -> None:
    guard = threading.Lock()
    at_work: dict[int, int] = {}
    grants: dict[int, list[int]] = {1: [], 2: []}

    def work(session: LockSession) -> None:
        for _ in range(10):
            with session.lock(NAMESPACE, "p", permits=2, wait_seconds=PATIENT) as held:
                with guard:
                    assert held.slot not in at_work, "two processes hold one permit"
                    at_work[held.slot] = held.fence
                    grants[held.slot].append(held.fence)
                with guard:
                    del at_work[held.slot]

    with client.lock_session(**LONG) as one, client.lock_session(**LONG) as other, ThreadPoolExecutor() as pool:
        for ended in [pool.submit(work, session) for session in (one, other) * 3]:
            ended.result(DEADLINE_SECONDS)
    assert sum(map(len, grants.values())) == 60
    assert all(fences == sorted(set(fences)) for fences in grants.values())
    lock = client.get_lock(NAMESPACE, "p")
    assert (lock.state, lock.taken_slots, lock.waiting) == (LockState.FREE, 0, 0)


def test_k13_other_numbers_of_permits_wait_until_none_is_held(client: Client) -> None:
    with client.lock_session(**LONG) as session, session.lock(NAMESPACE, "p", permits=3) as held:
        lock = client.get_lock(NAMESPACE, "p")
        assert (held.slot, lock.state, lock.taken_slots, lock.permits) == (1, LockState.SHARED, 1, 3)
        options: list[dict[str, Any]] = [{"permits": 2}, {"shared": True}, {}]
        for other in options:
            assert raised_by(lambda: session.try_acquire(NAMESPACE, "p", **other)).code == "LOCK_HELD"  # noqa: B023


def test_k13_k16_each_slot_is_listed_after_its_lock(client: Client) -> None:
    with client.lock_session(**LONG) as session:
        first, second = (session.acquire(NAMESPACE, "p", permits=2) for _ in range(2))
        pages = [client.list_locks("user", limit=2)]
        pages.append(client.list_locks("user", limit=2, after=pages[0].locks[-1]))
        listed = [(lock.slot, lock.state, lock.fence) for page in pages for lock in page.locks]
        held = [(slot.slot, LockState.HELD, slot.fence) for slot in (first, second)]
        assert listed == [(0, LockState.SHARED, None), *held]
        first.release(failed=True, value=b"half")
        last = client.get_lock(NAMESPACE, "p").last
        assert last is not None
        assert (last.fence, last.end, last.value) == (first.fence, GrantEnd.FAILED, b"half")
        assert client.get_lock(NAMESPACE, "p", slot=second.slot).session_id == session.id


def test_k20_an_operator_takes_one_slot_and_only_its_holder_is_told(client: Client) -> None:
    forced: list[int] = []
    kept_forced: list[int] = []
    with (
        client.lock_session(**LONG, on_forced=forced.append) as session,
        client.lock_session(**LONG, on_forced=kept_forced.append) as other,
    ):
        held, kept = session.acquire(NAMESPACE, "p", permits=2), other.acquire(NAMESPACE, "p", permits=2)
        refused = raised_by(lambda: client.force_lock(NAMESPACE, "p", held.fence))
        assert (type(refused), refused.code) == (errors.ChangedError, "FENCE_PASSED")
        client.force_lock(NAMESPACE, "p", held.fence, slot=held.slot)
        wait_for("the loss to be told", lambda: forced == [held.fence])
        assert (held.is_lost, kept.is_lost, kept_forced) == (True, False, [])
        slot = client.get_lock(NAMESPACE, "p", slot=held.slot)
        assert (slot.slot, slot.state, slot.fence) == (held.slot, LockState.WITHHELD, held.fence)
        assert isinstance(raised_by(held.release), LockLostError)
        kept.check()
        kept.release()
        client.force_lock(NAMESPACE, "p", held.fence, slot=held.slot, at_once=True)
        assert client.get_lock(NAMESPACE, "p").state is LockState.FREE


def test_k06_k13_the_death_of_one_holder_leaves_the_other_permits(client: Client) -> None:
    with client.lock_session(**LONG) as other:
        session = client.lock_session(**SHORT)
        session.open()
        lost, kept = session.acquire(NAMESPACE, "p", permits=2), other.acquire(NAMESPACE, "p", permits=2)
        session._stop()
        later = other.acquire(NAMESPACE, "p", permits=2, wait_seconds=PATIENT)
        assert (later.slot, later.fence > lost.fence) == (lost.slot, True)
        assert (kept.is_held, client.get_lock(NAMESPACE, "p", slot=kept.slot).fence) == (True, kept.fence)
        session.close()


def test_k13_k17_the_slot_of_a_dead_holder_is_cleaned_up_under_its_number() -> None:
    with ClaimsServer(settings=REAPED) as server, Client(server.url) as client, client.lock_session(**LONG) as cleaner:
        with client.lock_session(**LONG) as session:
            kept = cleaner.acquire("reaped", "p", permits=2)
            held = session.acquire("reaped", "p", permits=2)
        orphan = client.get_lock("reaped", "p", slot=held.slot)
        assert (orphan.state, orphan.obituary is not None) == (LockState.ORPHANED, True)
        with cleaner.reap("reaped", wait_seconds=PATIENT) as cleanup:
            assert (cleanup.slot, cleanup.former_fence, cleanup.key) == (held.slot, held.fence, "p")
        assert client.get_lock("reaped", "p").taken_slots == 1
        with client.lock_session(**LONG) as session:
            held = session.acquire("reaped", "p", permits=2)
        client.resolve_orphan("reaped", "p", held.fence, slot=held.slot, cleaned=True)
        assert (client.get_lock("reaped", "p").taken_slots, kept.is_held) == (1, True)


def test_k21_k24_a_wrong_share_is_refused_before_any_call_or_with_its_reason(client: Client) -> None:
    with client.lock_session(**LONG) as session:
        wrong: list[dict[str, Any]] = [
            {"shared": True, "permits": 2},
            {"permits": 0},
            {"permits": -1},
            {"permits": 2**32},
            {"permits": "2"},
            {"permits": True},
        ]
        for options in wrong:
            with pytest.raises(ValueError, match="`permits`") as raised:
                session.acquire(NAMESPACE, "secret", **options)
            assert "secret" not in str(raised.value)
            assert isinstance(raised_by(lambda: session.try_acquire(NAMESPACE, "k", **options)), errors.MisconfiguredError)  # noqa: B023
        refused = raised_by(lambda: session.acquire(NAMESPACE, "secret", permits=257))
        assert (type(refused), refused.code, "secret" in str(refused)) == (errors.InvalidError, "LIMIT_EXCEEDED", False)
        assert raised_by(lambda: client.force_lock(NAMESPACE, "k", 1, slot=-1)).code == "MISCONFIGURED"
        assert raised_by(lambda: client.force_lock(NAMESPACE, "k", True)).code == "MISCONFIGURED"
        assert raised_by(lambda: client.list_locks(NAMESPACE, limit=False)).code == "MISCONFIGURED"
        assert raised_by(lambda: client.force_lock(NAMESPACE, "k", 1, slot=257)).code == "LIMIT_EXCEEDED"
        assert session.acquire(NAMESPACE, "k", permits=256).slot == 1


def test_k13_k20_locks_are_shared_under_asyncio(embedded: ClaimsServer) -> None:
    async def hold(session: AsyncLockSession, taken: asyncio.Queue[AsyncHeldLock]) -> None:
        async with session.lock(NAMESPACE, "p", permits=2, wait_seconds=PATIENT) as held:
            taken.put_nowait(held)
            await asyncio.Event().wait()

    async def play(client: AsyncClient) -> None:
        async with client.lock_session(**LONG) as session:
            readers = [await session.try_acquire(NAMESPACE, "s", shared=True) for _ in range(2)]
            assert [reader.slot for reader in readers] == [1, 2]
            writer = asyncio.create_task(session.acquire(NAMESPACE, "s", wait_seconds=PATIENT))
            while (await client.get_lock(NAMESPACE, "s")).waiting != 1:
                pass
            with pytest.raises(errors.BusyError):
                await session.try_acquire(NAMESPACE, "s", shared=True)
            for reader in readers:
                await reader.release()
            assert (await writer).slot == 0

            taken: asyncio.Queue[AsyncHeldLock] = asyncio.Queue()
            holders = [asyncio.create_task(hold(session, taken)) for _ in range(2)]
            lost, kept = await taken.get(), await taken.get()
            assert {lost.slot, kept.slot} == {1, 2}
            await client.force_lock(NAMESPACE, "p", lost.fence, slot=lost.slot)
            # The task of the taken slot alone is cancelled.
            done, running = await asyncio.wait(holders, return_when=asyncio.FIRST_COMPLETED)
            assert [type(task.exception()) for task in done] == [LockLostError]
            assert (len(running), lost.is_held, kept.is_held) == (1, False, True)
            assert (await client.get_lock(NAMESPACE, "p", slot=kept.slot)).state is LockState.HELD
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            with pytest.raises(ValueError, match="`shared` and `permits`"):
                await session.acquire(NAMESPACE, "p", shared=True, permits=2)

    async def main() -> None:
        async with AsyncClient(embedded.url) as client:
            await asyncio.wait_for(play(client), DEADLINE_SECONDS)

    asyncio.run(main())
