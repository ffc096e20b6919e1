"""Tests of queues under asyncio on the real server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest
from support.claims_server import ClaimsServer
from support.locks import LONG, PATIENT
from support.queues import QUEUE, SECRET, state_of, update
from support.waiting import DEADLINE_SECONDS

from leasehold import BatchLostError, LeaseholdError, errors
from leasehold.client import BATCH_LOST, AsyncBatch, AsyncClient, AsyncLockSession, AsyncTaking
from leasehold.client._lock_calls import close_session
from leasehold.queues import LaneList, Queue, RequestList, RequestState


def run(server: ClaimsServer, play: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            await asyncio.wait_for(play(client), DEADLINE_SECONDS)

    asyncio.run(main())


async def submit(client: AsyncClient, *keys: str) -> list[str]:
    return [submitted.id for submitted in await client.submit_all(QUEUE, [update(key, key) for key in keys])]


async def next_of(worker: AsyncTaking) -> AsyncBatch:
    batch = await worker.next_batch(wait_seconds=PATIENT)
    assert batch is not None
    return batch


async def raised_by(call: Awaitable[object]) -> LeaseholdError:
    try:
        await call
    except LeaseholdError as error:
        return error
    raise AssertionError("the call raised no error")


async def until_taken(client: AsyncClient, count: int) -> None:
    while len([lane async for lane in client.lanes(QUEUE, LaneList.TAKEN)]) != count:
        pass


def test_q01_requests_go_from_a_front_to_a_worker_and_are_complete_at_the_end_of_the_block(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        submitted = await client.submit(QUEUE, "7", "body")
        async with client.take(QUEUE) as worker:
            async for batch in worker:
                async with batch:
                    assert [(each.id, each.attempt, each.body) for each in batch.requests] == [(submitted.id, 1, b"body")]
                    assert await state_of(client, submitted.id) == (RequestState.IN_PROGRESS, 1)
                    await batch.note_progress(b"half")
                    worker.stop()
        assert await state_of(client, submitted.id) == (RequestState.COMPLETE, 1)
        assert [each.id async for each in client.requests(QUEUE, which=RequestList.SETTLED)] == [submitted.id]
        assert await client.get_queue(QUEUE) == Queue(is_paused=False, limit=None, taken=0)

    run(embedded, play)


def test_q10_q13_blocks_fail_and_batches_settle_themselves(embedded: ClaimsServer) -> None:
    async def fail(batch: AsyncBatch) -> None:
        async with batch:
            raise KeyError("mine")

    async def play(client: AsyncClient) -> None:
        (one,) = await submit(client, "7")
        async with client.take(QUEUE) as worker:
            with pytest.raises(KeyError, match="mine"):
                await fail(await next_of(worker))
            batch = await next_of(worker)
            assert batch.requests[0].attempt == 2
            await batch.give_back()
            batch = await next_of(worker)
            assert batch.requests[0].attempt == 2
            await batch.fail(retry_after_seconds=0)
            batch = await next_of(worker)
            await batch.complete()
            await batch.complete()
            assert isinstance(await raised_by(batch.fail()), BatchLostError)
        assert await state_of(client, one) == (RequestState.COMPLETE, 3)

    run(embedded, play)


def test_operators_pause_limit_withdraw_and_resubmit(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        (one,) = await submit(client, "7")
        await client.pause_queue(QUEUE)
        await client.pause_queue(QUEUE, "7")
        await client.limit_queue(QUEUE, 3)
        assert await client.get_queue(QUEUE) == Queue(is_paused=True, limit=3, taken=0)
        assert [lane.key async for lane in client.lanes(QUEUE, LaneList.PAUSED)] == ["7"]
        await client.resume_queue(QUEUE)
        await client.resume_queue(QUEUE, "7")
        assert [lane.key async for lane in client.lanes(QUEUE)] == ["7"]
        assert await client.resubmit_request(one) is RequestState.NEW
        assert await client.withdraw_request(one) is RequestState.NEW
        assert await client.get_request(one) is None

    run(embedded, play)


async def lose(
    client: AsyncClient, worker: AsyncTaking, session: AsyncLockSession, seen: list[object], *, ends_renewals: bool = False
) -> None:
    """Work a batch until its loss cancels this task. The renewals may end without the news, as if the stream ended first."""
    async with await next_of(worker) as batch:
        if ends_renewals:
            session._stop()
        # The news of the loss may come before the answer to this call, so another task makes it.
        closing = asyncio.create_task(client._run(close_session(session._id.bytes), None))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            seen += [*error.args, batch.is_lost]
            raise
        finally:
            await closing


def test_q10_the_loss_of_a_batch_cancels_the_task_of_its_block_and_the_worker_goes_on(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        seen: list[object] = []
        (one,) = await submit(client, "7")
        async with client.take(QUEUE) as worker:
            assert worker._session is not None
            error = await raised_by(lose(client, worker, worker._session, seen))
            assert (type(error), error.code, seen) == (BatchLostError, BATCH_LOST, [BATCH_LOST, True])
            assert isinstance(error.__cause__, asyncio.CancelledError)
            async with await next_of(worker) as again:
                assert [(each.id, each.attempt) for each in again.requests] == [(one, 2)]
        # The task lives on: its cancellation was taken back.
        task = asyncio.current_task()
        if sys.version_info >= (3, 11):
            assert task is not None
            assert task.cancelling() == 0

    run(embedded, play)


def test_q10_a_loss_that_the_stream_tells_before_the_renewals_do_cancels_the_task_too(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        seen: list[object] = []
        await submit(client, "7")
        async with client.take(QUEUE) as worker:
            assert worker._session is not None
            error = await raised_by(lose(client, worker, worker._session, seen, ends_renewals=True))
            assert (type(error), seen) == (BatchLostError, [BATCH_LOST, True])

    run(embedded, play)


def test_a_worker_whose_given_session_is_lost_ends_with_an_error(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async with client.lock_session(**LONG) as session, client.take(QUEUE, session=session) as worker:
            second = client.take(QUEUE, session=session)
            assert (await raised_by(second.open())).code == "MISCONFIGURED"
            await client.evict_lock_session(session.id)
            assert isinstance(await raised_by(next_of(worker)), BatchLostError)
            assert await worker.next_batch() is None

    run(embedded, play)


def test_q11_a_cancellation_by_somebody_else_gives_the_batch_back(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        (one,) = await submit(client, "7")
        inside = asyncio.Event()

        async def work() -> None:
            async for batch in client.take(QUEUE):
                async with batch:
                    inside.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel("mine")
        with pytest.raises(asyncio.CancelledError, match="mine"):
            await task
        # The loop's generator is closed by the event loop, which ends the worker.
        while await state_of(client, one) != (RequestState.NEW, 0):
            pass

    run(embedded, play)


def test_q11_the_end_of_a_worker_gives_back_all_that_is_not_settled(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        ids = await submit(client, "7", "8", "9")
        async with client.take(QUEUE, credit=3) as worker:
            batch = await next_of(worker)
            await until_taken(client, 3)
        assert [await state_of(client, each) for each in ids] == [(RequestState.NEW, 0)] * 3
        assert batch.is_lost
        assert "the worker has stopped" in str(await raised_by(batch.complete()))
        assert (await raised_by(worker.open())).code == "CLOSED"
        assert (await raised_by(client.take(QUEUE).next_batch())).code == "CLOSED"

    run(embedded, play)


async def are_complete(client: AsyncClient, ids: list[str]) -> bool:
    return {(await state_of(client, each))[0] for each in ids} == {RequestState.COMPLETE}


def test_run_works_batches_side_by_side_and_survives_one_that_fails(
    embedded: ClaimsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(client: AsyncClient) -> None:
        ids = await submit(client, "7", "8", SECRET)
        both, worked = asyncio.Event(), list[str]()

        async def work(batch: AsyncBatch) -> None:
            worked.append(batch.key)
            if batch.key == SECRET:
                raise RuntimeError(SECRET)
            if len({*worked} - {SECRET}) == 2:
                both.set()
            await both.wait()

        worker = client.take(QUEUE, credit=2)
        async with worker:
            running = asyncio.create_task(worker.run(work))
            while SECRET not in worked or not await are_complete(client, ids[:2]):
                await asyncio.sleep(0)
            worker.stop()
            await running
        assert (await state_of(client, ids[2]))[1] >= 1

    run(embedded, play)
    assert "has failed by `RuntimeError`" in caplog.text
    assert SECRET not in caplog.text


def test_q11_run_cancels_what_works_too_long_after_a_stop(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        ids = await submit(client, "7", "8")
        inside, ends = asyncio.Event(), list[str]()

        async def work(batch: AsyncBatch) -> None:
            if batch.key == "7":
                worker.stop(within_seconds=PATIENT)
                await inside.wait()
            else:
                inside.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    ends.append("cancelled")
                    raise

        async with client.take(QUEUE, credit=2) as worker:
            await until_taken(client, 2)
            # Both batches have come before the first function stops the worker.
            while len(worker._held) < 2:
                await asyncio.sleep(0)
            running = asyncio.create_task(worker.run(work))
            while (await state_of(client, ids[0]))[0] is not RequestState.COMPLETE:
                await asyncio.sleep(0)
            # A second stop replaces the time of the first.
            worker.stop(within_seconds=0)
            await running
        assert await state_of(client, ids[1]) == (RequestState.NEW, 0)
        assert ends == ["cancelled"]

    run(embedded, play)


def test_a_worker_goes_on_after_a_restart_of_the_server(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        ids = await submit(client, "1", "2", "3")
        async with client.lock_session(**LONG) as session, client.take(QUEUE, session=session) as worker:
            worked = []
            for end in (embedded.stop, embedded.kill, None):
                batch = await next_of(worker)
                worked += [(each.id, each.attempt) for each in batch.requests]
                if end is not None:
                    await asyncio.to_thread(end)
                    await asyncio.to_thread(embedded.start)
                await batch.complete()
        assert worked == [(each, 1) for each in ids]

    run(embedded, play)


def test_what_the_server_refuses_ends_the_loop(embedded: ClaimsServer) -> None:
    async def first(worker: AsyncTaking) -> None:
        async for _ in worker:
            pass

    async def play(client: AsyncClient) -> None:
        assert isinstance(await raised_by(first(client.take("a..b"))), errors.InvalidError)
        assert (await raised_by(client.take(QUEUE, credit=257).run(None))).code == "CLOSED"  # type: ignore[arg-type]

    run(embedded, play)
