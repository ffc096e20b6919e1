"""Tests of `leasehold.relay` with a real PostgreSQL and the real server."""

from __future__ import annotations

import doctest
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from support.certificates import Authority, Files
from support.claims_server import ROOT, ClaimsServer
from support.locks import PATIENT, program
from support.outbox import create_outbox, done, is_relayed, set_aside, write, write_settle
from support.pgbouncer import PgBouncer
from support.postgres_cluster import PostgresCluster, execute
from support.queues import QUEUE, SECRET, attempts, bodies, next_of, request, state, submit, update
from support.waiting import wait_for

import leasehold.relay
from leasehold.client import Client, Tls
from leasehold.errors import BusyError, DeniedError, InvalidError, MisconfiguredError
from leasehold.queues import NewRequest, RequestKind, RequestState, SubmittedRequest
from leasehold.relay import Relay


@pytest.fixture
def database(cluster: PostgresCluster) -> str:
    return create_outbox(cluster)


@contextmanager
def relaying(relay: Relay) -> Iterator[threading.Event]:
    """Run a relay in a thread. The end of the block stops it, and raises what it has raised."""
    stop, failures = threading.Event(), []

    def run() -> None:
        try:
            relay.run(stop)
        except Exception as error:  # noqa: BLE001 - the block raises it
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(PATIENT)
    assert (thread.is_alive(), failures) == (False, [])


def wait_for_polls(url: str) -> None:
    """Wait until a relay has looked at its outbox several times."""
    query = "SELECT query_start FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    seen: set[object] = set()

    def has_polled() -> bool:
        seen.update(execute(url, query))
        return len(seen) > 5

    wait_for("looks at the outbox", has_polled)


def rotation_lock(url: str) -> object:
    """Return what the last try of a rotation has written: it locks this row."""
    return execute(url, "SELECT xmax::text FROM leasehold_outbox_part")


def writes_nothing(url: str) -> bool:
    """Return True if a relay writes nothing during some looks at its outbox."""
    lock = rotation_lock(url)
    wait_for_polls(url)
    return rotation_lock(url) == lock


def holder(url: str) -> object:
    """Return the relay that works for an outbox."""
    ((relay,),) = execute(url, "SELECT relay FROM leasehold_outbox_holder")
    return relay


def size(url: str) -> int:
    """Return the bytes of an outbox's rows."""
    statement = "SELECT sum(pg_relation_size(relid))::bigint FROM pg_partition_tree('leasehold_outbox') WHERE isleaf"
    return int(execute(url, statement)[0][0])


def fill(url: str) -> None:
    """Write so many requests that a relay rotates the outbox."""
    execute(
        url, "SELECT count(leasehold_submit('sheets', n::text, repeat('x', 1500)::bytea)) FROM generate_series(1, 6000) AS n"
    )
    assert size(url) > 8_388_608


def reuse(url: str, used: str) -> None:
    """Submit a request that the server refuses, because another one has its id."""
    execute(url, "SELECT leasehold_submit('sheets', %s, convert_to(%s, 'UTF8'), id => %s)", SECRET, SECRET, used)


def test_q14_requests_reach_the_server_exactly_if_their_transaction_commits(client: Client, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("SELECT leasehold_submit('sheets', '7', 'rolled back')")
        connection.rollback()
        row = connection.execute(
            "SELECT leasehold_submit('sheets', '7', 'made', 'create', 3, '90 s', 4), leasehold_submit('sheets', '7', 'a'),"
            " leasehold_submit('others', '7', 'b'), leasehold_submit('sheets', '7', 'c')"
        ).fetchone()
        assert row is not None
        relay = Relay(client, database)
        assert relay.relay_all() == 0
        connection.commit()
    assert relay.relay_all() == 4
    assert relay.relay_all() == 0
    made = request(client, str(row[0]))
    assert (made.queue, made.key, made.kind, made.priority, made.max_attempts) == ("sheets", "7", RequestKind.CREATE, 3, 4)
    assert 30 < (made.not_before - made.submitted_at).total_seconds() <= 90
    waiting = [client.get_request(each.id, with_body=True) for each in client.requests(QUEUE, "7")]
    assert [each and each.body for each in waiting] == [b"made", b"a", b"c"]
    assert [each.id for each in client.requests("others", "7")] == [str(row[2])]


def test_q21_rows_are_handed_on_in_their_order_over_several_reads(client: Client, database: str) -> None:
    execute(database, "SELECT leasehold_submit('sheets', '7', n::text::bytea) FROM generate_series(1, 2500) AS n")
    with psycopg.connect(database) as late:
        late.execute("SELECT leasehold_submit('sheets', '7', 'late')")
        assert Relay(client, database).relay_all() == 2500
        late.commit()
    assert Relay(client, database).relay_all() == 1
    with client.take(QUEUE) as worker:
        worked: list[bytes] = []
        while len(worked) < 2501:
            with next_of(worker) as batch:
                worked += bodies(batch)
    assert worked == [*(str(n).encode() for n in range(1, 2501)), b"late"]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("complete", (RequestState.COMPLETE, 1)),
        ("fail", (RequestState.NEW, 1)),
        ("give_back", (RequestState.NEW, 0)),
    ],
)
def test_q14_a_settle_that_a_transaction_has_written_is_relayed(
    client: Client, database: str, outcome: str, expected: tuple[RequestState, int]
) -> None:
    (one,) = submit(client, update("7", "a"))
    with client.lock_session() as session, client.take(QUEUE, session=session) as worker:
        write_settle(database, next_of(worker), session.id, outcome)
        # The worker takes nothing again.
        client.pause_queue(QUEUE)
        assert Relay(client, database).relay_all() == 1
        assert state(client, one) == expected


def test_q10_a_settle_whose_batch_was_lost_holds_up_nothing_and_leaves_its_marks(
    client: Client, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    (one,) = submit(client, update(SECRET, SECRET))
    with client.lock_session() as session, client.take(QUEUE, session=session) as worker:
        batch = next_of(worker)
        write_settle(database, batch, session.id, mark=True)
    write(database, "8")
    with client.take(QUEUE) as worker, next_of(worker) as again:
        assert (attempts(again), again.fence > batch.fence) == ([1], True)
        with caplog.at_level(logging.INFO, "leasehold"):
            assert Relay(client, database).relay_all() == 2
        assert state(client, one) == (RequestState.IN_PROGRESS, 1)
        assert done(database, SECRET, [one]) == [one]
    # The request is complete by now.
    assert (Relay(client, database).relay_all(), done(database, SECRET, [one])) == (0, [])
    assert set_aside(database) == []
    assert ("1 batches had come back" in caplog.text, SECRET in caplog.text) == (True, False)


def test_q10_a_settle_of_another_services_batch_holds_up_nothing_and_leaves_its_marks(
    authority: Authority, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    def connect(files: Files) -> Client:
        return Client(server.url, tls=Tls(files.ca, files.certificate, files.key))

    access = "".join(f'[[locks.access]]\ncaller = "service/{name}"\nnamespaces = ["{QUEUE}"]\n' for name in ("works", "relays"))
    with (
        ClaimsServer(tls=authority.server(), settings=access) as server,
        connect(authority.service("works")) as works,
        connect(authority.service("relays")) as relays,
        works.lock_session() as session,
        works.take(QUEUE, session=session) as worker,
    ):
        (one,) = submit(works, update())
        write_settle(database, next_of(worker), session.id, mark=True)
        two = write(database, "8")
        assert Relay(relays, database).relay_all() == 2
        assert request(relays, two).key == "8"
    assert done(database, "7", [one]) == [one]
    assert "refused for good (SESSION_NOT_OWNED)" in caplog.text


def test_q14_rows_wait_while_the_relay_may_not_use_their_queue(
    authority: Authority, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    def connect(files: Files) -> Client:
        return Client(server.url, tls=Tls(files.ca, files.certificate, files.key))

    access = f'[[locks.access]]\ncaller = "service/works"\nnamespaces = ["{QUEUE}"]\n'
    with (
        ClaimsServer(tls=authority.server(), settings=access) as server,
        connect(authority.service("works")) as works,
        connect(authority.service("others")) as others,
    ):
        one = write(database, SECRET, SECRET)
        with pytest.raises(DeniedError):
            Relay(others, database).relay_all()
        with relaying(Relay(others, database, poll_seconds=0.1)):
            wait_for("tries", lambda: len(caplog.messages) > 1)
            assert (works.get_request(one), set_aside(database)) == (None, [])
            with relaying(Relay(works, database, poll_seconds=0.1)):
                wait_for("the request", lambda: works.get_request(one))
    assert set_aside(database) == []
    assert (all("locks.access" in said for said in caplog.messages), SECRET in caplog.text) == (True, False)


def test_q09_a_repeated_row_makes_no_second_request(client: Client, database: str) -> None:
    ids = [write(database, "7", text) for text in ("a", "b")]
    relay = Relay(client, database)
    assert relay.relay_all() == 2
    with client.take(QUEUE) as worker, next_of(worker) as batch:
        assert bodies(batch) == [b"a", b"b"]
    # All rows are relayed again in another cluster, as after the restore of a dump.
    execute(database, "UPDATE leasehold_outbox_relay SET system_identifier = system_identifier - 1")
    write(database, "7", "c")
    assert relay.relay_all() == 3
    assert [state(client, each) for each in ids] == [(RequestState.COMPLETE, 1)] * 2
    assert len(list(client.requests(QUEUE, "7"))) == 1


def test_q15_a_relay_hands_on_what_commits_until_its_stop(client: Client, database: str) -> None:
    with relaying(Relay(client, database, poll_seconds=0.1)):
        for key in ("1", "2"):
            one = write(database, key)
            wait_for("the request", partial(client.get_request, one))
    last = write(database, "3")
    assert (client.get_request(last), is_relayed(database)) == (None, False)


def test_q16_a_relay_empties_what_it_has_handed_on_and_writes_nothing_while_it_is_idle(client: Client, database: str) -> None:
    fill(database)
    with relaying(Relay(client, database, poll_seconds=0.02)):
        wait_for("empty partitions", lambda: size(database) == 0)
        wait_for("an idle relay", lambda: writes_nothing(database))


def test_q16_a_relay_empties_what_was_locked_for_a_moment(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The moment may be long on a busy machine.
    monkeypatch.setattr(leasehold.relay, "_ROTATION_TRIES", 1_000)
    fill(database)
    with psycopg.connect(database) as reader:
        reader.execute("SELECT FROM leasehold_outbox LIMIT 1")
        with relaying(Relay(client, database)):
            wait_for("a rotation", lambda: execute(database, "SELECT part FROM leasehold_outbox_part") == [(2,)])
            tried = rotation_lock(database)
            wait_for("a try", lambda: rotation_lock(database) != tried)
            reader.rollback()
            wait_for("empty partitions", lambda: size(database) == 0)


def test_q16_a_relay_empties_what_it_has_handed_on_under_load_without_an_end(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_all, is_loaded = client.submit_all, threading.Event()

    def submit_and_write(queue: str, requests: Sequence[NewRequest]) -> Sequence[SubmittedRequest]:
        if is_loaded.is_set():
            write(database, "7")
        return submit_all(queue, requests)

    monkeypatch.setattr(client, "submit_all", submit_and_write)
    fill(database)
    is_loaded.set()
    with relaying(Relay(client, database)):
        wait_for("a rotation", lambda: size(database) < 1_000_000)
        assert not is_relayed(database)
        is_loaded.clear()


def test_one_relay_at_a_time_works_for_an_outbox(client: Client, database: str) -> None:
    with relaying(Relay(client, database, poll_seconds=0.1)) as stop:
        first = write(database, "1")
        wait_for("the request", lambda: client.get_request(first))
        with pytest.raises(BusyError):
            Relay(client, database).relay_all()
        with relaying(Relay(client, database, poll_seconds=0.1)):
            wait_for_polls(database)
            stop.set()
            second = write(database, "2")
            wait_for("its work", lambda: client.get_request(second))


def beats(url: str) -> int:
    """Return how often relays of an outbox have said that they work."""
    return int(execute(url, "SELECT beats FROM leasehold_outbox_holder")[0][0])


def write_settles(_: Client, url: str) -> None:
    execute(url, "SELECT leasehold_complete(gen_random_uuid(), 'sheets', '7', n) FROM generate_series(1, 20) AS n")


def write_submits_with_a_refusal(client: Client, url: str) -> None:
    # There are 15 calls: one of all 128 rows, and two of each half of a refused part, down to one row.
    (used,) = submit(client, update("7", "a"))
    reuse(url, used)
    execute(url, "SELECT count(leasehold_submit('sheets', n::text)) FROM generate_series(1, 127) AS n")


def write_marks(_: Client, url: str) -> None:
    execute(url, "INSERT INTO leasehold_outbox_done (request_id) SELECT gen_random_uuid() FROM generate_series(1, 20)")


@pytest.mark.parametrize(("write_rows", "calls"), [(write_settles, 20), (write_submits_with_a_refusal, 15), (write_marks, 20)])
def test_q14_a_relay_says_before_each_call_of_a_long_delivery_that_it_works(
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    write_rows: Callable[[Client, str], None],
    calls: int,
) -> None:
    monkeypatch.setattr(leasehold.relay, "_BEAT_SECONDS", 0.0)
    write_rows(client, database)
    before = beats(database)
    Relay(client, database).relay_all()
    assert beats(database) - before >= calls


def test_q14_a_relay_that_was_overtaken_stops_between_two_settles(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasehold.relay, "_BEAT_SECONDS", 0.0)
    write_settles(client, database)
    run, calls = client._run, count(1)

    def overtake_at_the_third(*arguments: Any) -> object:
        if next(calls) == 3:
            execute(database, "SELECT leasehold_outbox_hold(gen_random_uuid(), beats) FROM leasehold_outbox_holder")
        return run(*arguments)

    monkeypatch.setattr(client, "_run", overtake_at_the_third)
    with pytest.raises(BusyError):
        Relay(client, database).relay_all()
    assert next(calls) == 4


def relay_settings(database: str) -> str:
    """Return the settings of a server that relays an outbox."""
    return f'[[relays]]\nname = "outbox"\nurl = "{database}"\n'


def test_q14_a_relay_and_that_of_a_server_take_turns_and_follow_each_other_after_a_kill(
    embedded: ClaimsServer, database: str
) -> None:
    relay = "from threading import Event\nfrom leasehold.relay import Relay\nRelay(client, sys.argv[2]).run(Event())"
    with (
        Client(embedded.url) as client,
        ClaimsServer(settings=relay_settings(database)) as other,
        Client(other.url) as clients,
    ):
        wait_for("the server's relay", lambda: holder(database))
        with pytest.raises(BusyError):
            Relay(client, database).relay_all()
        first = write(database, "1")
        wait_for("the server's work", lambda: clients.get_request(first))
        # Rows that are not acknowledged are handed on again, here to another server.
        wait_for("its acknowledgement", lambda: is_relayed(database))
        with program(relay, embedded.url, database) as process:
            other.kill()
            second = write(database, "2")
            wait_for("the relay's work", lambda: client.get_request(second))
            other.start()
            third = write(database, "3")
            wait_for("the relay's further work", lambda: client.get_request(third))
            wait_for("its acknowledgement", lambda: is_relayed(database))
            process.kill()
        fourth = write(database, "4")
        wait_for("the server's further work", lambda: clients.get_request(fourth))
        assert [client.get_request(each) for each in (first, fourth)] == [None, None]
        assert [clients.get_request(each) for each in (second, third)] == [None, None]


def test_q14_a_relay_of_one_call_follows_one_that_was_killed(embedded: ClaimsServer, database: str) -> None:
    execute(database, "SELECT leasehold_outbox_hold(gen_random_uuid(), NULL)")
    one = write(database, "1")
    with Client(embedded.url) as client:
        assert (Relay(client, database).relay_all(), request(client, one).key) == (1, "1")
    assert holder(database) is None


def test_q14_a_relay_gives_way_while_it_cannot_call_its_server(embedded: ClaimsServer, database: str) -> None:
    with (
        Client(embedded.url, timeout_seconds=1.0) as client,
        relaying(Relay(client, database, poll_seconds=0.1)),
    ):
        wait_for("the relay", lambda: holder(database))
        embedded.kill()
        with ClaimsServer(settings=relay_settings(database)) as other, Client(other.url) as clients:
            one = write(database, "1")
            wait_for("the work of another relay", lambda: clients.get_request(one))
            embedded.start()
            other.stop()
        two = write(database, "2")
        wait_for("the work", lambda: client.get_request(two))


def test_outboxes_have_relays_of_their_own(client: Client, cluster: PostgresCluster, database: str) -> None:
    other = create_outbox(cluster)
    with relaying(Relay(client, database)):
        wait_for("the relay", lambda: holder(database))
        write(other, "1")
        assert Relay(client, other).relay_all() == 1


def test_q15_a_relay_outlives_the_server_and_the_database(
    embedded: ClaimsServer, cluster: PostgresCluster, database: str
) -> None:
    with Client(embedded.url, timeout_seconds=1.0) as client, relaying(Relay(client, database, poll_seconds=0.1)):
        wait_for("the relay", lambda: holder(database))
        embedded.kill()
        one = write(database, "1")
        embedded.start()
        wait_for("the request", lambda: client.get_request(one))
        execute(
            cluster.url("postgres"),
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            database.rpartition("/")[2],
        )
        two = write(database, "2")
        wait_for("the next request", lambda: client.get_request(two))


def test_a_relay_works_through_pgbouncer_whatever_the_defaults_of_the_database(
    client: Client, cluster: PostgresCluster, database: str
) -> None:
    name = database.rpartition("/")[2]
    with psycopg.connect(cluster.url("postgres"), autocommit=True) as connection:
        for setting in ("default_transaction_isolation = 'serializable'", "synchronous_commit = off"):
            connection.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    with PgBouncer(cluster) as bouncer:
        pooled = bouncer.url(database)
        # Both relays and the front share one connection of the database.
        with relaying(Relay(client, pooled, poll_seconds=0.1)), relaying(Relay(client, pooled, poll_seconds=0.1)):
            ids = [write(pooled, "7", str(n)) for n in range(20)]
            wait_for("the requests", lambda: client.get_request(ids[-1]))
        assert [each.id for each in client.requests(QUEUE, "7")] == ids


@pytest.mark.parametrize("refusals", [1, 3])
def test_q14_refused_requests_are_set_aside_and_hold_up_no_others(
    client: Client, database: str, caplog: pytest.LogCaptureFixture, refusals: int
) -> None:
    used = submit(client, *(update("7", str(n)) for n in range(refusals)))
    first = write(database, "8")
    for each in used:
        reuse(database, each)
    last = write(database, "9")
    relay = Relay(client, database)
    assert relay.relay_all() == refusals + 2
    assert all(client.get_request(each) for each in (first, last))
    refused = [(QUEUE, each, "IDEMPOTENCY_KEY_REUSED") for each in used]
    assert set_aside(database) == refused
    assert (caplog.messages[-1].partition(":")[0], SECRET in caplog.text) == (
        f"{refusals} rows of the outbox are refused for good (IDEMPOTENCY_KEY_REUSED)",
        False,
    )
    # Nothing is lost: an operator submits it again.
    execute(database, "SELECT leasehold_outbox_retry(number) FROM leasehold_outbox_refused ORDER BY number")
    assert (set_aside(database), relay.relay_all(), set_aside(database)) == ([], refusals, refused)


def test_q16_a_relay_forgets_the_marks_of_settled_requests_whatever_their_number(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasehold.relay, "_MARKS_SECONDS", 3_600)
    open_id, *others = submit(client, *(update(str(n)) for n in range(3)))
    client.withdraw_request(others[0])
    mark = "INSERT INTO leasehold_outbox_done (request_id) SELECT gen_random_uuid() FROM generate_series(1, %s)"
    execute(database, mark, 150)
    execute(database, "INSERT INTO leasehold_outbox_done (request_id) VALUES (%s), (%s)", open_id, others[0])
    with relaying(Relay(client, database, poll_seconds=0.02)):
        wait_for("the marks", lambda: execute(database, "SELECT request_id::text FROM leasehold_outbox_done") == [(open_id,)])


def test_a_relay_works_with_the_rights_that_the_guide_lists(client: Client, database: str) -> None:
    guide = (ROOT / "docs/src/guides/python.md").read_text()
    rights = guide[guide.index("Its role in the database needs") :].partition("\n- ")[0]
    functions = set(re.findall(r"leasehold_outbox_\w+", rights))
    role = f"relay_{database.rpartition('/')[2]}"
    with psycopg.connect(database) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        for function in functions:
            connection.execute(f"GRANT EXECUTE ON FUNCTION {function} TO {role}".encode())
    (used,) = submit(client, update("7", "a"))
    reuse(database, used)
    execute(database, "INSERT INTO leasehold_outbox_done (request_id) VALUES (gen_random_uuid())")
    assert Relay(client, make_conninfo(database, user=role)).relay_all() == 1
    assert set_aside(database) == [(QUEUE, used, "IDEMPOTENCY_KEY_REUSED")]
    assert execute(database, "SELECT FROM leasehold_outbox_done") == []


def test_q14_a_refusal_is_set_aside_once_if_the_acknowledgement_fails(client: Client, database: str) -> None:
    (used,) = submit(client, update("7", "a"))
    reuse(database, used)
    fault = "ALTER FUNCTION leasehold_outbox_acknowledge(bigint, bigint, bigint) RENAME TO leasehold_outbox_{}"
    execute(database, fault.format("away"))
    relay = Relay(client, database)
    with pytest.raises(MisconfiguredError, match="no outbox of this version"):
        relay.relay_all()
    assert set_aside(database) == []
    execute(database, fault.replace("acknowledge(", "away(").format("acknowledge"))
    assert relay.relay_all() == 1
    assert set_aside(database) == [(QUEUE, used, "IDEMPOTENCY_KEY_REUSED")]


def test_q06_captured_claims_are_set_aside_for_the_gems_relay(
    client: Client, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    captured = ["leasehold.claims", "leasehold.claims.strict"]
    ids = [write(database, SECRET, SECRET, queue=queue) for queue in (*captured, "leasehold.claimsets", QUEUE)]
    assert Relay(client, database).relay_all() == 4
    assert [client.get_request(each) is not None for each in ids] == [False, False, True, True]
    assert set_aside(database) == [(queue, each, "RULE_DENIED") for queue, each in zip(captured, ids, strict=False)]
    assert ("2 rows" in caplog.text, SECRET in caplog.text) == (True, False)


def test_q14_texts_are_read_whatever_the_encoding_of_the_environment_is(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = write(database, "schlüssel")
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    assert Relay(client, database).relay_all() == 1
    assert client.get_request(submitted) is not None


def test_q14_a_row_of_an_unknown_operation_is_not_acknowledged(client: Client, database: str) -> None:
    row = "part, pg_current_xact_id(), nextval('leasehold_outbox_number'), 'unknown', 'q', 'k' FROM leasehold_outbox_part"
    execute(
        database, f"INSERT INTO leasehold_outbox (part, transaction_id, number, operation, queue, key) SELECT {row} RETURNING 1"
    )
    for _ in range(2):
        with pytest.raises(RuntimeError, match="newer"):
            Relay(client, database).relay_all()


def test_q16_a_relay_waits_while_a_lane_is_full(
    client: Client, database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A lane is full with a million requests, which take minutes. All else is the real server's.
    full = InvalidError("full", code="LIMIT_EXCEEDED", metadata={"limit": "waiting_per_lane", "max": "1000000"})
    submit_all, calls = client.submit_all, count()

    def submit_if_not_full(queue: str, requests: Sequence[NewRequest]) -> Sequence[SubmittedRequest]:
        if next(calls) < 3:
            raise full
        return submit_all(queue, requests)

    monkeypatch.setattr(client, "submit_all", submit_if_not_full)
    one, two = write(database, "7"), write(database, "8")
    with pytest.raises(InvalidError):
        Relay(client, database).relay_all()
    with relaying(Relay(client, database, poll_seconds=0.1)):
        wait_for("the requests", lambda: client.get_request(one) and client.get_request(two))
    assert set_aside(database) == []
    assert caplog.messages == ["the relay tries again: full"] * 2


def test_a_database_without_an_outbox_is_an_error(client: Client, cluster: PostgresCluster) -> None:
    relay = Relay(client, cluster.create_database())
    for work in (relay.relay_all, lambda: relay.run(threading.Event())):
        with pytest.raises(MisconfiguredError, match="no outbox of this version"):
            work()
    with pytest.raises(psycopg.OperationalError):
        Relay(client, "postgres://leasehold@127.0.0.1:1/none").run(threading.Event())


def test_docstring_examples_run_as_written(client: Client, database: str) -> None:
    names = {**vars(leasehold.relay), "client": client, "database": database}
    assert doctest.testmod(leasehold.relay, extraglobs=names).failed == 0
