"""One function per rpc of queues: it encodes the request and decodes the response."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from leasehold._proto.leasehold.queues.v1 import queue_service_pb2 as wire
from leasehold.client import _messages as messages
from leasehold.client._calls import Call, Headers, call, no_answer
from leasehold.client._fields import MAX_32, check_text, id_bytes, id_text, member, micros, number, rows_limit
from leasehold.errors import MisconfiguredError
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

QUEUES = "leasehold.queues.v1.QueueService"
TAKE = f"/{QUEUES}/Take"

Outcome = wire.SettleRequest.Outcome

_REQUEST_ID = "the `id` of a request"


@dataclass(frozen=True)
class HeldLane:
    """The lane of a batch, and the session and the fence under which this process holds it."""

    session: bytes
    queue: str
    key: str
    fence: int


def submit(queue: str, requests: Iterable[NewRequest]) -> Call[tuple[SubmittedRequest, ...]]:
    check_text("queue", queue)
    request = wire.SubmitRequest(queue=queue, requests=[_new(position, new) for position, new in enumerate(requests)])

    def decode(response: bytes, _headers: Headers) -> tuple[SubmittedRequest, ...]:
        found = wire.SubmitResponse.FromString(response).requests
        return tuple(SubmittedRequest(id_text(each.request_id), each.is_new) for each in found)

    return call(QUEUES, "Submit", request, decode)


def _new(position: int, new: object) -> wire.NewRequest:
    if not isinstance(new, NewRequest):
        raise TypeError(f"`requests[{position}]` is a `{type(new).__name__}`: pass a `NewRequest`")
    check_text("key", new.key)
    return wire.NewRequest(
        request_id=id_bytes("id", new.id, "a random one"),
        key=new.key,
        kind=_member_number("kind", new.kind, RequestKind),
        priority=number("priority", new.priority, MAX_32),
        delay_micros=micros("delay_seconds", new.delay_seconds),
        max_attempts=number("max_attempts", new.max_attempts, MAX_32),
        body=_body(new.body),
    )


def _body(body: object) -> bytes:
    if isinstance(body, str):
        check_text("body", body)
        return body.encode()
    return checked_bytes("body", body)


def checked_bytes(name: str, value: object) -> bytes:
    """Return a value of bytes. No error contains the value (Q22)."""
    if not isinstance(value, bytes):
        raise TypeError(f"`{name}` is a `{type(value).__name__}`, not bytes: pass bytes")
    return value


def _member_number(name: str, value: object, enumeration: type[enum.Enum]) -> Any:  # noqa: ANN401 - see `messages.enum`
    if not isinstance(value, enumeration):
        raise TypeError(f"`{name}` is a `{type(value).__name__}`: pass a `{enumeration.__name__}`")
    return messages.enum(value.value)


def take(session: bytes, queue: str, credit: int, max_requests: int, held_fences: Sequence[int]) -> Call[wire.TakeResponse]:
    """Return the call of a stream, each of whose messages `decode` returns."""
    request = wire.TakeRequest(
        session_id=session, queue=queue, credit=credit, max_requests=max_requests, held_fences=held_fences
    )
    return call(QUEUES, "Take", request, lambda response, _headers: wire.TakeResponse.FromString(response))


def settle(lane: HeldLane, outcome: Outcome, retry_micros: int | None) -> Call[None]:
    request = wire.SettleRequest(
        session_id=lane.session,
        queue=lane.queue,
        key=lane.key,
        fence=lane.fence,
        outcome=outcome,
        retry_micros=retry_micros,
    )
    return call(QUEUES, "Settle", request, no_answer)


def note_progress(lane: HeldLane, progress: bytes) -> Call[None]:
    request = wire.NoteProgressRequest(
        session_id=lane.session, queue=lane.queue, key=lane.key, fence=lane.fence, progress=checked_bytes("progress", progress)
    )
    return call(QUEUES, "NoteProgress", request, no_answer)


def withdraw(request_id: str) -> Call[RequestState | None]:
    request = wire.WithdrawRequest(request_id=id_bytes("request_id", request_id, _REQUEST_ID))
    return call(
        QUEUES, "Withdraw", request, lambda response, _headers: _state(wire.WithdrawResponse.FromString(response).found)
    )


def resubmit(request_id: str) -> Call[RequestState | None]:
    request = wire.ResubmitRequest(request_id=id_bytes("request_id", request_id, _REQUEST_ID))
    return call(
        QUEUES, "Resubmit", request, lambda response, _headers: _state(wire.ResubmitResponse.FromString(response).found)
    )


def _state(found: int) -> RequestState | None:
    return member(RequestState, found) if found else None


def pause(queue: str, key: str | None, *, resume: bool) -> Call[None]:
    check_text("queue", queue)
    if key is not None:
        check_text("key", key)
    if key == "":
        # An empty key on the wire means all lanes, which the caller did not name.
        raise MisconfiguredError("`key` is empty: name the lane, or pause the whole queue without `key`")
    return call(QUEUES, "Pause", wire.PauseRequest(queue=queue, key=key or "", resume=resume), no_answer)


def set_limit(queue: str, limit: int | None) -> Call[None]:
    check_text("queue", queue)
    most = 0 if limit is None else number("limit", limit, MAX_32, smallest=1)
    return call(QUEUES, "SetLimit", wire.SetLimitRequest(queue=queue, limit=most), no_answer)


def get_request(request_id: str, *, with_body: bool) -> Call[Request | None]:
    request = wire.GetRequestRequest(request_id=id_bytes("request_id", request_id, _REQUEST_ID), with_body=bool(with_body))

    def decode(response: bytes, _headers: Headers) -> Request | None:
        found = wire.GetRequestResponse.FromString(response)
        return _request(found.request, found.body if with_body else None) if found.HasField("request") else None

    return call(QUEUES, "GetRequest", request, decode)


def get_queue(queue: str) -> Call[Queue]:
    check_text("queue", queue)

    def decode(response: bytes, _headers: Headers) -> Queue:
        found = wire.GetQueueResponse.FromString(response)
        return Queue(found.is_paused, found.limit or None, found.taken)

    return call(QUEUES, "GetQueue", wire.GetQueueRequest(queue=queue), decode)


def list_requests(queue: str, key: str, which: RequestList, limit: int | None, cursor: str | None) -> Call[RequestPage]:
    check_text("queue", queue)
    check_text("key", key)
    request = wire.ListRequestsRequest(
        queue=queue,
        key=key,
        list=_member_number("which", which, RequestList),
        limit=rows_limit(limit),
        after=None if cursor is None else messages.decode_cursor(cursor, wire.RequestPlace),
    )

    def decode(response: bytes, _headers: Headers) -> RequestPage:
        page = wire.ListRequestsResponse.FromString(response)
        cursor = messages.encode_cursor(page.next) if page.HasField("next") else None
        return RequestPage(tuple(_request(each, None) for each in page.requests), cursor)

    return call(QUEUES, "ListRequests", request, decode)


def list_lanes(queue: str, which: LaneList, limit: int | None, cursor: str | None) -> Call[LanePage]:
    check_text("queue", queue)
    request = wire.ListLanesRequest(
        queue=queue,
        list=_member_number("which", which, LaneList),
        limit=rows_limit(limit),
        after=None if cursor is None else messages.decode_cursor(cursor, wire.LanePlace),
    )

    def decode(response: bytes, _headers: Headers) -> LanePage:
        page = wire.ListLanesResponse.FromString(response)
        cursor = messages.encode_cursor(page.next) if page.HasField("next") else None
        return LanePage(tuple(_lane(each) for each in page.lanes), cursor)

    return call(QUEUES, "ListLanes", request, decode)


def cursor_of_session(session: bytes, queue: str) -> str:
    """Return the cursor of the lanes that a session holds, in the list of those that are taken.

    The list is in the order of session and fence, and no fence is 0.
    """
    return messages.encode_cursor(wire.LanePlace(queue=queue, key="0", session_id=session, fence=0))


def _request(message: wire.Request, body: bytes | None) -> Request:
    return Request(
        id=id_text(message.request_id),
        queue=message.queue,
        key=message.key,
        number=message.number,
        kind=member(RequestKind, message.kind),
        priority=message.priority,
        state=member(RequestState, message.state),
        not_before=messages.time(message.not_before),
        attempts=message.attempts,
        max_attempts=message.max_attempts,
        body_bytes=message.body_bytes,
        submitted_at=messages.time(message.submitted_at),
        updated_at=messages.time(message.updated_at),
        body=body,
    )


def _lane(message: wire.Lane) -> Lane:
    return Lane(
        queue=message.queue,
        key=message.key,
        is_paused=message.is_paused,
        waiting=message.waiting,
        not_before=messages.time(message.not_before) if message.HasField("not_before") else None,
        session_id=id_text(message.session_id) if message.session_id else None,
        fence=message.fence or None,
        taken_at=messages.time(message.taken_at) if message.HasField("taken_at") else None,
        updated_at=messages.time(message.updated_at),
    )
