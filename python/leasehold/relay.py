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
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import UUID, uuid4

from typing_extensions import LiteralString, Self

from leasehold._extras import importing
from leasehold.client import Client
from leasehold.client import _queue_calls as queue_calls
from leasehold.client._queue_calls import HeldLane, Outcome
from leasehold.client._retry import check_seconds, is_retryable
from leasehold.errors import NUMBERS, BusyError, DeniedError, LeaseholdError, MisconfiguredError
from leasehold.queues import NewRequest, RequestKind, RequestState

with importing("postgres"):
    import psycopg

__all__ = ["Relay"]

# The most rows of a read, and the most bytes of their bodies: those of a submit.
_READ_ROWS = 1_000
_READ_BYTES = 4_194_304
# The size from which the written partition gives its place to the other one.
_ROTATE_BYTES = 8_388_608
# The time after which the relay that works says so again, and that for which another one must have said nothing before this one
# takes its place: those of a server's relay (server/src/serve/relays/relay.rs).
_BEAT_SECONDS = 3.0
_SILENCE_SECONDS = 15.0
# The pause between two looks of a relay that waits for another one.
_WAIT_SECONDS = 1.0
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

# The words of a server's relay (server/src/store/postgres/outbox.rs).
_NO_OUTBOX = "the database has no outbox of this version in the search path: run the SQL of `leasehold outbox` as its owner"
# The SQLSTATE of a batch that another relay has finished (core/src/outbox.rs).
_NOT_UNDER_WAY = "LH003"
# The codes with which the server refuses a row for good: those of the engine. All others tell of a client that can't work with
# this server, whatever the row: with the wrong certificate for example.
_REFUSALS = set(NUMBERS)
# The namespace of the queues for which the gem for Rails captures changes of claims. The relay of the gem verifies these, and
# submits none of them, so a worker would wait for them in vain.
_CAPTURED_CLAIMS = "leasehold.claims"
# The reason for which they are set aside.
_RULE_DENIED = "RULE_DENIED"
# The codes with which the server refuses a settle whose worker has lost the batch: it died, or was slow.
_LATE = ("FENCE_PASSED", "SESSION_ENDED", "SESSION_NOT_FOUND")
# The limit of the requests that wait in a lane. It has room once a worker has taken some.
_LANE_LIMIT = "waiting_per_lane"
_OUTCOMES = {"complete": Outcome.COMPLETED, "fail": Outcome.FAILED, "give_back": Outcome.GIVEN_BACK}

# A database that hangs must not hold up the relay for ever. A pooler in transaction mode keeps no settings of a session.
_STATEMENT_TIMEOUT = "SET LOCAL statement_timeout = '60s'"
# With SQL_ASCII, the default of a database or of the environment, psycopg would return bytes in the place of texts.
_CONNECTION: dict[str, Any] = {
    "client_encoding": "UTF8",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "tcp_user_timeout": 60_000,
}

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
    pgbouncer in transaction mode. One relay at a time works for an outbox; others wait to take its place, also those of servers
    and of the gem.

    Parameters
    ----------
    client
        The client that calls the server. Settles need the service of the worker whose batch they settle.
    database
        The connection URL of the database with the outbox. Its role needs `EXECUTE` on the functions of a relay.
    poll_seconds
        The longest pause between two looks at an idle outbox.

    Examples
    --------
    >>> Relay(client, database).relay_all()
    0
    """

    def __init__(self, client: Client, database: str, *, poll_seconds: float = 1.0) -> None:
        self._client = client
        self._database = database
        self._poll_seconds = check_seconds("poll_seconds", poll_seconds)

    def __repr__(self) -> str:
        # The URL may have a password.
        return "<Relay of an outbox>"

    def relay_all(self) -> int:
        """Hand on all rows that are committed, and return their number. It counts those that are set aside as well.

        After a relay that was killed, the call waits for 15 seconds, in which no other one may take its place.

        Raises
        ------
        BusyError
            Another relay works for this outbox, and hands on the rest.
        MisconfiguredError
            The database has no outbox of this version.
        LeaseholdError
            The server cannot be reached, or a lane is full. What is not handed on stays in the outbox.
        psycopg.Error
            The database cannot be reached, or refuses a call.
        """
        with closing(self._connect()) as connection, _Turn(connection, uuid4()) as turn:
            turn.wait()
            return _Round(self._client, connection, turn, lambda: False).relay()

    def run(self, stop: threading.Event) -> None:
        """Hand on rows as they are committed, until `stop` is set. A piece of at most 1,000 rows is finished before.

        While another relay works for the outbox, this one waits. A server or a database that cannot be reached is called
        again, and so is a server with a full lane, or one that does not allow the client a queue. Rows that the server refuses
        for good are set aside.

        Raises
        ------
        MisconfiguredError
            The database has no outbox of this version.
        LeaseholdError
            The client cannot work with the server, because of its certificate for example.
        psycopg.Error
            The database refuses a call, or cannot be reached at the start.
        """
        # A URL that never worked is a mistake, no outage.
        self._connect().close()
        pauses = _Pauses(stop, self._poll_seconds)
        # The relay keeps its turn if it connects again.
        relay = uuid4()
        while not stop.is_set():
            self._relay_until_failure(relay, stop, pauses)

    def _relay_until_failure(self, relay: UUID, stop: threading.Event, pauses: _Pauses) -> None:
        """Relay until `stop` is set, or until a failure that may pass, and pause after it."""
        try:
            with closing(self._connect()) as connection, _Turn(connection, relay) as turn:
                self._relay_in_turn(connection, turn, stop, pauses)
        except (LeaseholdError, psycopg.OperationalError) as error:
            # The rows are not at fault if the client may not use their queue. They wait until an operator has changed that.
            if not (_is_temporary(error) or isinstance(error, DeniedError)):
                raise
            _LOG.warning("the relay tries again: %s", _cause(error))
            pauses.pause()

    def _relay_in_turn(self, connection: _Connection, turn: _Turn, stop: threading.Event, pauses: _Pauses) -> None:
        """Relay whenever no other relay does, until `stop` is set."""
        relaying = _Round(self._client, connection, turn, stop.is_set)
        while not stop.is_set():
            with suppress(_OvertakenError):
                self._relay_until(stop, relaying, pauses)
            stop.wait(_WAIT_SECONDS)

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


class _OvertakenError(BusyError):
    """Another relay works for the outbox."""

    def __init__(self) -> None:
        super().__init__("another relay works for the outbox: leave the rest to it", code="RELAY_BUSY")


class _Turn:
    """The turn of one relay of an outbox, which gives it up at the end of the `with` statement.

    A row of the outbox names the relay that works. This relay raises a number in the row. Others wait, and take its place once
    the number stands still. Two relays at once do no harm. Both work on one batch: what one delivers again changes nothing, and
    each acknowledges only what it has delivered.
    """

    def __init__(self, connection: _Connection, relay: UUID) -> None:
        self._connection = connection
        self._relay = relay
        self._beat_at: float | None = None
        # The number of another relay, and the time at which it was seen first.
        self._seen: tuple[int, float] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Another relay takes the place later, if this call fails.
        with suppress(psycopg.Error, MisconfiguredError):
            _call(self._connection, "SELECT leasehold_outbox_release(%s)", self._relay)

    def wait(self) -> None:
        """Wait until this relay is the one that works.

        Raises
        ------
        BusyError
            Another one has said meanwhile that it works.
        """
        first = None
        while not self._hold():
            first, now = first or self._seen, self._seen
            if now != first:
                raise _OvertakenError
            time.sleep(_WAIT_SECONDS)

    def check(self) -> None:
        """Raise `BusyError` unless this relay is the one that works, and say so to the others."""
        if not self._hold():
            raise _OvertakenError

    def _hold(self) -> bool:
        asked_at = time.monotonic()
        if self._beat_at is not None and asked_at - self._beat_at < _BEAT_SECONDS:
            return True
        statement = "SELECT holds, beats FROM leasehold_outbox_hold(%s, %s)"
        ((holds, beats),) = _call(self._connection, statement, self._relay, self._silent_beats())
        self._beat_at = asked_at if holds else None
        if self._seen is None or self._seen[0] != beats:
            self._seen = (beats, time.monotonic())
        return bool(holds)

    def _silent_beats(self) -> int | None:
        """Return the number of another relay that has said nothing for long."""
        if self._seen is None or time.monotonic() - self._seen[1] < _SILENCE_SECONDS:
            return None
        return self._seen[0]


class _Round:
    """The calls of a relay that works while it is its turn."""

    def __init__(self, client: Client, connection: _Connection, turn: _Turn, is_stopping: Callable[[], bool]) -> None:
        self._client = client
        self._connection = connection
        self._turn = turn
        self._is_stopping = is_stopping
        self._marks = _Marks(client, connection, turn)
        # A rotation locks a row, which an idle relay must not write for ever.
        self._rotation_tries = _ROTATION_TRIES

    def relay(self) -> int:
        """Hand on what is committed, or until a stop. Return the number of rows."""
        count = 0
        self._turn.check()
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
        """Hand rows on in their order, and return the refusals. Submits to one queue that follow each other are one call.

        A relay that says nothing during many slow calls would lose its turn. So the turn is checked before each.
        """
        refusals: list[_Refusal] = []
        for (operation, queue), group in groupby(rows, key=lambda row: (row.operation, row.queue)):
            self._turn.check()
            if operation != "pass" and _is_captured_claims(queue):
                refusals += [_Refusal(row, _RULE_DENIED) for row in group]
            elif operation == "submit":
                refusals += self._submit(queue, list(group))
            elif operation in _OUTCOMES:
                refusals += [refusal for row in group for refusal in self._settle(row)]
            elif operation != "pass":
                # An acknowledged row is gone, so one that this version does not know must wait.
                raise RuntimeError("the outbox is newer than this package: install its version of the package")
        return refusals

    def _submit(self, queue: str, rows: Sequence[_Row]) -> list[_Refusal]:
        self._turn.check()
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
        self._turn.check()
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

    def __init__(self, client: Client, connection: _Connection, turn: _Turn) -> None:
        self._client = client
        self._connection = connection
        self._turn = turn
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
        # Further marks are looked at soon.
        if len(marks) < _MARKS:
            self._due_at = time.monotonic() + _MARKS_SECONDS

    def _is_needed(self, mark: UUID) -> bool:
        """Return True if a worker may still get the request, or get it again."""
        self._turn.check()
        try:
            found = self._client.get_request(str(mark))
        except DeniedError:
            # The queue is none of the caller's any more.
            return True
        return found is not None and found.state is not RequestState.COMPLETE


@contextmanager
def _transaction(connection: _Connection) -> Iterator[None]:
    try:
        with connection.transaction():
            connection.execute(_STATEMENT_TIMEOUT)
            yield
    except (psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedColumn) as error:
        raise MisconfiguredError(_NO_OUTBOX) from error


def _call(connection: _Connection, statement: LiteralString, *arguments: object) -> list[tuple[Any, ...]]:
    """Execute a statement in a transaction of its own, and return its rows."""
    with _transaction(connection):
        return connection.execute(statement, arguments).fetchall()


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
