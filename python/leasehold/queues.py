"""Requests that fronts submit to queues and workers take, and lanes and queues as the server stores them."""

from __future__ import annotations

import enum
import time
import uuid
from dataclasses import dataclass, field
from datetime import datetime

__all__ = [
    "Lane",
    "LaneList",
    "LanePage",
    "NewRequest",
    "Queue",
    "Request",
    "RequestKind",
    "RequestList",
    "RequestPage",
    "RequestState",
    "SubmittedRequest",
    "TakenRequest",
]


class RequestKind(enum.Enum):
    """The kind of a request."""

    CREATE = 1
    """The request creates the resource of its key. It is taken alone, and a resource has at most one."""
    UPDATE = 2
    """The request updates the resource of its key. Waiting updates are taken as one."""


class RequestState(enum.Enum):
    """The state of a request."""

    NEW = 1
    """The request waits to be taken."""
    IN_PROGRESS = 2
    """A worker has taken the request."""
    COMPLETE = 3
    """The work succeeded."""
    ERROR = 4
    """The last attempt failed. `resubmit_request` submits the request again."""


class RequestList(enum.Enum):
    """A list of requests."""

    TAKEN = 1
    """The requests of a lane that a worker has taken, in the order of the lane."""
    WAITING = 2
    """The requests of a lane that wait, in the order of the lane."""
    SETTLED = 3
    """The settled requests, the oldest first."""


class LaneList(enum.Enum):
    """A list of lanes."""

    READY = 1
    """The lanes that a worker can take, in the order in which they are offered."""
    DELAYED = 2
    """The lanes whose first request was not due when it was submitted or failed, the one first that is due first."""
    TAKEN = 3
    """The lanes that workers hold, by session."""
    PAUSED = 4
    """The lanes that are paused and that no worker holds, by key."""


def _new_id() -> str:
    """Return a UUIDv7: the milliseconds since 1970, then the rest of a random id (RFC 9562, section 5.7).

    A store finds requests of one time side by side, and forgets them together. Python has its own from 3.14 on.
    """
    # These bits follow the version. They have the variant, which is that of all versions.
    rest = uuid.uuid4().int & ((1 << 76) - 1)
    return str(uuid.UUID(int=(time.time_ns() // 1_000_000) << 80 | 7 << 76 | rest))


# A representation of these values may get into a log. So none shows a key or a body (Q22).


@dataclass(frozen=True)
class NewRequest:
    """A request to submit, for `Client.submit_all`.

    Attributes
    ----------
    key : str
        The key of the resource that the request is about, at most 512 bytes.
    body : bytes or str
        The body, at most 64 KiB. A string is encoded as UTF-8.
    kind : RequestKind
        The kind of the request.
    priority : int
        0 to 9. Each step moves the request one minute ahead of others.
    delay_seconds : float
        The time for which the request is not taken.
    max_attempts : int
        The most attempts, at most 1,000. After the last one has failed, the request ends in error.
    id : str
        The id, a UUID. A repeated submit of the same id changes nothing. The default is a new UUIDv7.
    """

    key: str = field(repr=False)
    body: bytes | str = field(default=b"", repr=False)
    kind: RequestKind = field(default=RequestKind.UPDATE, kw_only=True)
    priority: int = field(default=0, kw_only=True)
    delay_seconds: float = field(default=0.0, kw_only=True)
    max_attempts: int = field(default=25, kw_only=True)
    id: str = field(default_factory=_new_id, kw_only=True)


@dataclass(frozen=True)
class SubmittedRequest:
    """The answer to the submit of a request.

    Attributes
    ----------
    id : str
        The id of the request, or of the first create of the same resource.
    is_new : bool
        True if this call made the request.
    """

    id: str
    is_new: bool


@dataclass(frozen=True)
class TakenRequest:
    """A request of a batch.

    Attributes
    ----------
    id : str
        The id of the request.
    attempt : int
        The number of this attempt, from 1.
    body : bytes
        The body of the request.
    """

    id: str
    attempt: int
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Request:
    """A request as the server stores it.

    Attributes
    ----------
    id : str
        The id of the request.
    queue, key : str
        The queue, and the key of the resource that the request is about.
    number : int
        The place of the request in its lane.
    kind : RequestKind
        The kind of the request.
    priority : int
        The priority of the request.
    state : RequestState
        The state of the request.
    not_before : datetime
        The time before which the request is not taken.
    attempts, max_attempts : int
        The number of attempts so far, and the most of them.
    body_bytes : int
        The length of the body.
    submitted_at, updated_at : datetime
        The server's times of the submit and of the last change of the state.
    body : bytes or None
        The body; None if the call did not ask for it.
    """

    id: str
    queue: str
    key: str = field(repr=False)
    number: int
    kind: RequestKind
    priority: int
    state: RequestState
    not_before: datetime
    attempts: int
    max_attempts: int
    body_bytes: int
    submitted_at: datetime
    updated_at: datetime
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RequestPage:
    """A page of a list of requests, without their bodies.

    Attributes
    ----------
    requests : tuple of Request
        The requests of the page. There may be none, though more follow.
    cursor : str or None
        The cursor of the next page; None if this page is the last.
    """

    requests: tuple[Request, ...]
    cursor: str | None = field(repr=False)


@dataclass(frozen=True)
class Lane:
    """A lane as the server stores it: the requests of one key of a queue.

    Attributes
    ----------
    queue, key : str
        The queue, and the key of the lane.
    is_paused : bool
        True if the lane is paused.
    waiting : int
        The number of requests that wait.
    not_before : datetime or None
        The time before which the first request is not taken; None if none waits, or the lane is taken.
    session_id : str or None
        The session that holds the lane; None if none does.
    fence : int or None
        The fence of the hold; None if the lane is not taken.
    taken_at : datetime or None
        The server's time of the take; None if the lane is not taken.
    updated_at : datetime
        The server's time of the last change.
    """

    queue: str
    key: str = field(repr=False)
    is_paused: bool
    waiting: int
    not_before: datetime | None
    session_id: str | None
    fence: int | None
    taken_at: datetime | None
    updated_at: datetime


@dataclass(frozen=True)
class LanePage:
    """A page of a list of lanes.

    Attributes
    ----------
    lanes : tuple of Lane
        The lanes of the page. There may be none, though more follow.
    cursor : str or None
        The cursor of the next page; None if this page is the last.
    """

    lanes: tuple[Lane, ...]
    cursor: str | None = field(repr=False)


@dataclass(frozen=True)
class Queue:
    """A queue as the server stores it.

    Attributes
    ----------
    is_paused : bool
        True if the queue is paused.
    limit : int or None
        The most lanes that are taken at a time; None for any number.
    taken : int
        The number of lanes that were taken since the queue has a limit, and are not settled.
    """

    is_paused: bool
    limit: int | None
    taken: int
