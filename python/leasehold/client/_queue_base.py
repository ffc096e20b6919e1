"""State that the blocking and the asyncio worker of a queue share."""

from __future__ import annotations

import logging
import os
import time
import traceback
from datetime import timedelta

from leasehold._proto.leasehold.queues.v1 import queue_service_pb2 as wire
from leasehold.client import _queue_calls as calls
from leasehold.client._calls import Call
from leasehold.client._fields import MAX_32, check_text, id_text, member, micros, number
from leasehold.client._lock_base import HoldBase, LockSessionBase
from leasehold.client._lock_calls import open_session
from leasehold.client._queue_calls import HeldLane, Outcome
from leasehold.client._retry import Retry, is_retryable
from leasehold.errors import BatchLostError, LeaseholdError, MisconfiguredError
from leasehold.locks import Standing
from leasehold.queues import LaneList, LanePage, RequestKind, TakenRequest

BATCH_LOST = "BATCH_LOST"
"""The argument with which the task of an asyncio block is cancelled if its batch is lost."""

STOP_SECONDS = 30.0
"""The time for which a stop waits for the end of the batches that are worked, unless the caller names another one."""

# The codes with which the server refuses a stream whose session has ended.
_ENDED = ("SESSION_ENDED", "SESSION_NOT_FOUND")
# A page of the lanes that this session holds. The server lets a stream hold at most 256.
_LANES = 300

GIVE_BACK_ROUNDS = 3
"""The most times that the end of a worker looks for batches that it does not know."""

_GIVEN_UP = "the worker has stopped, and given the batch back"

_LOG = logging.getLogger("leasehold")


def batch_lost(cause: str = "the session of the batch is lost") -> BatchLostError:
    """Return the error of a worker whose requests another worker may have now."""
    return BatchLostError(
        f"{cause}: stop the work, the requests are another worker's by now, and their work may run twice", code=BATCH_LOST
    )


def has_lost_session(error: LeaseholdError | None, session: LockSessionBase) -> bool:
    """Return True if a session is lost, by its own deadline or by the refusal of a stream."""
    return session.standing is Standing.LOST or (error is not None and error.code in _ENDED)


def outcome_after(error: BaseException | None) -> Outcome:
    """Return the outcome of a block that has ended, by the exception that has left it.

    An interrupt or a cancellation is no fault of the requests, so the batch is given back and the attempt does not count.
    """
    if error is None:
        return wire.SettleRequest.COMPLETED
    return wire.SettleRequest.FAILED if isinstance(error, Exception) else wire.SettleRequest.GIVEN_BACK


def report_unsettled(error: BaseException, failure: LeaseholdError) -> None:
    """Log a batch that could not be settled, and add a note about it to the exception that is being raised."""
    message = f"a batch may be taken until its session ends: {failure}"
    _LOG.warning(message)
    # `BaseException.add_note` exists since Python 3.11 (PEP 678); the package supports 3.10.
    if hasattr(error, "add_note"):
        error.add_note(message)


def report_failed(batch: BatchBase, error: BaseException) -> None:
    """Log a batch whose work has failed: the type of the exception and the lines of the code that raised it.

    The text of the exception may contain a part of a request, so it is left out (Q22).
    """
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    _LOG.error("a batch of the queue `%s` has failed by `%s`\n%s", batch.queue, type(error).__name__, frames)


def check_given_back(failure: LeaseholdError) -> None:
    """Raise if the server cannot be reached, so that further calls would only wait. Others may have settled the batch."""
    if is_retryable(failure):
        raise failure


class BatchBase(HoldBase):
    """Requests of one key that this worker has taken as one: one create, or updates.

    Attributes
    ----------
    queue, key : str
        The queue, and the key of the resource that the requests are about.
    kind : RequestKind
        The kind of all requests of the batch.
    requests : tuple of TakenRequest
        The requests, in their order.
    progress : bytes or None
        The progress that a former worker noted on them; None if there is none.
    """

    def __init__(self, held: dict[int, BatchBase], session: LockSessionBase, queue: str, message: wire.Batch) -> None:
        super().__init__(session, message.fence)
        self._held = held
        self._is_given_up = False
        self.queue = queue
        self.key = message.key
        self.kind = member(RequestKind, message.kind)
        self.requests = tuple(TakenRequest(id_text(each.request_id), each.attempt, each.body) for each in message.requests)
        self.progress: bytes | None = message.progress if message.HasField("progress") else None

    def __repr__(self) -> str:
        # A representation may get into a log, so it has no key (Q22).
        return f"<{type(self).__name__} of {len(self.requests)} requests of `{self.queue}`, fence {self.fence}>"

    def check(self) -> None:
        """Raise if the worker must stop its work on the batch.

        Raises
        ------
        BatchLostError
            The session is lost, or the batch was settled.
        """
        if not self.is_held:
            raise batch_lost(self._cause())

    def _cause(self) -> str:
        if self._is_given_up:
            return _GIVEN_UP
        return "the batch was settled" if self._is_released else "the session of the batch is lost"

    def remaining(self) -> timedelta:
        """Return the time until the batch is lost if no renewal succeeds from now on; zero once it is lost or settled."""
        return timedelta() if self._is_given_up else super().remaining()

    @property
    def _lane(self) -> HeldLane:
        self._check_own("batch", "end")
        if self._is_given_up:
            raise batch_lost(_GIVEN_UP)
        return HeldLane(self._base._id.bytes, self.queue, self.key, self.fence)  # noqa: SLF001 - same package

    def _settling(self, outcome: Outcome, retry_after_seconds: float | None = None) -> Call[None]:
        retry = None if retry_after_seconds is None else micros("retry_after_seconds", retry_after_seconds)
        return calls.settle(self._lane, outcome, retry)

    def _note_settled(self) -> None:
        self._is_released = True
        # A stream that is opened again names the batches that the worker holds. So the batch leaves them only here, when
        # the server knows of its end: otherwise the server would send it once more.
        self._held.pop(self.fence, None)

    def _may_settle_again(self, failure: LeaseholdError) -> bool:
        """Return True if a settle that failed is repeated: it is, until the deadline of the session (Q10)."""
        return is_retryable(failure) and self._base.standing is not Standing.LOST

    def _failure(self, failure: LeaseholdError) -> LeaseholdError:
        """Return the error to raise for a settle or a note that has failed."""
        if not self._has_passed(failure):
            return failure
        self._held.pop(self.fence, None)
        return batch_lost()


class TakingBase:
    """The terms of a worker: what it takes, and when it stops."""

    def __init__(self, queue: str, credit: int, max_requests: int, retry: Retry) -> None:
        check_text("queue", queue)
        self._queue = queue
        self._credit = number("credit", credit, MAX_32, smallest=1)
        self._max_requests = number("max_requests", max_requests, MAX_32, smallest=1)
        self._retry = retry
        self._process = os.getpid()
        self._failures = 0
        self._is_open = False
        self._is_stopping = False
        self._stop_at: float | None = None

    @property
    def queue(self) -> str:
        """The queue from which the worker takes."""
        return self._queue

    @property
    def is_stopping(self) -> bool:
        """True after a call of `stop`: the worker takes nothing more."""
        return self._is_stopping

    def _is_own(self) -> bool:
        return self._process == os.getpid()

    def _note_stop(self, within_seconds: float) -> None:
        self._stop_at = time.monotonic() + micros("within_seconds", within_seconds) / 1e6
        self._is_stopping = True

    def _left_seconds(self) -> float:
        """Return the time until batches that are worked are given back."""
        return 0.0 if self._stop_at is None else max(0.0, self._stop_at - time.monotonic())

    def _begin(self, session: LockSessionBase) -> None:
        """Note that the session takes from the queue. A second stream would end the first one, and the first the second."""
        session._check_open()  # noqa: SLF001 - same package
        if self._queue in session._queues:  # noqa: SLF001
            raise MisconfiguredError(
                f"the session takes from `{self._queue}` already: use one worker for a queue, or a session each"
            )
        session._queues.add(self._queue)  # noqa: SLF001

    def _take(self, session: LockSessionBase, held: dict[int, BatchBase]) -> Call[wire.TakeResponse]:
        session._check_open()  # noqa: SLF001 - same package
        return calls.take(session._id.bytes, self._queue, self._credit, self._max_requests, list(held))  # noqa: SLF001

    def _pause_seconds(self, error: LeaseholdError | None) -> float:
        """Return the pause before the stream is opened again, after it has ended with an error or without one.

        Raises
        ------
        LeaseholdError
            The server refuses the stream.
        """
        if error is not None and not is_retryable(error):
            raise error
        self._failures += 1
        delay = self._retry._delay_seconds(self._failures)  # noqa: SLF001 - same package
        return max(delay, (error.retry_after_seconds if error else None) or 0.0)

    @staticmethod
    def _give_up(held: dict[int, BatchBase]) -> list[Call[None]]:
        """Give up the batches that are not settled. Return the calls that give them back, without counting an attempt (Q11)."""
        batches = [batch for batch in list(held.values()) if batch.is_held]
        given_back = [batch._settling(wire.SettleRequest.GIVEN_BACK) for batch in batches]  # noqa: SLF001 - same module
        for batch in batches:
            batch._is_given_up = True  # noqa: SLF001 - same module
        held.clear()
        return given_back

    @staticmethod
    def _after_takes(session: LockSessionBase) -> Call[None]:
        """Return a call that the server answers after the takes of a stream that was cancelled.

        A cancelled stream may have sent a take to the server's committer, which decides in order. A repeated open of a session
        changes nothing and is decided there, too.
        """
        return open_session(session._id.bytes, *session._terms)  # noqa: SLF001 - same package

    def _unread(self, session: LockSessionBase) -> Call[LanePage]:
        """Return the call that lists the lanes that a session holds."""
        cursor = calls.cursor_of_session(session._id.bytes, self._queue)  # noqa: SLF001 - same package
        return calls.list_lanes(self._queue, LaneList.TAKEN, _LANES, cursor)

    @staticmethod
    def _give_backs(session: LockSessionBase, page: LanePage) -> list[Call[None]]:
        """Return the calls that give back the lanes of a page that a session holds."""
        lanes = [lane for lane in page.lanes if lane.session_id == session.id]
        held = [HeldLane(session._id.bytes, lane.queue, lane.key, lane.fence or 0) for lane in lanes]  # noqa: SLF001
        return [calls.settle(lane, wire.SettleRequest.GIVEN_BACK, None) for lane in held]
