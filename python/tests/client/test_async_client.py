"""Tests of the asyncio client on the real server: most on each of its stores, the others on one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

import pytest
from support.certificates import Authority
from support.claims import bucket, username
from support.claims_server import ClaimsServer
from support.tcp_proxy import TcpProxy
from support.waiting import wait_for

from leasehold import BucketType, LeaseholdError, SourceType, errors
from leasehold.client import AsyncClient, AsyncUpdate, Client, Retry, Tls

USERS = (SourceType.USERS, [BucketType.USERNAMES])


class LocalError(Exception):
    """An error that the caller's own code raises inside a block."""


def run(server: str, play: Callable[[AsyncClient], Awaitable[None]], retry: Retry | None = None) -> None:
    async def main() -> None:
        async with AsyncClient(server, cell_id=1, retry=retry) as client:
            await play(client)

    asyncio.run(main())


async def raised_by(call: Awaitable[object]) -> LeaseholdError:
    try:
        await call
    except LeaseholdError as error:
        return error
    raise AssertionError("the call raised no error")


def fails_within(update: AsyncUpdate) -> None:
    with update.local_commit():
        raise LocalError


async def outstanding(client: AsyncClient) -> list[str]:
    return [lease.uuid async for lease in client.leases()]


def test_b20_the_asyncio_client_begins_settles_and_reads_like_the_blocking_client(server: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        kept, gone = await asyncio.gather(client.begin([username("Alice")]), client.begin([username("bob")]))
        assert sorted(await outstanding(client)) == sorted([kept.uuid, gone.uuid])
        await asyncio.gather(client.commit(kept.uuid), client.rollback(gone.uuid))
        assert await outstanding(client) == []
        assert [record.claim async for record in client.records(*USERS)] == [username("Alice")]
        assert (await client.get(bucket("alice"))).record.cell_id == 1
        first, second = await client.cells()
        assert (await client.classify(bucket("alice"))).address == first.address
        assert (await client.classify_session(second.session_prefix)).address == second.address
        assert (await client.classify_cell(2)).address == second.address
        assert (await client.classify_first_cell()).address == first.address
        taken = await raised_by(client.begin([username("free"), username("ALICE")]))
        assert [(detail.list, detail.position, detail.code) for detail in taken.details] == [("creates", 1, "CLAIM_TAKEN")]

    run(server.url, play)


def test_b31_b32_pages_are_fetched_until_the_last(server: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        begun = [(await client.begin([username(f"busy{n}")])).uuid for n in range(3)]
        pages = [page async for page in client.lease_pages(limit=2)]
        assert [lease.uuid for page in pages for lease in page.leases] == begun
        names = [f"user{key:04}" for key in range(1, 2501)]
        for start in range(0, len(names), 500):
            batch = [username(name, start + at + 1) for at, name in enumerate(names[start : start + 500])]
            async with client.update(creates=batch):
                pass
        assert len([page async for page in client.record_pages(*USERS)]) > 1
        seen = [record.claim.bucket_value async for record in client.records(*USERS)]
        assert [name for name in seen if name.startswith("user")] == names

    run(server.url, play)


def test_a_block_is_committed_or_rolled_back(server: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async with client.update(creates=[username("alice")]) as lease:
            assert await outstanding(client) == [lease.uuid]
        with pytest.raises(LocalError):
            async with client.update(creates=[username("bob")]):
                raise LocalError
        assert await outstanding(client) == []
        update = client.update(creates=[username("carol")])
        with pytest.raises(LocalError):
            async with update:
                fails_within(update)
        assert await outstanding(client) == [update.uuid]
        assert [record.claim.bucket_value async for record in client.records(*USERS)] == ["alice", "carol"]

    run(server.url, play)


def test_a_cancelled_block_is_rolled_back(server: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        inside = asyncio.Event()

        async def save() -> None:
            async with client.update(creates=[username("alice")]):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(save())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await outstanding(client) == []

    run(server.url, play)


def test_a_cancelled_commit_completes_before_the_cancellation(server: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        async def save(name: str) -> None:
            async with client.update(creates=[username(name)]):
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

        for name in ("alice", "bob", "carol"):
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(save(name))
        assert await outstanding(client) == []
        assert len([record async for record in client.records(*USERS)]) == 3

    run(server.url, play)


def test_a_cancelled_commit_without_an_answer_is_logged(embedded: ClaimsServer, caplog: pytest.LogCaptureFixture) -> None:
    async def play(client: AsyncClient) -> None:
        async def save() -> None:
            async with client.update(creates=[username("alice")]):
                embedded.kill()
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(save())

    run(embedded.url, play, Retry(attempt_timeout_seconds=0.3))
    assert "reconciliation" in caplog.text


def test_a_closed_client_raises(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        await client.cells()
        await client.close()
        error = await raised_by(client.cells())
        assert (type(error), error.code) == (errors.MisconfiguredError, "CLOSED")

    run(embedded.url, play)


def test_a_cancelled_begin_is_rolled_back(embedded: ClaimsServer, proxy: TcpProxy) -> None:
    async def play(client: AsyncClient) -> None:
        await client.cells()
        proxy.hold_answers()

        async def save() -> None:
            async with client.update(creates=[username("alice")], timeout_seconds=30):
                raise AssertionError("the block must not run")

        task = asyncio.create_task(save())
        with Client(embedded.url, cell_id=1) as direct:
            await asyncio.to_thread(wait_for, "the lease", lambda: list(direct.leases()))
            task.cancel()
            proxy.release_answers()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert list(direct.leases()) == []

    run(f"http://{proxy.address}", play)


def test_b09_a_retry_returns_the_lease_of_the_first_attempt(embedded: ClaimsServer, proxy: TcpProxy) -> None:
    async def play(client: AsyncClient) -> None:
        await client.cells(timeout_seconds=60)
        with Client(embedded.url, cell_id=1) as direct:
            proxy.cut_next_answer(lambda: wait_for("the lease of the first attempt", lambda: list(direct.leases())))
            lease = await client.begin([username("alice")], timeout_seconds=60)
            assert [outstanding.uuid for outstanding in direct.leases()] == [lease.uuid]

    run(f"http://{proxy.address}", play, Retry(attempts=2, attempt_timeout_seconds=60, backoff_seconds=0.01))


def test_a_dead_server_raises_with_an_unknown_outcome(server: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        lease = await client.begin([username("alice")], timeout_seconds=60)
        server.kill()
        error = await raised_by(client.commit(lease.uuid, timeout_seconds=60))
        assert isinstance(error, errors.UnavailableError)
        assert (error.lease_uuid, error.outcome_is_unknown) == (lease.uuid, True)

    run(server.url, play, Retry(attempts=1, attempt_timeout_seconds=60))


def test_the_timeout_of_a_call_bounds_all_attempts(proxy: TcpProxy) -> None:
    async def play(client: AsyncClient) -> None:
        await client.cells(timeout_seconds=60)
        proxy.hold_answers()
        start = time.monotonic()
        error = await raised_by(client.begin([username("alice")], timeout_seconds=0.7, idempotency_key="mine"))
        assert isinstance(error, errors.DeadlineExceededError)
        # Without this timeout, the attempts alone take more than two minutes.
        assert time.monotonic() - start < 60
        assert (error.outcome_is_unknown, error.idempotency_key) == (True, "mine")

    run(f"http://{proxy.address}", play, Retry(attempts=600, attempt_timeout_seconds=0.2, backoff_seconds=0.01))


def test_tls_works_as_in_the_blocking_client(authority: Authority) -> None:
    files = authority.cell(1)
    with ClaimsServer(tls=authority.server()) as server:
        tls = Tls(files.ca, files.certificate, files.key)

        async def main() -> None:
            async with AsyncClient(server.url, cell_id=1, tls=tls) as client:
                async with client.update(creates=[username("alice")]):
                    pass
                assert isinstance(await raised_by(client.get(bucket("alice"))), errors.DeniedError)

        asyncio.run(main())
    wrong = partial(AsyncClient, "https://127.0.0.1:1")
    with pytest.raises(errors.MisconfiguredError):
        wrong()


def test_the_asyncio_client_of_one_store_refuses_another(server: ClaimsServer) -> None:
    async def main() -> None:
        async with AsyncClient(server.url, cell_id=1, store_id=UUID(int=0)) as other:
            error = await raised_by(other.cells())
            assert isinstance(error, errors.OtherStoreError)
            assert server.store_id in error.message
        async with AsyncClient(server.url, cell_id=1, store_id=server.store_id) as own:
            assert len(await own.cells()) == 2

    asyncio.run(main())


def test_a_client_works_in_one_event_loop_after_the_other(embedded: ClaimsServer) -> None:
    client = AsyncClient(embedded.url, cell_id=1)

    async def claim(name: str) -> None:
        async with client.update(creates=[username(name)]):
            pass

    async def names() -> list[str]:
        return [record.claim.bucket_value async for record in client.records(*USERS)]

    asyncio.run(claim("ann"))
    asyncio.run(claim("bob"))
    assert sorted(asyncio.run(names())) == ["ann", "bob"]
    asyncio.run(client.close())


def test_a_client_of_a_loop_that_is_not_closed_refuses_another_loop(embedded: ClaimsServer) -> None:
    async def play(client: AsyncClient) -> None:
        await client.cells()
        refused = await asyncio.to_thread(lambda: asyncio.run(raised_by(client.cells())))
        assert (type(refused), "create a client for each loop" in str(refused)) == (errors.MisconfiguredError, True)
        closed = await asyncio.to_thread(lambda: asyncio.run(raised_by(client.close())))
        assert isinstance(closed, errors.MisconfiguredError)
        # The loop of the client goes on.
        assert len(await client.cells()) == 2

    run(embedded.url, play)
