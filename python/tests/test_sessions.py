"""Tests of reconciliation and verification runs, and of answers that they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from support.claims import apply

import leasehold
from leasehold import (
    BucketType,
    Claim,
    LeasePage,
    OutstandingLease,
    Record,
    RecordPage,
    Source,
    SourceType,
    Subject,
    SubjectType,
    encode_source_id,
    reconciliation,
    verification,
)
from leasehold._proto.gitlab.cells.topology_service.claims.v1 import claim_service_pb2 as service
from leasehold.client import _calls as calls
from leasehold.reconciliation import LocalRow, Reconciliation
from leasehold.verification import Row, Verification

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
OLD = NOW - timedelta(days=1)
LEASES = [f"01a1fefb-0383-7360-95c3-3b4e0d5dfab{digit}" for digit in range(3)]


def username(name: str, key: int) -> Claim:
    source = Source(SourceType.USERS, encode_source_id(key))
    return Claim(BucketType.USERNAMES, name, Subject(SubjectType.USER, key), source)


def record(name: str, key: int, *, status: str = "ACTIVE", updated_at: datetime = OLD) -> Record:
    return Record(LEASES[0], username(name, key), 1, status, None, OLD, updated_at)


def row(name: str, key: int, updated_at: datetime | None = OLD) -> Row:
    return Row(encode_source_id(key), [username(name, key)], updated_at)


def session(
    *, dry_run: bool = False, checkpoint: str | None = None, page: int = 1000, max_destroy_share: float = 0.1
) -> Verification:
    return Verification(
        source_type=SourceType.USERS,
        bucket_types=[BucketType.USERNAMES],
        recent_within_seconds=3600,
        dry_run=dry_run,
        checkpoint=checkpoint,
        rows_per_page=page,
        max_destroy_share=max_destroy_share,
        hash_seed=0,
    )


def compared(records: list[Record], rows: list[Row], *, dry_run: bool = False) -> Verification:
    run = session(dry_run=dry_run)
    run.bound(None)
    run.records(RecordPage(tuple(records), False, NOW))
    run.rows(rows, now=NOW)
    return run


def test_r01_a_lease_with_a_local_row_is_committed_and_one_without_is_rolled_back() -> None:
    run = Reconciliation(stale_after_seconds=600, rows_per_page=10)
    assert run.step() == reconciliation.ListLeases(None)
    leases = tuple(OutstandingLease(lease, time, time) for lease, time in zip(LEASES, [OLD, OLD, NOW], strict=True))
    run.leases(LeasePage((), "further", NOW))
    assert run.step() == reconciliation.ListLeases("further")
    run.leases(LeasePage(leases, None, NOW))
    assert run.step() == reconciliation.FindRows(tuple(LEASES))
    run.rows([LocalRow(LEASES[0], OLD)], now=NOW)
    settled = []
    while isinstance(step := run.step(), reconciliation.Settle):
        settled.append((step.lease, step.outcome))
        run.settled("done")
    assert sorted(settled) == [(LEASES[0], "committed"), (LEASES[1], "rolled_back")]
    assert run.step() == reconciliation.DeleteRow(LEASES[0], "committed")
    run.deleted()
    assert run.step() == reconciliation.ListRows(None, 600.0, 10)
    run.rows([], now=NOW)
    assert run.step() == reconciliation.Done()
    summary = run.summary()
    assert (summary.leases_seen, summary.committed, summary.rolled_back, summary.rows_deleted) == (3, 1, 1, 1)


def test_r01_the_outcome_of_a_lease_decides_the_fate_of_its_row() -> None:
    run = Reconciliation(stale_after_seconds=600, rows_per_page=3)
    run.leases(LeasePage((), None, NOW))
    run.rows([LocalRow(lease, OLD) for lease in LEASES], now=NOW)
    fates = []
    for answer in ("rolled_back", "not_found", "failed"):
        assert isinstance(run.step(), reconciliation.Settle)
        run.failed() if answer == "failed" else run.settled(answer)  # type: ignore[arg-type]
    while isinstance(step := run.step(), reconciliation.DeleteRow):
        fates.append(step.fate)
        run.deleted()
    assert fates == ["lost", "forgotten"]
    step = run.step()
    assert isinstance(step, reconciliation.ListRows)
    assert step.after == LocalRow(LEASES[2], OLD)
    assert (run.summary().lost, run.summary().failed) == ((LEASES[0],), 1)


WRONG_ANSWERS: list[Callable[[Reconciliation], None]] = [
    lambda run: run.deleted(),
    lambda run: run.settled("done"),
    lambda run: run.rows([], now=NOW),
]


@pytest.mark.parametrize("answer", WRONG_ANSWERS, ids=str)
def test_an_answer_to_another_step_changes_nothing(answer: Callable[[Reconciliation], None]) -> None:
    run = Reconciliation(stale_after_seconds=600)
    with pytest.raises(leasehold.OutOfTurnError) as caught:
        answer(run)
    assert caught.value.code == "OUT_OF_TURN"
    assert run.step() == reconciliation.ListLeases(None)


def test_v01_missing_different_and_extra_are_corrected() -> None:
    records = [record("alice", 1), record("bob", 2), record("gone", 9)]
    run = compared(records, [row("alice", 1), row("bobby", 2), row("carol", 3)])
    first = run.step()
    assert first == verification.Begin((username("bobby", 2), username("carol", 3)), ())
    apply(run)
    run.proceed()
    assert run.step() == verification.ReadAgain((encode_source_id(2), encode_source_id(9)))
    run.rows([row("bobby", 2)], now=NOW)
    step = run.step()
    assert isinstance(step, verification.Begin)
    assert [claim.bucket_value for claim in step.destroys] == ["bob", "gone"]
    apply(run)
    while not isinstance(run.step(), verification.Done):
        run.proceed()
    report = run.report()
    assert (report.missing, report.extra, report.created, report.destroyed) == (2, 2, 2, 2)
    findings = run.take_findings()
    assert sorted(finding.outcome for finding in findings) == ["destroyed", "destroyed"]
    assert run.take_findings() == []
    assert not [finding for finding in findings if "bob" in json.dumps(vars(finding))]


def test_encoded_claims_equal_the_encoding_of_their_objects() -> None:
    step = compared([], [row("alice", 1), row("Bärbel", 2)]).step()
    assert isinstance(step, verification.Begin)
    for creates, destroys in ((step.creates, ()), ((), step.creates), (step.creates[1:], step.creates)):
        sent, wanted = (
            calls.begin(7, creates, destroys, None, "key"),
            calls.begin(7, tuple(creates), tuple(destroys), None, "key"),
        )
        read = service.BeginUpdateRequest.FromString
        assert read(sent.request) == read(wanted.request)


def test_v02_recent_and_leased_claims_are_skipped() -> None:
    records = [record("one", 1, updated_at=NOW), record("two", 2, status="LEASE_CREATING"), record("three", 3)]
    run = compared(records, [row("four", 4, NOW)])
    run.proceed()
    assert run.step() == verification.ReadAgain((encode_source_id(3),))
    report = run.report()
    assert (report.rows_recent, report.records_recent, report.records_held, report.extra) == (1, 1, 1, 1)


def test_v06_a_refused_claim_is_left_out_of_the_next_update() -> None:
    run = compared([], [row("alice", 1), row("bob", 2)])
    busy = leasehold.BusyError("busy", code="CLAIM_BUSY", details=[leasehold.Detail("creates", 0, 4, "CLAIM_BUSY", 12, "busy")])
    run.refused(busy)
    assert run.step() == verification.Begin((username("bob", 2),), ())
    run.refused(leasehold.UnavailableError("away", code="STORE_UNAVAILABLE"))
    assert isinstance(run.step(), verification.PageDone)
    assert (run.report().failed, run.report().created) == (1, 0)


def test_v07_a_run_continues_from_its_checkpoint() -> None:
    run = session(page=1)
    run.bound(encode_source_id(1))
    run.records(RecordPage((), False, NOW))
    run.rows([row("alice", 1)], now=NOW)
    if isinstance(run.step(), verification.Begin):
        apply(run)
    run.stop()
    while isinstance(run.step(), verification.Begin):
        apply(run)
    assert run.step() == verification.Done()
    checkpoint = run.checkpoint()
    assert session(checkpoint=checkpoint).step() == verification.FindBound(encode_source_id(1), 1000)
    with pytest.raises(leasehold.InvalidError) as caught:
        session(checkpoint='{"secret":1}')
    assert caught.value.code == "INVALID_CHECKPOINT"
    assert "secret" not in str(caught.value)


def test_a_dry_run_begins_no_update() -> None:
    run = compared([record("gone", 9)], [row("alice", 1)], dry_run=True)
    run.proceed()
    assert run.step() == verification.ReadAgain((encode_source_id(9),))
    run.rows([], now=NOW)
    assert run.step() == verification.Done()
    report = run.report()
    assert (report.dry_run, report.missing, report.extra, report.updates) == (True, 1, 1, 0)
    assert run.checkpoint() is None


def test_v11_a_run_is_refused_before_it_destroys_many_claims_and_goes_on_when_told() -> None:
    run = compared([record(f"gone{key}", key) for key in range(1, 20)], [row("kept", 20)])
    apply(run)
    run.proceed()
    run.rows([], now=NOW)
    refused = verification.Refused(19, 19, 1.0)
    assert run.step() == refused
    with pytest.raises(leasehold.OutOfTurnError):
        run.proceed()
    told = session(checkpoint=run.checkpoint(), max_destroy_share=refused.needed_share)
    told.rows([], now=NOW)
    step = told.step()
    assert isinstance(step, verification.Begin)
    assert len(step.destroys) == 19
    with pytest.raises(leasehold.InvalidError, match="from 0 to 1"):
        session(max_destroy_share=1.5)


BAD_ROWS: dict[str, list[Row]] = {
    "disorder": [row("b", 2), row("a", 1)],
    "twice": [row("a", 1), row("b", 1)],
    "a foreign type": [Row(encode_source_id(1), [Claim(BucketType.EMAILS, "a@b", Subject(4, 1))])],
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_invalid_rows_are_refused_and_change_nothing(case: str) -> None:
    run = session()
    run.bound(None)
    run.records(RecordPage((), False, NOW))
    with pytest.raises(leasehold.RowsError) as caught:
        run.rows(BAD_ROWS[case], now=NOW)
    assert caught.value.code == "INVALID_ROWS"
    assert run.step() == verification.ReadRows(b"", b"")
    assert run.report().rows == 0


@pytest.mark.parametrize("answer", [b"\xff", b"\x0a\x05ab", b"\x0a\x02\x12\xff"])
def test_an_undecodable_response_is_refused(answer: bytes) -> None:
    run = session()
    run.bound(None)
    with pytest.raises(leasehold.RowsError, match="ListRecords"):
        run.encoded_records(answer, now=NOW)
    assert run.step() == verification.ListRecords(b"", b"")


def test_times_without_a_time_zone_are_refused() -> None:
    run = session()
    run.bound(None)
    with pytest.raises(ValueError, match="time zone"):
        run.records(RecordPage((), False, NOW.replace(tzinfo=None)))
    run.records(RecordPage((), False, NOW.astimezone(timezone(timedelta(hours=2)))))
    with pytest.raises(ValueError, match="time zone"):
        run.rows([row("a", 1, OLD.replace(tzinfo=None))], now=NOW)
    assert isinstance(run.step(), verification.ReadRows)
