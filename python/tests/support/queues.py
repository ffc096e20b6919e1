"""Requests for tests, and waits for what becomes of them."""

from __future__ import annotations

from leasehold.client import AsyncClient, Batch, Client, Taking
from leasehold.queues import LaneList, NewRequest, Request, RequestState
from support.locks import PATIENT
from support.waiting import wait_for

QUEUE = "sheets"
"""The queue of most tests."""

SECRET = "hush"  # noqa: S105 - no password
"""A text that keys and bodies contain, and that nothing else may show."""


def update(key: str = "7", body: bytes | str = b"", **fields: object) -> NewRequest:
    """Return an update of the resource of a key."""
    return NewRequest(key, body, **fields)  # type: ignore[arg-type]


def submit(client: Client, *requests: NewRequest) -> list[str]:
    """Submit requests to the queue of the tests. Return their ids."""
    return [submitted.id for submitted in client.submit_all(QUEUE, requests)]


def next_of(worker: Taking) -> Batch:
    """Return the next batch of a worker."""
    batch = worker.next_batch(wait_seconds=PATIENT)
    assert batch is not None
    return batch


def bodies(batch: Batch) -> list[bytes]:
    """Return the bodies of a batch."""
    return [request.body for request in batch.requests]


def attempts(batch: Batch) -> list[int]:
    """Return the numbers of the attempts of a batch."""
    return [request.attempt for request in batch.requests]


def request(client: Client, request_id: str) -> Request:
    """Return a request that is there."""
    found = client.get_request(request_id)
    assert found is not None
    return found


def state(client: Client, request_id: str) -> tuple[RequestState, int]:
    """Return the state of a request, and the number of its attempts."""
    found = request(client, request_id)
    return found.state, found.attempts


async def state_of(client: AsyncClient, request_id: str) -> tuple[RequestState, int]:
    """Return the state of a request, and the number of its attempts."""
    found = await client.get_request(request_id)
    assert found is not None
    return found.state, found.attempts


def taken(client: Client, count: int) -> None:
    """Wait until a number of lanes is taken."""
    wait_for(f"{count} taken lanes", lambda: len(list(client.lanes(QUEUE, LaneList.TAKEN))) == count)
