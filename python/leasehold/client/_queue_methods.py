"""The calls of the clients for queues: submits, and the work of operators."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterable, Iterator

from leasehold.client import _queue_calls as calls
from leasehold.client._base import ClientBase
from leasehold.client._calls import Call, T
from leasehold.client._retry import Retry
from leasehold.queues import (
    Lane,
    LaneList,
    LanePage,
    NewRequest,
    Queue,
    Request,
    RequestKind,
    RequestList,
    RequestPage,
    RequestState,
    SubmittedRequest,
)

# The most rows of a page.
_PAGE = 1000


def _new_request(
    key: str,
    body: bytes | str,
    kind: RequestKind,
    priority: int,
    delay_seconds: float,
    max_attempts: int,
    request_id: str | None,
) -> NewRequest:
    new = NewRequest(key, body, kind=kind, priority=priority, delay_seconds=delay_seconds, max_attempts=max_attempts)
    return new if request_id is None else dataclasses.replace(new, id=request_id)


class QueueMethods(ClientBase):
    """The calls of `Client` for queues."""

    def _run(self, call: Call[T], timeout_seconds: float | None, retry: Retry | None = None) -> T:
        raise NotImplementedError

    def submit(
        self,
        queue: str,
        key: str,
        body: bytes | str = b"",
        *,
        kind: RequestKind = RequestKind.UPDATE,
        priority: int = 0,
        delay_seconds: float = 0.0,
        max_attempts: int = 25,
        request_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> SubmittedRequest:
        """Submit a request to a queue. `take` takes it. All attempts of the call have one id.

        Parameters
        ----------
        queue
            One or more parts, joined by a full stop: `sheets.refresh`.
        key
            The key of the resource that the request is about. The requests of one key are worked in order.
        body, kind, priority, delay_seconds, max_attempts
            See `NewRequest`.
        request_id
            The id of the request, a UUID. A repeated submit of the same id changes nothing. The default is a new UUIDv7.
        timeout_seconds
            The timeout of the call. The default is the client's.

        Raises
        ------
        InvalidError
            The server refuses a name, or a limit is exceeded. An id was used for another request (`IDEMPOTENCY_KEY_REUSED`).
        DeniedError
            The caller has no right to the queue.

        Examples
        --------
        >>> submitted = client.submit("sheets", "7", "refresh", kind=RequestKind.CREATE)
        >>> client.get_request(submitted.id).state.name
        'NEW'
        """
        new = _new_request(key, body, kind, priority, delay_seconds, max_attempts, request_id)
        (submitted,) = self.submit_all(queue, [new], timeout_seconds=timeout_seconds)
        return submitted

    def submit_all(
        self, queue: str, requests: Iterable[NewRequest], *, timeout_seconds: float | None = None
    ) -> tuple[SubmittedRequest, ...]:
        """Submit several requests: all of them, or none. See `submit`.

        Parameters
        ----------
        queue
            The queue.
        requests
            The requests, at most 1,000, with at most 4 MiB of bodies.
        timeout_seconds
            The timeout of the call. The default is the client's.

        Examples
        --------
        >>> submitted = client.submit_all("sheets", [NewRequest("8", "rows"), NewRequest("9", "rows", priority=1)])
        >>> [each.is_new for each in submitted]
        [True, True]
        """
        return self._run(calls.submit(queue, requests), timeout_seconds)

    def get_request(self, request_id: str, *, with_body: bool = False, timeout_seconds: float | None = None) -> Request | None:
        """Return a request; None if it was withdrawn or forgotten, or never was."""
        return self._run(calls.get_request(request_id, with_body=with_body), timeout_seconds)

    def get_queue(self, queue: str, *, timeout_seconds: float | None = None) -> Queue:
        """Return a queue: if it is paused, and its limit."""
        return self._run(calls.get_queue(queue), timeout_seconds)

    def list_requests(
        self,
        queue: str,
        key: str = "",
        which: RequestList = RequestList.WAITING,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        timeout_seconds: float | None = None,
    ) -> RequestPage:
        """Return a page of the requests of a lane that wait or are taken, or of the settled requests of a queue.

        Parameters
        ----------
        queue
            The queue. An empty one lists the settled requests of all queues, for administrators.
        key
            The key of the lane. An empty key lists the settled requests of all lanes.
        which
            The list.
        limit
            The maximum number of requests: 100 by default, 1,000 at most.
        cursor
            The `cursor` of the previous page.
        timeout_seconds
            The timeout of the call. The default is the client's.
        """
        return self._run(calls.list_requests(queue, key, which, limit, cursor), timeout_seconds)

    def requests(self, queue: str, key: str = "", which: RequestList = RequestList.WAITING) -> Iterator[Request]:
        """Iterate over all requests of a list. See `list_requests`.

        Examples
        --------
        >>> [request.number for request in client.requests("sheets", "no such key")]
        []
        """
        cursor = None
        while True:
            page = self.list_requests(queue, key, which, limit=_PAGE, cursor=cursor)
            yield from page.requests
            cursor = page.cursor
            if cursor is None:
                return

    def list_lanes(
        self,
        queue: str,
        which: LaneList = LaneList.READY,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        timeout_seconds: float | None = None,
    ) -> LanePage:
        """Return a page of the lanes of a queue that are ready, delayed, taken or paused.

        Parameters
        ----------
        queue
            The queue.
        which
            The list.
        limit
            The maximum number of lanes: 100 by default, 1,000 at most.
        cursor
            The `cursor` of the previous page.
        timeout_seconds
            The timeout of the call. The default is the client's.
        """
        return self._run(calls.list_lanes(queue, which, limit, cursor), timeout_seconds)

    def lanes(self, queue: str, which: LaneList = LaneList.READY) -> Iterator[Lane]:
        """Iterate over all lanes of a list. See `list_lanes`."""
        cursor = None
        while True:
            page = self.list_lanes(queue, which, limit=_PAGE, cursor=cursor)
            yield from page.lanes
            cursor = page.cursor
            if cursor is None:
                return

    def pause_queue(self, queue: str, key: str | None = None, *, timeout_seconds: float | None = None) -> None:
        """Pause a queue, or the lane of a key: nothing more is taken from it. Only administrators may call it.

        What is taken already goes on, and requests can be submitted.
        """
        self._run(calls.pause(queue, key, resume=False), timeout_seconds)

    def resume_queue(self, queue: str, key: str | None = None, *, timeout_seconds: float | None = None) -> None:
        """Resume a queue, or the lane of a key. Only administrators may call it."""
        self._run(calls.pause(queue, key, resume=True), timeout_seconds)

    def limit_queue(self, queue: str, limit: int | None, *, timeout_seconds: float | None = None) -> None:
        """Set the most lanes of a queue that are taken at a time; None for any number. Only administrators may call it."""
        self._run(calls.set_limit(queue, limit), timeout_seconds)

    def withdraw_request(self, request_id: str, *, timeout_seconds: float | None = None) -> RequestState | None:
        """Withdraw a request that waits. Only administrators may call it.

        Returns
        -------
        RequestState or None
            The state in which the call found the request: `NEW` if it is withdrawn now. None if there is no such request.
        """
        return self._run(calls.withdraw(request_id), timeout_seconds)

    def resubmit_request(self, request_id: str, *, timeout_seconds: float | None = None) -> RequestState | None:
        """Submit a request again whose last attempt failed, at the end of its lane. Only administrators may call it.

        Returns
        -------
        RequestState or None
            The state in which the call found the request: `ERROR` if it is submitted again now. None if there is no such
            request.
        """
        return self._run(calls.resubmit(request_id), timeout_seconds)


class AsyncQueueMethods(ClientBase):
    """The calls of `AsyncClient` for queues."""

    async def _run(self, call: Call[T], timeout_seconds: float | None, retry: Retry | None = None) -> T:
        raise NotImplementedError

    async def submit(
        self,
        queue: str,
        key: str,
        body: bytes | str = b"",
        *,
        kind: RequestKind = RequestKind.UPDATE,
        priority: int = 0,
        delay_seconds: float = 0.0,
        max_attempts: int = 25,
        request_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> SubmittedRequest:
        """Submit a request to a queue. See `Client.submit`."""
        new = _new_request(key, body, kind, priority, delay_seconds, max_attempts, request_id)
        (submitted,) = await self.submit_all(queue, [new], timeout_seconds=timeout_seconds)
        return submitted

    async def submit_all(
        self, queue: str, requests: Iterable[NewRequest], *, timeout_seconds: float | None = None
    ) -> tuple[SubmittedRequest, ...]:
        """Submit several requests: all of them, or none. See `Client.submit_all`."""
        return await self._run(calls.submit(queue, requests), timeout_seconds)

    async def get_request(
        self, request_id: str, *, with_body: bool = False, timeout_seconds: float | None = None
    ) -> Request | None:
        """Return a request; None if it was withdrawn or forgotten, or never was. See `Client.get_request`."""
        return await self._run(calls.get_request(request_id, with_body=with_body), timeout_seconds)

    async def get_queue(self, queue: str, *, timeout_seconds: float | None = None) -> Queue:
        """Return a queue: if it is paused, and its limit. See `Client.get_queue`."""
        return await self._run(calls.get_queue(queue), timeout_seconds)

    async def list_requests(
        self,
        queue: str,
        key: str = "",
        which: RequestList = RequestList.WAITING,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        timeout_seconds: float | None = None,
    ) -> RequestPage:
        """Return a page of a list of requests. See `Client.list_requests`."""
        return await self._run(calls.list_requests(queue, key, which, limit, cursor), timeout_seconds)

    async def requests(self, queue: str, key: str = "", which: RequestList = RequestList.WAITING) -> AsyncIterator[Request]:
        """Iterate over all requests of a list. See `Client.requests`."""
        cursor = None
        while True:
            page = await self.list_requests(queue, key, which, limit=_PAGE, cursor=cursor)
            for request in page.requests:
                yield request
            cursor = page.cursor
            if cursor is None:
                return

    async def list_lanes(
        self,
        queue: str,
        which: LaneList = LaneList.READY,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        timeout_seconds: float | None = None,
    ) -> LanePage:
        """Return a page of the lanes of a queue that are ready, delayed, taken or paused. See `Client.list_lanes`."""
        return await self._run(calls.list_lanes(queue, which, limit, cursor), timeout_seconds)

    async def lanes(self, queue: str, which: LaneList = LaneList.READY) -> AsyncIterator[Lane]:
        """Iterate over all lanes of a list. See `Client.lanes`."""
        cursor = None
        while True:
            page = await self.list_lanes(queue, which, limit=_PAGE, cursor=cursor)
            for lane in page.lanes:
                yield lane
            cursor = page.cursor
            if cursor is None:
                return

    async def pause_queue(self, queue: str, key: str | None = None, *, timeout_seconds: float | None = None) -> None:
        """Pause a queue, or the lane of a key. Only administrators may call it. See `Client.pause_queue`."""
        await self._run(calls.pause(queue, key, resume=False), timeout_seconds)

    async def resume_queue(self, queue: str, key: str | None = None, *, timeout_seconds: float | None = None) -> None:
        """Resume a queue, or the lane of a key. Only administrators may call it. See `Client.resume_queue`."""
        await self._run(calls.pause(queue, key, resume=True), timeout_seconds)

    async def limit_queue(self, queue: str, limit: int | None, *, timeout_seconds: float | None = None) -> None:
        """Set the most lanes of a queue that are taken at a time. Only administrators may call it. See `Client.limit_queue`."""
        await self._run(calls.set_limit(queue, limit), timeout_seconds)

    async def withdraw_request(self, request_id: str, *, timeout_seconds: float | None = None) -> RequestState | None:
        """Withdraw a request that waits. Only administrators may call it. See `Client.withdraw_request`."""
        return await self._run(calls.withdraw(request_id), timeout_seconds)

    async def resubmit_request(self, request_id: str, *, timeout_seconds: float | None = None) -> RequestState | None:
        """Submit a request again whose last attempt failed. Only administrators may call it. See `Client.resubmit_request`."""
        return await self._run(calls.resubmit(request_id), timeout_seconds)
