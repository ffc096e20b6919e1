"""The relay of an outbox: it hands requests and settles that transactions have written on to the server.

`leasehold outbox` prints the SQL of the outbox. The order of its rows, and the calls of a relay, are explained there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from itertools import groupby
from typing import Any, LiteralString, NamedTuple, TypeAlias, cast
from uuid import UUID

import psycopg

from leasehold.client import Client, HeldLock
from leasehold.client import _queue_calls as queue_calls
from leasehold.client._fields import check_text
from leasehold.client._queue_calls import HeldLane, Outcome
from leasehold.client._retry import check_seconds, is_retryable
from leasehold.errors import NUMBERS, BusyError, LeaseholdError, LockLostError
from leasehold.queues import NewRequest, RequestKind, RequestState

__all__ = ["LOCK_NAMESPACE", "Relay"]

LOCK_NAMESPACE = "leasehold.relay"
"""The namespace of the locks by which one relay at a time works for an outbox."""

# The most rows of a read, and the most bytes of their bodies: those of a submit.
_READ_ROWS = 1_000
_READ_BYTES = 4_194_304
# The size from which the written partition gives its place to the other one.
_ROTATE_BYTES = 8_388_608
# A relay that waits for another one hears of a stop after this time.
_LOCK_WAIT_SECONDS = 1.0
# The pause after the first of several failures, and after an idle round. Each further one doubles it.
_SHORTEST_PAUSE_SECONDS = 0.05

# The number of batches after which a relay that has no idle moment rotates the outbox.
_CHORES_AFTER = 20
# The tries of a rotation after the last rows. One fails if a vacuum or a backup has locked the partition at the moment.
_ROTATION_TRIES = 5
# The time between two looks for done-marks, and the most that one look reads.
_MARKS_SECONDS = 5.0
_MARKS = 100
# An id before all others.
_FIRST_ID = UUID(int=0)

# The SQLSTATE of a batch that another relay has finished (core/src/outbox.rs).
_NOT_UNDER_WAY = "LH003"
# The code of the refusal of a queue that the caller may not use.
_RULE_DENIED = "RULE_DENIED"
# The codes with which the server refuses a row for good: those of the engine, and that one. All others tell of a client that
# can't work with this server, whatever the row.
_REFUSALS = {*NUMBERS, _RULE_DENIED}
# The namespace of the queues for which the gem for Rails captures changes of claims. The relay of the gem verifies these, and
# submits none of them, so a worker would wait for them in vain.
_CAPTURED_CLAIMS = "leasehold.claims"
# The codes with which the server refuses a settle whose worker has lost the batch: it died, or was slow.
_LATE = ("FENCE_PASSED", "SESSION_ENDED", "SESSION_NOT_FOUND")
# The limit of the requests that wait in a lane. It has room once a worker has taken some.
_LANE_LIMIT = "waiting_per_lane"
_OUTCOMES = {"complete": Outcome.COMPLETED, "fail": Outcome.FAILED, "give_back": Outcome.GIVEN_BACK}

# A database that hangs must not hold up the relay for ever. A pooler in transaction mode keeps no settings of a session.
_STATEMENT_TIMEOUT = "SET LOCAL statement_timeout = '60s'"
_CONNECTION: dict[str, Any] = {"connect_timeout": 10, "keepalives_idle": 10, "tcp_user_timeout": 60_000}

# Selects a text that tells this outbox from all others.
_OUTBOX = """
SELECT format('%%s/%%s/%%s', system_identifier, current_database(), pronamespace::regnamespace)
FROM pg_control_system(), pg_proc WHERE pg_proc.oid = 'leasehold_outbox_begin'::regproc
"""

# Reads the next rows of a batch. The columns are those of `_Row`.
_READ = """
SELECT place, number, operation, queue, key, request_id, kind, priority, delay, max_attempts, body, session_id, fence, retry
FROM leasehold_outbox_read(%s, %s, %s)
"""

# Sets the rows of a batch aside that the server has refused.
_REFUSE = """
SELECT leasehold_outbox_refuse(%s, place, number, reason)
FROM unnest(%s::bigint[], %s::bigint[], %s::text[]) AS refused (place, number, reason)
"""

_LOG = logging.getLogger("leasehold")


class _Row(NamedTuple):
    """A row of the outbox, with columns of `leasehold_outbox_read`."""

    place: int
    number: int
    operation: str
    queue: str
    key: str
    request_id: UUID
    kind: str
    priority: int
    delay: timedelta
    max_attempts: int
    body: bytes
    session_id: UUID
    fence: int
    retry: timedelta | None


class _Refusal(NamedTuple):
    """A row that the server has refused for good, and the code of the reason."""

    row: _Row
    reason: str


_Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


class Relay:
    """Hands the rows of an outbox in PostgreSQL on to the server, in their order.

    The relay holds no transaction open while it calls the server. It needs no session of the database, so it works through
    pgbouncer in transaction mode. A lock of Leasehold's lets one relay at a time work for an outbox; others wait for it.

    Parameters
    ----------
    client
        The client that calls the server. Settles need the service of the worker whose batch they settle.
    database
        The connection URL of the database with the outbox. Its role needs `EXECUTE` on the functions of a relay.
    poll_seconds
        The longest pause between two looks at an idle outbox.
    lock_namespace
        The namespace of the lock.

    Examples
    --------
    >>> Relay(client, database).relay_all()
    0
    """

    def __init__(
        self, client: Client, database: str, *, poll_seconds: float = 1.0, lock_namespace: str = LOCK_NAMESPACE
    ) -> None:
        check_text("lock_namespace", lock_namespace)
        self._client = client
        self._database = database
        self._poll_seconds = check_seconds("poll_seconds", poll_seconds)
        self._lock_namespace = lock_namespace

    def __repr__(self) -> str:
        # The URL may have a password.
        return f"<Relay of an outbox, lock namespace `{self._lock_namespace}`>"

    def relay_all(self) -> int:
        """Hand on all rows that are committed, and return their number. It counts those that are set aside as well.

        Raises
        ------
        BusyError
            Another relay works for this outbox.
        LockLostError
            The lock has passed to another relay. That one hands on the rest.
        LeaseholdError
            The server cannot be reached, or a lane is full. What is not handed on stays in the outbox.
        psycopg.Error
            The database cannot be reached, or has no outbox.
        """
        with (
            closing(self._connect()) as connection,
            self._client.lock_session() as session,
            session.lock(self._lock_namespace, _outbox(connection)) as held,
        ):
            return _Round(self._client, connection, held, lambda: False).relay()

    def run(self, stop: threading.Event) -> None:
        """Hand on rows as they are committed, until `stop` is set. A piece of at most 1,000 rows is finished before.

        While another relay works for the outbox, this one waits. A server or a database that cannot be reached is called
        again, and so is a server with a full lane. Rows that the server refuses for good are set aside.

        Raises
        ------
        LeaseholdError
            The client cannot work with the server, because of its certificate for example.
        psycopg.Error
            The database refuses a call, or cannot be reached at the start.
        """
        # A URL that never worked is a mistake, no outage.
        self._connect().close()
        pauses = _Pauses(stop, self._poll_seconds)
        while not stop.is_set():
            self._relay_until_failure(stop, pauses)

    def _relay_until_failure(self, stop: threading.Event, pauses: _Pauses) -> None:
        """Relay until `stop` is set, or until a failure that may pass, and pause after it."""
        try:
            with closing(self._connect()) as connection:
                self._hold_and_relay(connection, stop, pauses)
        except LockLostError:
            pauses.pause()
        except (LeaseholdError, psycopg.OperationalError) as error:
            if not _is_temporary(error):
                raise
            _LOG.warning("the relay tries again: %s", _cause(error))
            pauses.pause()

    def _hold_and_relay(self, connection: _Connection, stop: threading.Event, pauses: _Pauses) -> None:
        """Relay whenever no other relay does, until `stop` is set."""
        outbox = _outbox(connection)
        with self._client.lock_session() as session:
            while not stop.is_set():
                with (
                    suppress(BusyError),
                    session.lock(self._lock_namespace, outbox, wait_seconds=_LOCK_WAIT_SECONDS) as held,
                ):
                    self._relay_until(stop, _Round(self._client, connection, held, stop.is_set), pauses)

    def _relay_until(self, stop: threading.Event, relaying: _Round, pauses: _Pauses) -> None:
        while not stop.is_set():
            if relaying.relay():
                pauses.reset()
            else:
                pauses.pause()

    def _connect(self) -> _Connection:
        # Statements that are prepared by name would be missing in the pooler's next connection.
        connection = psycopg.connect(self._database, prepare_threshold=None, autocommit=True, **_CONNECTION)
        # Each call must see what has committed before it, whatever the default of the database is.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection


class _Pauses:
    """Pauses that double up to a longest one, and that a stop ends."""

    def __init__(self, stop: threading.Event, longest_seconds: float) -> None:
        self._stop = stop
        self._longest_seconds = longest_seconds
        self.reset()

    def reset(self) -> None:
        self._next_seconds = min(_SHORTEST_PAUSE_SECONDS, self._longest_seconds)

    def pause(self) -> None:
        self._stop.wait(self._next_seconds)
        self._next_seconds = min(2 * self._next_seconds, self._longest_seconds)


class _Round:
    """The calls of a relay that holds the lock."""

    def __init__(self, client: Client, connection: _Connection, held: HeldLock, is_stopping: Callable[[], bool]) -> None:
        self._client = client
        self._connection = connection
        self._held = held
        self._is_stopping = is_stopping
        self._marks = _Marks(client, connection)
        # A rotation locks a row, which an idle relay must not write for ever.
        self._rotation_tries = _ROTATION_TRIES

    def relay(self) -> int:
        """Hand on what is committed, or until a stop. Return the number of rows."""
        count = 0
        # A call that begins an epoch, as the first one after the restore of a dump, returns no batch. The next one does.
        while not self._is_stopping() and (batch := self._begin() or self._begin()) is not None:
            relayed = self._relay_batch(batch)
            if relayed:
                self._rotation_tries = _ROTATION_TRIES
            count += relayed
            if batch % _CHORES_AFTER == 0:
                self._do_chores()
        self._do_chores()
        return count

    def _do_chores(self) -> None:
        """Rotate the outbox if there may be something to empty, and forget done-marks."""
        if self._rotation_tries:
            ((rotated,),) = self._call("SELECT leasehold_outbox_rotate(%s)", _ROTATE_BYTES)
            self._rotation_tries = self._rotation_tries - 1 if rotated is None else _ROTATION_TRIES
        self._marks.forget()

    def _begin(self) -> int | None:
        ((batch,),) = self._call("SELECT batch FROM leasehold_outbox_begin()")
        return cast("int | None", batch)

    def _relay_batch(self, batch: int) -> int:
        count, is_done = 0, False
        while not is_done and not self._is_stopping():
            try:
                rows = self._read(batch)
            except psycopg.Error as error:
                if error.sqlstate == _NOT_UNDER_WAY:
                    break
                raise
            refusals = self._hand_on(rows)
            is_done = self._acknowledge(batch, rows, refusals)
            _log_refusals([refusal.reason for refusal in refusals])
            count += sum(row.operation != "pass" for row in rows)
        return count

    def _read(self, batch: int) -> list[_Row]:
        read = self._call(_READ, batch, _READ_ROWS, _READ_BYTES)
        return [_Row(*row) for row in read]

    def _call(self, statement: LiteralString, *arguments: object) -> list[tuple[Any, ...]]:
        return _call(self._connection, statement, *arguments)

    def _acknowledge(self, batch: int, rows: Sequence[_Row], refusals: Sequence[_Refusal]) -> bool:
        """Set refused rows aside, and acknowledge all. Return True if the batch is done."""
        place, number = (rows[-1].place, rows[-1].number) if rows else (0, 0)
        # A row that is acknowledged, but not set aside, would be lost.
        with _transaction(self._connection):
            if refusals:
                places, numbers = [each.row.place for each in refusals], [each.row.number for each in refusals]
                self._connection.execute(_REFUSE, (batch, places, numbers, [each.reason for each in refusals]))
            acknowledge = "SELECT leasehold_outbox_acknowledge(%s, %s, %s)"
            ((is_done,),) = self._connection.execute(acknowledge, (batch, place, number)).fetchall()
        return bool(is_done)

    def _hand_on(self, rows: Iterable[_Row]) -> list[_Refusal]:
        """Hand rows on in their order, and return the refusals. Submits to one queue that follow each other are one call."""
        refusals: list[_Refusal] = []
        for (operation, queue), group in groupby(rows, key=lambda row: (row.operation, row.queue)):
            self._held.check()
            if operation != "pass" and _is_captured_claims(queue):
                refusals += [_Refusal(row, _RULE_DENIED) for row in group]
            elif operation == "submit":
                refusals += self._submit(queue, list(group))
            elif operation in _OUTCOMES:
                refusals += [refusal for row in group for refusal in self._settle(row)]
        return refusals

    def _submit(self, queue: str, rows: Sequence[_Row]) -> list[_Refusal]:
        try:
            self._client.submit_all(queue, [_request(row) for row in rows])
        except LeaseholdError as error:
            if not _is_refusal(error):
                raise
            if len(rows) == 1:
                return [_Refusal(rows[0], error.code)]
            # The refusal does not tell which rows it is for.
            half = len(rows) // 2
            return self._submit(queue, rows[:half]) + self._submit(queue, rows[half:])
        return []

    def _settle(self, row: _Row) -> list[_Refusal]:
        lane = HeldLane(row.session_id.bytes, row.queue, row.key, row.fence)
        retry_micros = None if row.retry is None else row.retry // timedelta(microseconds=1)
        try:
            self._client._run(queue_calls.settle(lane, _OUTCOMES[row.operation], retry_micros), None)  # noqa: SLF001
        except LeaseholdError as error:
            if not _is_refusal(error):
                raise
            return [_Refusal(row, error.code)]
        return []


class _Marks:
    """Forgets the done-marks of requests that no worker can take any more."""

    def __init__(self, client: Client, connection: _Connection) -> None:
        self._client = client
        self._connection = connection
        self._last = _FIRST_ID
        self._due_at = time.monotonic()

    def forget(self) -> None:
        """Look at some marks, if it is time. The next look goes on after them."""
        if time.monotonic() < self._due_at:
            return
        marks = [mark for (mark,) in _call(self._connection, "SELECT leasehold_outbox_marks(%s, %s)", self._last, _MARKS)]
        settled = [mark for mark in marks if not self._is_needed(mark)]
        if settled:
            _call(self._connection, "SELECT leasehold_outbox_forget(%s)", settled)
        self._last = marks[-1] if marks else _FIRST_ID
        self._due_at = time.monotonic() + _MARKS_SECONDS

    def _is_needed(self, mark: UUID) -> bool:
        """Return True if a worker may still get the request, or get it again."""
        try:
            found = self._client.get_request(str(mark))
        except LeaseholdError as error:
            if not _is_refusal(error):
                raise
            # The queue is none of the caller's any more.
            return True
        return found is not None and found.state is not RequestState.COMPLETE


@contextmanager
def _transaction(connection: _Connection) -> Iterator[None]:
    with connection.transaction():
        connection.execute(_STATEMENT_TIMEOUT)
        yield


def _call(connection: _Connection, statement: LiteralString, *arguments: object) -> list[tuple[Any, ...]]:
    """Execute a statement in a transaction of its own, and return its rows."""
    with _transaction(connection):
        return connection.execute(statement, arguments).fetchall()


def _outbox(connection: _Connection) -> str:
    """Return a text that tells this outbox from all others."""
    ((outbox,),) = _call(connection, _OUTBOX)
    return str(outbox)


def _request(row: _Row) -> NewRequest:
    return NewRequest(
        row.key,
        bytes(row.body),
        kind=RequestKind[row.kind.upper()],
        priority=row.priority,
        delay_seconds=row.delay.total_seconds(),
        max_attempts=row.max_attempts,
        id=str(row.request_id),
    )


def _is_captured_claims(queue: str) -> bool:
    return f"{queue}.".startswith(f"{_CAPTURED_CLAIMS}.")


def _is_refusal(error: LeaseholdError) -> bool:
    """Return True if the server refuses a row for good."""
    return error.code in _REFUSALS and not _is_temporary(error)


def _is_temporary(error: LeaseholdError | psycopg.OperationalError) -> bool:
    if isinstance(error, LeaseholdError):
        return error.is_temporary or is_retryable(error) or error.metadata.get("limit") == _LANE_LIMIT
    return True


def _cause(error: LeaseholdError | psycopg.OperationalError) -> str:
    """Return the cause of a failure as one line."""
    return "; ".join(str(error).split("\n"))


def _log_refusals(reasons: Iterable[str]) -> None:
    """Log how many rows are refused, and why, without their contents (Q22)."""
    counts = Counter(reasons)
    if late := sum(counts.pop(reason, 0) for reason in _LATE):
        _LOG.info("%d batches had come back before they were settled", late)
    if counts:
        _LOG.warning(
            "%d rows of the outbox are refused for good (%s): its table `leasehold_outbox_refused` has the requests",
            counts.total(),
            ", ".join(sorted(counts)),
        )
