"""Tests of queues on the real server: fronts, workers and operators in one process."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.locks import LONG, PATIENT
from support.queues import QUEUE, SECRET, attempts, bodies, next_of, request, state, submit, taken, update
from support.tcp_proxy import TcpProxy
from support.waiting import wait_for

from leasehold import BatchLostError, errors
from leasehold.client import Batch, Client, Retry, Taking, _taking
from leasehold.client._lock_calls import close_session
from leasehold.queues import LaneList, NewRequest, Queue, RequestKind, RequestList, RequestState


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url) as client:
        yield client


def create(key: str = "7", body: bytes | str = b"") -> NewRequest:
    return NewRequest(key, body, kind=RequestKind.CREATE)


def test_q01_requests_go_from_a_front_to_a_worker_and_are_complete_at_the_end_of_the_block(server: ClaimsServer) -> None:
    with Client(server.url) as client, client.take(QUEUE) as worker:
        submitted = client.submit(QUEUE, "7", "grüße", priority=2, max_attempts=3)
        assert submitted.is_new
        for batch in worker:
            with batch:
                found = request(client, submitted.id)
                assert (found.state, found.attempts, found.body) == (RequestState.IN_PROGRESS, 1, None)
                assert (batch.queue, batch.key, batch.kind, batch.progress) == (QUEUE, "7", RequestKind.UPDATE, None)
                assert [(each.id, each.attempt, each.body) for each in batch.requests] == [(submitted.id, 1, "grüße".encode())]
                assert (batch.is_held, batch.is_lost, batch.remaining() > timedelta()) == (True, False, True)
                batch.check()
                worker.stop()
        assert (batch.is_held, batch.is_lost, batch.remaining()) == (False, False, timedelta())
        assert isinstance(raised_by(batch.check), BatchLostError)
        ended = client.get_request(submitted.id, with_body=True)
        assert ended is not None
        assert (ended.state, ended.priority, ended.max_attempts, ended.number) == (RequestState.COMPLETE, 2, 3, 1)
        assert (ended.body, ended.body_bytes) == ("grüße".encode(), 7)
        assert ended.submitted_at <= ended.updated_at


def test_q02_updates_wait_for_the_create_and_are_taken_as_one(client: Client) -> None:
    submit(client, create(body=b"make"), update(body=b"one"), update(body=b"two"))
    with client.take(QUEUE) as worker:
        with next_of(worker) as first:
            assert (first.kind, bodies(first)) == (RequestKind.CREATE, [b"make"])
        with next_of(worker) as then:
            assert (then.kind, bodies(then)) == (RequestKind.UPDATE, [b"one", b"two"])


def test_q02_a_batch_has_no_more_requests_than_the_worker_wants(client: Client) -> None:
    submit(client, *(update(body=f"{number}") for number in range(5)))
    with client.take(QUEUE, max_requests=2) as worker:
        seen = []
        for batch in worker:
            with batch:
                seen.append(bodies(batch))
                if len(seen) == 3:
                    worker.stop()
    assert seen == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


def test_q07_a_key_is_worked_in_order_and_a_stuck_one_holds_back_only_itself(client: Client) -> None:
    submit(client, update("stuck", b"1"))
    with client.take(QUEUE, credit=2) as worker:
        stuck = next_of(worker)
        submit(client, update("stuck", b"2"), update("other", b"3"), update("third", b"4"))
        with next_of(worker) as other:
            assert (other.key, bodies(other)) == ("other", [b"3"])
        with next_of(worker) as third:
            assert (third.key, bodies(third)) == ("third", [b"4"])
        assert worker.next_batch(wait_seconds=0.2) is None
        stuck.complete()
        with next_of(worker) as then:
            assert bodies(then) == [b"2"]


def test_q08_a_request_that_comes_while_a_batch_is_worked_is_in_the_next_one(client: Client) -> None:
    submit(client, update(body=b"before"))
    with client.take(QUEUE) as worker:
        with next_of(worker) as batch:
            submit(client, update(body=b"meanwhile"))
            assert bodies(batch) == [b"before"]
        with next_of(worker) as batch:
            assert bodies(batch) == [b"meanwhile"]


def test_q16_new_ids_begin_with_the_time_by_which_the_history_leaves(client: Client) -> None:
    before = time.time_ns() // 1_000_000
    found = [client.submit(QUEUE, "7").id, *submit(client, *(update() for _ in range(999)))]
    ids = [UUID(each) for each in found]
    assert {(each.version, each.variant) for each in ids} == {(7, RFC_4122)}
    times = [each.int >> 80 for each in ids]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= time.time_ns() // 1_000_000
    # The same id for two requests would be refused. The rest is random: no bit of it is the same in all ids.
    fixed = (1 << 128) - 1
    for each in ids:
        fixed &= ~(each.int ^ ids[0].int)
    assert fixed & ((1 << 76) - 1) == 0b11 << 62
    assert [each.id for each in client.requests(QUEUE, "7")] == found


def test_q09_a_repeated_submit_gets_the_first_ones_request(client: Client) -> None:
    new = update(body=b"once")
    (first,), (again,) = client.submit_all(QUEUE, [new]), client.submit_all(QUEUE, [new])
    assert (first.id, first.is_new, again.id, again.is_new) == (new.id, True, new.id, False)
    made, made_again = client.submit_all(QUEUE, [create("8", b"a"), create("8", b"b")])
    assert (made.is_new, made_again.is_new, made_again.id) == (True, False, made.id)
    reused = raised_by(lambda: client.submit(QUEUE, "7", b"other", request_id=new.id))
    assert (type(reused), reused.code) == (errors.InvalidError, "IDEMPOTENCY_KEY_REUSED")
    assert [each.id for each in client.requests(QUEUE, "7")] == [new.id]


def test_q09_a_submit_whose_answer_is_lost_makes_one_request(embedded: ClaimsServer, proxy: TcpProxy) -> None:
    impatient = Client(f"http://{proxy.address}", retry=Retry(attempt_timeout_seconds=0.2), timeout_seconds=60)
    with impatient as client, Client(embedded.url) as direct, ThreadPoolExecutor() as pool:
        client.get_queue(QUEUE)
        proxy.hold_answers()
        submitting = pool.submit(client.submit, QUEUE, "7", b"once")
        (one,) = wait_for("the request", lambda: list(direct.requests(QUEUE, "7")))
        sent = proxy.client_bytes
        wait_for("the first attempt to end", lambda: proxy.client_bytes > sent)
        proxy.release_answers()
        submitted = submitting.result()
        assert (submitted.id, submitted.is_new) == (one.id, False)
        assert [each.id for each in direct.requests(QUEUE, "7")] == [one.id]


def test_q10_a_settle_may_be_repeated_and_only_the_first_outcome_counts(client: Client) -> None:
    (one,) = submit(client, update())
    with client.take(QUEUE) as worker:
        batch = next_of(worker)
        batch.complete()
        batch.complete()
        assert state(client, one) == (RequestState.COMPLETE, 1)
        other_end = raised_by(batch.fail)
        assert (type(other_end), other_end.code, other_end.is_temporary) == (BatchLostError, "BATCH_LOST", False)
        assert "may run twice" in str(other_end)


def test_q10_a_settle_whose_answer_is_lost_is_sent_again(embedded: ClaimsServer, proxy: TcpProxy) -> None:
    with Client(f"http://{proxy.address}") as client, Client(embedded.url) as direct, direct.lock_session(**LONG) as session:
        (one,) = submit(direct, update())
        with direct.take(QUEUE, session=session) as worker:
            batch = next_of(worker)
            batch._client = client
            client.get_queue(QUEUE)
            cut: list[bool] = []
            proxy.cut_next_answer(lambda: cut.append(True))
            batch.complete()
            assert (cut, batch.is_lost, state(direct, one)) == ([True], False, (RequestState.COMPLETE, 1))


def test_q10_q03_a_batch_is_lost_with_its_session_and_the_worker_goes_on_with_a_new_one(client: Client) -> None:
    (one,) = submit(client, update())
    with client.take(QUEUE) as worker:
        batch = next_of(worker)
        assert worker._session is not None
        # The requests of a session that is evicted would be withheld for its terms.
        client._run(close_session(worker._session._id.bytes), None)
        wait_for("the loss", lambda: batch.is_lost)
        for call in (batch.check, batch.complete, lambda: batch.note_progress(b"half")):
            assert isinstance(raised_by(call), BatchLostError)
        with next_of(worker) as again:
            assert ([each.id for each in again.requests], attempts(again)) == ([one], [2])
            assert again.fence > batch.fence
        assert state(client, one) == (RequestState.COMPLETE, 2)


def test_q10_a_block_whose_batch_is_lost_raises_at_its_end(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def lose(error: Exception | None) -> None:
        submit(client, update(f"{type(error)}"))
        with client.lock_session(**LONG) as session, client.take(QUEUE, session=session) as worker, next_of(worker):
            client.evict_lock_session(session.id)
            if error is not None:
                raise error

    assert isinstance(raised_by(lambda: lose(None)), BatchLostError)
    with pytest.raises(RuntimeError):
        lose(RuntimeError())
    assert "another worker's by now" in caplog.text


def test_a_worker_whose_given_session_is_lost_ends_with_an_error(client: Client) -> None:
    with client.lock_session(**LONG) as session, client.take(QUEUE, session=session) as worker:
        client.evict_lock_session(session.id)
        lost = raised_by(lambda: next_of(worker))
        assert (type(lost), "the session of the worker" in str(lost)) == (BatchLostError, True)
        assert worker.next_batch() is None


def test_q10_a_block_that_has_settled_its_batch_settles_nothing_at_its_end(client: Client) -> None:
    ids = submit(client, update("7"), update("8", max_attempts=1))
    with client.take(QUEUE) as worker:
        with next_of(worker) as batch:
            # A paused lane does not come again.
            client.pause_queue(QUEUE, "7")
            batch.give_back()
        with next_of(worker) as batch:
            batch.fail()
    assert [state(client, each)[0] for each in ids] == [RequestState.NEW, RequestState.ERROR]


def test_q03_a_worker_outlives_a_silence_of_the_server_that_ends_its_session(
    client: Client, embedded: ClaimsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_taking, "DURATION_SECONDS", 1)
    monkeypatch.setattr(_taking, "GRACE_SECONDS", 4)
    (one,) = submit(client, update())
    with client.take(QUEUE) as worker:
        # Another session than the first is not lost, however slow the machine is.
        monkeypatch.setattr(_taking, "DURATION_SECONDS", 3600)
        batch = next_of(worker)
        embedded.kill()
        wait_for("the loss of the session", lambda: worker._session is None)
        assert batch.is_lost
        embedded.start()
        # The server counts the silence of the former session again, then takes its requests back.
        with next_of(worker) as again:
            assert ([each.id for each in again.requests], attempts(again)) == ([one], [attempts(batch)[0] + 1])


def test_q11_a_batch_that_is_given_back_counts_no_attempt(client: Client) -> None:
    (one,) = submit(client, update(max_attempts=1))
    with client.take(QUEUE) as worker:
        for _ in range(3):
            batch = next_of(worker)
            assert attempts(batch) == [1]
            batch.give_back()
            batch.give_back()
        with next_of(worker) as last:
            assert attempts(last) == [1]
    assert state(client, one) == (RequestState.COMPLETE, 1)


def test_q11_an_interrupt_gives_the_batch_back(client: Client) -> None:
    (one,) = submit(client, update())
    with client.take(QUEUE) as worker:
        with pytest.raises(KeyboardInterrupt), next_of(worker):
            raise KeyboardInterrupt
        worker.stop()
    assert state(client, one) == (RequestState.NEW, 0)


def test_q11_the_end_of_a_worker_gives_back_all_that_is_not_settled(client: Client) -> None:
    ids = submit(client, *(update(f"{number}") for number in range(4)))
    with client.lock_session(**LONG) as session:
        with client.take(QUEUE, session=session, credit=4) as worker:
            batch = next_of(worker)
            taken(client, 4)
        assert [state(client, each) for each in ids] == [(RequestState.NEW, 0)] * 4
        assert (batch.is_held, batch.is_lost) == (False, True)
        for call in (batch.check, batch.complete):
            assert "the worker has stopped" in str(raised_by(call))
        # The session is the caller's, and goes on.
        with client.take(QUEUE, session=session) as later, next_of(later) as again:
            assert attempts(again) == [1]


def test_q11_batches_that_were_lost_with_the_stream_are_given_back(embedded: ClaimsServer, proxy: TcpProxy) -> None:
    with Client(f"http://{proxy.address}") as client, Client(embedded.url) as direct, direct.lock_session(**LONG) as session:
        (one,) = submit(direct, update())
        worker = Taking(client, QUEUE, session, 1, 100)
        client.get_queue(QUEUE)
        proxy.hold_answers()
        with worker:
            taken(direct, 1)
            # The worker learns of no batch. Its other calls go past the proxy.
            assert worker._held == {}
            worker.stop()
            worker._client = direct
        assert state(direct, one) == (RequestState.NEW, 0)
        proxy.release_answers()


def test_q12_a_request_is_taken_when_it_is_due_and_by_priority(client: Client) -> None:
    submit(client, update("low"), update("high", priority=9), update("late", priority=9, delay_seconds=1.5))
    assert [lane.key for lane in client.lanes(QUEUE, LaneList.READY)] == ["high", "low"]
    assert [lane.key for lane in client.lanes(QUEUE, LaneList.DELAYED)] == ["late"]
    with client.take(QUEUE) as worker:
        seen = []
        for batch in worker:
            with batch:
                seen.append(batch.key)
                if len(seen) == 3:
                    worker.stop()
    assert seen == ["high", "low", "late"]


def test_q13_a_failed_request_is_tried_again_then_ends_in_error_and_can_be_resubmitted(client: Client) -> None:
    (one,) = submit(client, update(body=b"x", max_attempts=2))
    assert client.resubmit_request(one) is RequestState.NEW
    with client.take(QUEUE) as worker:
        next_of(worker).fail(retry_after_seconds=0)
        with pytest.raises(RuntimeError), next_of(worker):
            raise RuntimeError
        assert state(client, one) == (RequestState.ERROR, 2)
        assert [each.id for each in client.requests(QUEUE, which=RequestList.SETTLED)] == [one]
        assert client.resubmit_request(one) is RequestState.ERROR
        with next_of(worker) as again:
            assert bodies(again) == [b"x"]
    assert state(client, one)[0] is RequestState.COMPLETE


def test_q13_the_worker_names_the_time_of_the_next_attempt(client: Client) -> None:
    (one,) = submit(client, update())
    with client.take(QUEUE) as worker:
        next_of(worker).fail(retry_after_seconds=3600)
        found = request(client, one)
        assert found.not_before - found.updated_at == timedelta(seconds=3600)
        assert worker.next_batch(wait_seconds=0.2) is None


def test_q13_without_a_time_the_server_puts_the_next_attempt_off(client: Client) -> None:
    (one,) = submit(client, update())
    with client.take(QUEUE) as worker:
        next_of(worker).fail()
        found = request(client, one)
        assert timedelta() < found.not_before - found.updated_at <= timedelta(seconds=2)
        with next_of(worker) as again:
            assert attempts(again) == [2]


def test_q19_a_paused_queue_and_a_paused_lane_are_not_taken_until_they_are_resumed(client: Client) -> None:
    client.pause_queue(QUEUE)
    client.pause_queue(QUEUE, "8")
    submit(client, update("7"), update("8"))
    assert client.get_queue(QUEUE).is_paused
    assert [(lane.key, lane.is_paused, lane.waiting) for lane in client.lanes(QUEUE, LaneList.PAUSED)] == [("8", True, 1)]
    with client.take(QUEUE, credit=2) as worker:
        assert worker.next_batch(wait_seconds=0.2) is None
        client.resume_queue(QUEUE)
        with next_of(worker) as batch:
            assert batch.key == "7"
        assert worker.next_batch(wait_seconds=0.2) is None
        client.resume_queue(QUEUE, "8")
        with next_of(worker) as batch:
            assert batch.key == "8"
    assert raised_by(lambda: client.pause_queue(QUEUE, "")).code == "MISCONFIGURED"


def test_q17_a_queue_has_a_limit_of_lanes_that_are_taken(client: Client) -> None:
    assert client.get_queue(QUEUE) == Queue(is_paused=False, limit=None, taken=0)
    client.limit_queue(QUEUE, 1)
    submit(client, update("7"), update("8"))
    with client.take(QUEUE, credit=2) as worker:
        with next_of(worker):
            assert worker.next_batch(wait_seconds=0.2) is None
            assert client.get_queue(QUEUE) == Queue(is_paused=False, limit=1, taken=1)
        client.limit_queue(QUEUE, None)
        next_of(worker).complete()


def test_q20_the_progress_of_a_worker_is_handed_to_the_next(client: Client) -> None:
    submit(client, update())
    with client.take(QUEUE) as worker:
        batch = next_of(worker)
        batch.note_progress(b"part")
        batch.note_progress(b"half")
        assert raised_by(lambda: batch.note_progress(b"x" * 2049)).code == "LIMIT_EXCEEDED"
        batch.fail(retry_after_seconds=0)
        with next_of(worker) as again:
            assert again.progress == b"half"


def test_a_worker_goes_on_after_a_restart_of_the_server_and_loses_and_doubles_nothing(
    client: Client, embedded: ClaimsServer
) -> None:
    ids = submit(client, *(update(f"{number}") for number in range(6)))
    worked: list[str] = []
    with client.lock_session(**LONG) as session, client.take(QUEUE, session=session, credit=2) as worker:
        held = next_of(worker)
        for end in (embedded.stop, embedded.kill):
            worked += [each.id for each in held.requests]
            end()
            embedded.start()
            # The settle waits for the server, which has kept the hold.
            held.complete()
            held = next_of(worker)
        while len(worked) < len(ids):
            with held:
                worked += [each.id for each in held.requests]
            held = next_of(worker) if len(worked) < len(ids) else held
    assert sorted(worked) == sorted(ids)
    assert [state(client, each) for each in ids] == [(RequestState.COMPLETE, 1)] * 6


def test_lists_have_pages(client: Client) -> None:
    submit(client, *(update(body=f"{number}") for number in range(5)), update("8"), update("9"))
    first = client.list_requests(QUEUE, "7", limit=2)
    assert first.cursor is not None
    rest = client.list_requests(QUEUE, "7", limit=3, cursor=first.cursor)
    assert [each.number for each in first.requests + rest.requests] == [1, 2, 3, 4, 5]
    assert rest.cursor is None
    lanes = client.list_lanes(QUEUE, limit=2)
    assert ([lane.key for lane in lanes.lanes], [lane.waiting for lane in lanes.lanes]) == (["7", "8"], [5, 1])
    assert [lane.key for lane in client.list_lanes(QUEUE, cursor=lanes.cursor).lanes] == ["9"]
    with client.lock_session(**LONG) as session, client.take(QUEUE, session=session) as worker, next_of(worker) as batch:
        (lane,) = client.lanes(QUEUE, LaneList.TAKEN)
        assert (lane.key, lane.session_id, lane.fence, lane.not_before) == ("7", session.id, batch.fence, None)
        assert lane.taken_at is not None
        assert len(list(client.requests(QUEUE, "7", RequestList.TAKEN))) == 5
    for call in (lambda: client.list_lanes(QUEUE, cursor="nonsense"), lambda: client.list_requests(QUEUE, "7", cursor="=")):
        assert isinstance(raised_by(call), errors.InvalidError)
    assert raised_by(lambda: client.list_lanes(QUEUE, limit=1001)).code == "LIMIT_EXCEEDED"


def test_a_request_that_waits_can_be_withdrawn(client: Client) -> None:
    (one,) = submit(client, update())
    assert client.withdraw_request(one) is RequestState.NEW
    assert client.withdraw_request(one) is None
    assert client.resubmit_request(one) is None
    assert client.get_request(one) is None


def test_a_session_has_one_worker_for_a_queue(client: Client) -> None:
    with client.lock_session(**LONG) as session:
        with client.take(QUEUE, session=session) as worker, client.take("other", session=session):
            second = client.take(QUEUE, session=session)
            assert (raised_by(second.open).code, raised_by(worker.open).code) == ("MISCONFIGURED", "CLOSED")
        assert raised_by(lambda: client.take("new", session=session).next_batch()).code == "CLOSED"
        with client.take(QUEUE, session=session):
            pass
    assert raised_by(client.take(QUEUE, session=client.lock_session()).open).code == "CLOSED"


def test_a_loop_without_a_block_opens_and_closes_the_worker(client: Client) -> None:
    (one,) = submit(client, update())
    worker = client.take(QUEUE)
    found = [(batch, worker._session) for batch in itertools.islice(worker, 1)]
    ((batch, session),) = found
    assert session is not None
    assert (session.standing.name, batch.is_held) == ("LOST", False)
    assert state(client, one) == (RequestState.NEW, 0)
    assert raised_by(lambda: list(worker)).code == "CLOSED"


def test_what_the_server_refuses_ends_the_loop(client: Client) -> None:
    for credit, code in ((257, "LIMIT_EXCEEDED"), (0, "MISCONFIGURED"), (2**32, "MISCONFIGURED")):
        assert raised_by(lambda: next(iter(client.take(QUEUE, credit=credit)))).code == code  # noqa: B023
    assert raised_by(lambda: client.take(QUEUE, max_requests=0)).code == "MISCONFIGURED"
    assert isinstance(raised_by(lambda: next(iter(client.take("a..b")))), errors.InvalidError)


def test_q22_no_representation_error_or_log_shows_a_key_or_a_body(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    new = update(SECRET, SECRET)
    submit(client, new)
    seen: list[object] = [new, *client.requests(QUEUE, SECRET), *client.lanes(QUEUE), client.list_lanes(QUEUE, limit=1)]
    seen.append(client.get_request(new.id, with_body=True))

    def fail(batch: Batch) -> None:
        seen.extend([batch, *batch.requests])
        worker.stop()
        raise RuntimeError(batch.requests[0].body)

    with client.take(QUEUE) as worker:
        worker.run(fail)
    wrong: Any = SECRET
    refusals = (
        lambda: client.submit(QUEUE, f"{SECRET}\n"),
        lambda: client.submit(QUEUE, SECRET * 1000),
        lambda: client.submit(QUEUE, SECRET, f"{SECRET}\ud800"),
        lambda: client.submit(QUEUE, SECRET, SECRET * 65_536),
        lambda: client.get_request(SECRET),
        lambda: client.list_requests(QUEUE, SECRET, cursor=SECRET),
    )
    seen.extend(raised_by(call) for call in refusals)
    for wrongly in (
        lambda: client.submit(QUEUE, wrong.encode()),
        lambda: client.submit(QUEUE, SECRET, [wrong]),  # type: ignore[arg-type]
        lambda: client.submit(QUEUE, SECRET, kind=wrong),
        lambda: client.submit_all(QUEUE, [wrong]),
        lambda: client.list_lanes(QUEUE, wrong),
    ):
        with pytest.raises(TypeError) as raised:
            wrongly()
        seen.append(raised.value)
    assert "has failed by `RuntimeError`" in caplog.text
    assert SECRET not in caplog.text
    assert not [each for each in seen if SECRET in repr(each)]
    assert len(seen) == 18


def test_run_tells_of_each_failure_and_goes_on(client: Client) -> None:
    ids = submit(client, *(update(f"{number}", f"{number}", max_attempts=1) for number in range(4)))
    failed: list[tuple[str, str]] = []

    def work(batch: Batch) -> None:
        if batch.key == "3":
            worker.stop(within_seconds=PATIENT)
        if int(batch.key) % 2:
            raise RuntimeError(batch.key)

    with client.take(QUEUE, credit=1) as worker:
        worker.run(work, on_error=lambda batch, error: failed.append((batch.key, str(error))))
        assert not worker.is_at_work
    assert failed == [("1", "1"), ("3", "3")]
    states = [state(client, each)[0] for each in ids]
    assert states == [RequestState.COMPLETE, RequestState.ERROR] * 2


def test_run_raises_what_the_server_refuses(client: Client) -> None:
    with client.lock_session(**LONG) as session, client.take(QUEUE, session=session) as worker:
        client.evict_lock_session(session.id)
        assert isinstance(raised_by(lambda: worker.run(lambda _: None)), BatchLostError)


def test_q11_run_gives_back_what_works_too_long_after_a_stop(client: Client) -> None:
    (one,) = submit(client, update())
    begun, told = threading.Event(), threading.Event()
    lost: list[bool] = []

    def work(batch: Batch) -> None:
        begun.set()
        assert told.wait(PATIENT)
        lost.append(batch.is_lost)

    def stop() -> None:
        assert begun.wait(PATIENT)
        worker.stop(within_seconds=0)

    errors_seen: list[Exception] = []
    with ThreadPoolExecutor() as pool, client.take(QUEUE) as worker:
        stopping = pool.submit(stop)
        worker.run(work, on_error=lambda _, error: errors_seen.append(error))
        assert worker.is_at_work
        stopping.result()
        worker.close()
        assert state(client, one) == (RequestState.NEW, 0)
        told.set()
        wait_for("the end of the thread", lambda: not worker.is_at_work)
    assert (lost, [type(error) for error in errors_seen]) == ([True], [BatchLostError])


def test_a_second_store_is_refused(client: Client, embedded: ClaimsServer) -> None:
    other = "6f1c1d8e-3a5b-4b0e-9a51-1f0f7f9d2c44"
    with client.lock_session(**LONG) as session, Client(embedded.url, store_id=other) as stranger:
        worker = Taking(stranger, QUEUE, session, 1, 100)
        refused = raised_by(lambda: next(iter(worker)))
        assert isinstance(refused, errors.OtherStoreError)


def test_the_wait_for_a_batch_ends(client: Client) -> None:
    with client.take(QUEUE) as worker:
        assert worker.next_batch(wait_seconds=0) is None
        assert not worker.is_stopping
        worker.stop()
        assert (worker.is_stopping, worker.next_batch(wait_seconds=PATIENT)) == (True, None)
