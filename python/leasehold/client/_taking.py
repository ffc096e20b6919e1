"""The blocking worker of a queue, and the batches that it takes."""

from __future__ import annotations

import atexit
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import grpc
from typing_extensions import Self

from leasehold._proto.leasehold.queues.v1 import queue_service_pb2 as wire
from leasehold.client import _queue_calls as calls
from leasehold.client._base import call_error, decode_response
from leasehold.client._calls import Call
from leasehold.client._lock_base import DURATION_SECONDS, GRACE_SECONDS, LEAVE_SECONDS
from leasehold.client._lock_calls import close_session
from leasehold.client._lock_session import LockSession
from leasehold.client._queue_base import (
    GIVE_BACK_ROUNDS,
    STOP_SECONDS,
    BatchBase,
    TakingBase,
    batch_lost,
    check_given_back,
    has_lost_session,
    outcome_after,
    report_failed,
    report_unsettled,
)
from leasehold.client._queue_calls import Outcome
from leasehold.client._retry import ONCE, Retry
from leasehold.errors import LeaseholdError, MisconfiguredError
from leasehold.locks import Standing

if TYPE_CHECKING:
    from leasehold.client._synchronous import Client

_T = TypeVar("_T")

# Python calls a signal's handler between two steps of the main thread. A signal that comes just before a wait of that thread,
# or to another thread, does not end the wait. So no wait is longer.
_HANDLER_SECONDS = 1.0


def _get(waiting: queue.SimpleQueue[_T], until: float | None = None) -> _T:
    """Wait for an item until a time of the monotonic clock; `queue.Empty` if none comes. Signal handlers run meanwhile."""
    while True:
        left = math.inf if until is None else max(0.0, until - time.monotonic())
        try:
            return waiting.get(timeout=min(left, _HANDLER_SECONDS))
        except queue.Empty:
            if left <= _HANDLER_SECONDS:
                raise


class Batch(BatchBase):
    """Requests that this worker has taken as one, until it settles them or its session is lost.

    A `with` block completes the batch at its end. If an exception leaves the block, the batch fails, and the exception goes
    on. An interrupt gives the batch back. A block that has settled its batch itself settles nothing at its end.
    """

    def __init__(
        self, client: Client, held: dict[int, BatchBase], session: LockSession, queue_name: str, message: wire.Batch
    ) -> None:
        super().__init__(held, session, queue_name, message)
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        # A forked process leaves the block too, and must not settle the batch of its parent.
        if self._is_released or not self._base._is_own():  # noqa: SLF001 - same package
            return
        try:
            self._settle(outcome_after(error))
        except LeaseholdError as failure:
            if error is None:
                raise
            report_unsettled(error, failure)

    def complete(self) -> None:
        """Settle the requests as complete. A repeated call is safe.

        Raises
        ------
        BatchLostError
            The session was lost. The work may run twice.
        """
        self._settle(wire.SettleRequest.COMPLETED)

    def fail(self, *, retry_after_seconds: float | None = None) -> None:
        """Settle the requests as failed: each is tried again, or ends in error after its last attempt.

        Parameters
        ----------
        retry_after_seconds
            The time until the next attempt. By default the server chooses it: a second after the first attempt, twice as
            long after each further one, at most five minutes.

        Raises
        ------
        BatchLostError
            The session was lost.
        """
        self._settle(wire.SettleRequest.FAILED, retry_after_seconds)

    def give_back(self) -> None:
        """Give the requests back to the queue. The attempt does not count.

        Raises
        ------
        BatchLostError
            The session was lost.
        """
        self._settle(wire.SettleRequest.GIVEN_BACK)

    def note_progress(self, progress: bytes) -> None:
        """Note the progress of the work, at most 2 KiB, for the next worker should this one fail. It replaces the last note.

        Raises
        ------
        BatchLostError
            The session was lost.
        """
        try:
            self._client._run(calls.note_progress(self._lane, progress), None)  # noqa: SLF001 - same package
        except LeaseholdError as failure:
            raise self._failure(failure) from failure

    def _settle(self, outcome: Outcome, retry_after_seconds: float | None = None) -> None:
        call = self._settling(outcome, retry_after_seconds)
        while not self._has_settled(call):
            pass

    def _has_settled(self, call: Call[None]) -> bool:
        """Send a settle. Return False if it got no answer, and may be sent again."""
        try:
            self._client._run(call, None, Retry())  # noqa: SLF001 - same package
        except LeaseholdError as failure:
            if self._may_settle_again(failure):
                return False
            raise self._failure(failure) from failure
        self._note_settled()
        return True


class Taking(TakingBase):
    """A worker of a queue, created by `Client.take`. It is an iterable of batches.

    The worker begins with the `with` block or with the loop, and ends with it. Its end gives back what is not settled, and
    closes the session if it is the worker's own. A worker with a session of its own outlives the loss of that session: the
    batches of the session are lost, and the worker goes on with a new one.
    """

    def __init__(self, client: Client, queue_name: str, session: LockSession | None, credit: int, max_requests: int) -> None:
        super().__init__(queue_name, credit, max_requests, client._retry)  # noqa: SLF001 - same package
        self._client = client
        self._given_session = session
        self._session = session
        self._held: dict[int, BatchBase] = {}
        self._stream: grpc.Call | None = None
        self._reader: threading.Thread | None = None
        # A signal handler may call `stop` at any moment. `SimpleQueue.put` is safe there, unlike events and locks.
        self._news: queue.SimpleQueue[Batch | BaseException | None] = queue.SimpleQueue()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._working: set[threading.Thread] = set()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Open the session if it is the worker's own, and begin to take.

        Raises
        ------
        MisconfiguredError
            The worker was opened before, or another one takes from the queue under this session.
        """
        if self._reader is not None:
            raise MisconfiguredError("the worker was opened before: use a new one", code="CLOSED")
        session = self._given_session or self._open_session()
        self._begin(session)
        self._session = session
        self._is_open = True
        self._reader = threading.Thread(target=self._read, name="leasehold-take", daemon=True)
        self._reader.start()
        _OPEN.add(self)

    @property
    def is_at_work(self) -> bool:
        """True while a thread of `run` works a batch, also after a stop."""
        return bool(self._working)

    def stop(self, *, within_seconds: float = STOP_SECONDS) -> None:
        """Take nothing more. The loop ends. Another thread or a signal handler may call this.

        Parameters
        ----------
        within_seconds
            The time for which `run` waits for the batches that are worked. Then it gives them back. A repeated call replaces
            the time.
        """
        self._note_stop(within_seconds)
        for waiting in (self._news, self._wake, self._ended):
            waiting.put(None)
        if (stream := self._stream) is not None:
            stream.cancel()

    def close(self) -> None:
        """Stop, give back what is not settled, and close the session if it is the worker's own."""
        if not self._is_open or not self._is_own():
            return
        self._is_open = False
        self.stop(within_seconds=0)
        self._end_reader()
        # The worker has no session while it waits for a new one.
        if (session := self._session) is None:
            return
        session._queues.discard(self._queue)  # noqa: SLF001
        if session.standing is not Standing.LOST:
            with suppress(LeaseholdError):
                self._give_back(session)
        if self._given_session is None:
            session.__exit__()

    def __iter__(self) -> Iterator[Batch]:
        was_open = self._is_open
        if not was_open:
            self.open()
        try:
            while (batch := self.next_batch()) is not None:
                yield batch
        finally:
            if not was_open:
                self.close()

    def next_batch(self, *, wait_seconds: float | None = None) -> Batch | None:
        """Wait for the next batch. Return None if the worker stops, or if the wait is over.

        Parameters
        ----------
        wait_seconds
            The longest wait. None, the default, means no end.

        Raises
        ------
        BatchLostError
            The given session is lost.
        LeaseholdError
            The server refuses the worker.
        """
        if not self._is_open and not self._is_stopping:
            raise MisconfiguredError("the worker is not open: enter it by `with`", code="CLOSED")
        until = None if wait_seconds is None else time.monotonic() + wait_seconds
        while not self._is_stopping:
            try:
                news = _get(self._news, until)
            except queue.Empty:
                return None
            if isinstance(news, BaseException):
                self._news.put(None)
                raise news
            # Batches that waited here for too long are lost, and another worker's by now.
            if news is None or news.is_held:
                return news
        return None

    def run(self, work: Callable[[Batch], object], *, on_error: Callable[[Batch, Exception], object] | None = None) -> None:
        """Call a function with each batch, in a thread of its own, until `stop`. At most `credit` run at a time.

        The batch is completed when the function returns, and fails if it raises: `on_error` is called then, and the worker
        goes on. After a stop, batches whose functions have not ended in time are given back. Their threads go on: end the
        process, or have the function look at `batch.is_lost`.

        Parameters
        ----------
        work
            The function.
        on_error
            A function that is called with each batch that has failed, and the exception. The default logs the exception's type
            and its lines of code, without its text, which may contain a part of a request.

        Examples
        --------
        >>> submitted = client.submit_all("rows", [NewRequest(str(number)) for number in range(4)])
        >>> worked: list[str] = []
        >>> with client.take("rows", credit=2) as worker:
        ...     def work(batch: Batch) -> None:
        ...         worked.append(batch.key)
        ...         if len(worked) == 4:
        ...             worker.stop()
        ...     worker.run(work)
        >>> sorted(worked)
        ['0', '1', '2', '3']
        """
        report = on_error or report_failed
        for _ in range(self._credit):
            self._ended.put(None)
        try:
            for batch in self._batches_to_work():
                thread = threading.Thread(target=self._work, args=(work, report, batch), name="leasehold-work", daemon=True)
                self._working.add(thread)
                thread.start()
        except BaseException as error:
            self.stop(within_seconds=STOP_SECONDS if isinstance(error, Exception) else 0)
            raise
        finally:
            self._finish()

    def _batches_to_work(self) -> Iterator[Batch]:
        """Yield each batch when one of `credit` threads may begin: more may be at work after the loss of a session."""
        while True:
            _get(self._ended)
            batch = self.next_batch()
            if batch is None:
                return
            yield batch

    def _work(self, work: Callable[[Batch], object], report: Callable[[Batch, Exception], object], batch: Batch) -> None:
        try:
            with batch:
                work(batch)
        except Exception as error:  # noqa: BLE001 - the worker goes on with the next batch
            report(batch, error)
        finally:
            self._working.discard(threading.current_thread())
            self._ended.put(None)

    def _finish(self) -> None:
        """Wait for the batches that are worked until the time of the stop. Give back the others."""
        # A signal handler may replace the time.
        while self._working and (left := self._left_seconds()):
            with suppress(queue.Empty):
                self._ended.get(timeout=min(left, _HANDLER_SECONDS))

    def _open_session(self) -> LockSession:
        session = LockSession(self._client, DURATION_SECONDS, GRACE_SECONDS, None, None, None, None)
        session.open()
        return session

    def _read(self) -> None:
        """Read streams until the stop, and hand their batches to the loop. Runs in a thread of its own.

        The caller's thread only waits for a queue, so a signal handler never interrupts the code of gRPC.
        """
        try:
            while not self._is_stopping:
                if self._session is None:
                    self._reopen()
                else:
                    self._read_stream(self._session)
        except Exception as failure:  # noqa: BLE001 - the loop raises it
            self._news.put(failure)

    def _reopen(self) -> None:
        try:
            session = self._open_session()
        except LeaseholdError as failure:
            self._pause(failure)
        else:
            self._begin(session)
            self._session = session

    def _read_stream(self, session: LockSession) -> None:
        error = self._listen(session)
        if self._is_stopping:
            return
        if not has_lost_session(error, session):
            self._pause(error)
            return
        if self._given_session is not None:
            raise batch_lost("the session of the worker is lost") from error
        self._session = None
        self._held.clear()
        session._stop()  # noqa: SLF001 - same package
        # The server may not know of the loss yet. The close then lets other workers take the requests at once.
        with suppress(LeaseholdError):
            self._client._run(close_session(session._id.bytes), LEAVE_SECONDS, ONCE)  # noqa: SLF001

    def _pause(self, error: LeaseholdError | None) -> None:
        with suppress(queue.Empty):
            self._wake.get(timeout=self._pause_seconds(error))

    def _listen(self, session: LockSession) -> LeaseholdError | None:
        """Read one stream to its end. Return its error; None if the server moved the stream."""
        client, call = self._client, self._take(session, self._held)
        self._stream = stream = client._stream(call, None)  # noqa: SLF001 - same package
        if self._is_stopping:
            stream.cancel()
        try:
            for response in stream:
                news = decode_response(call, response, stream.initial_metadata(), client._store)  # noqa: SLF001
                self._hear(session, news)
        except grpc.RpcError as rpc_error:
            return call_error(call, rpc_error, client._store)  # noqa: SLF001
        finally:
            stream.cancel()
        return None

    def _hear(self, session: LockSession, news: wire.TakeResponse) -> None:
        self._failures = 0
        if news.WhichOneof("news") == "batch" and news.batch.fence not in self._held:
            batch = Batch(self._client, self._held, session, self._queue, news.batch)
            self._held[batch.fence] = batch
            self._news.put(batch)

    def _end_reader(self) -> None:
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join()

    def _give_back(self, session: LockSession) -> None:
        """Give back what is not settled. Other batches than the known ones may have been lost with the stream."""
        for call in self._give_up(self._held):
            self._send_give_back(call)
        for _ in range(GIVE_BACK_ROUNDS):
            self._client._run(self._after_takes(session), LEAVE_SECONDS, Retry())  # noqa: SLF001 - same package
            page = self._client._run(self._unread(session), LEAVE_SECONDS, Retry())  # noqa: SLF001
            unread = self._give_backs(session, page)
            if not unread:
                return
            for call in unread:
                self._send_give_back(call)

    def _send_give_back(self, call: Call[None]) -> None:
        try:
            self._client._run(call, LEAVE_SECONDS, Retry())  # noqa: SLF001 - same package
        except LeaseholdError as failure:
            check_given_back(failure)


# At its end, the interpreter stops daemon threads wherever they are, also in the code of gRPC. So these threads end before.
_OPEN: weakref.WeakSet[Taking] = weakref.WeakSet()


def _end_readers() -> None:
    for taking in list(_OPEN):
        taking.stop(within_seconds=0)
        taking._end_reader()  # noqa: SLF001 - same module


atexit.register(_end_readers)
