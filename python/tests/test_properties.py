"""Tests of properties that hold for random values. Hypothesis shrinks a counterexample to a small one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.player import Verifier

import leasehold
from leasehold import (
    BucketType,
    Claim,
    ClaimsService,
    InvalidError,
    LeaseholdError,
    Source,
    SourceType,
    Subject,
    SubjectType,
    canonical_form,
    check_batch,
    encode_source_id,
    verification,
)
from leasehold.simulation import Simulation

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
TYPES = st.sampled_from(list(BucketType))
NAMES = st.text(alphabet="aAbBßéＡ", min_size=1, max_size=3)
"""Short names from a small alphabet, so that random names often collide."""
KEYS = st.integers(min_value=0, max_value=2**63 - 1)


def username(name: str, key: int) -> Claim:
    source = Source(SourceType.USERS, encode_source_id(key))
    return Claim(BucketType.USERNAMES, name, Subject(SubjectType.USER, key), source)


def is_allowed(bucket_type: BucketType, value: str) -> bool:
    try:
        canonical_form(bucket_type, value)
    except InvalidError:
        return False
    return True


WORDS = st.text(alphabet=st.characters(categories=["Ll", "Lm", "Lo", "Lt", "Lu", "Nd", "No", "So"]), min_size=1, max_size=30)


@given(st.sampled_from([BucketType.USERNAMES, BucketType.ROUTES, BucketType.SSH_KEYS]), WORDS)
def test_b12_canonical_form_is_idempotent(bucket_type: BucketType, value: str) -> None:
    assume(is_allowed(bucket_type, value))
    form = canonical_form(bucket_type, value)
    assert canonical_form(bucket_type, form) == form


@given(st.text(alphabet=st.characters(max_codepoint=0x24F, categories=["Ll", "Lu", "Nd"]), min_size=1, max_size=30))
def test_b12_usernames_are_case_insensitive(value: str) -> None:
    form = canonical_form(BucketType.USERNAMES, value)
    assert canonical_form(BucketType.USERNAMES, value.casefold()) == form


@given(KEYS, KEYS)
def test_encoded_integers_keep_their_order(left: int, right: int) -> None:
    assert (left < right) == (encode_source_id(left) < encode_source_id(right))
    assert (left == right) == (encode_source_id(left) == encode_source_id(right))


@given(st.uuids(), st.uuids())
def test_encoded_uuids_keep_their_order(left: uuid.UUID, right: uuid.UUID) -> None:
    assert encode_source_id(str(left)) == left.bytes
    assert (left < right) == (encode_source_id(str(left)) < encode_source_id(str(right)))


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
def test_other_strings_encode_as_utf_8(left: str, right: str) -> None:
    assert encode_source_id(left) == left.encode()
    assert (left == right) == (encode_source_id(left) == encode_source_id(right))


CLAIMS = st.builds(
    Claim,
    TYPES,
    st.one_of(NAMES, st.text(max_size=5)),
    st.none() | st.builds(Subject, st.integers(0, 5), st.integers(-1, 3)),
    st.none() | st.builds(Source, st.integers(0, 16), st.binary(max_size=130)),
)


@given(st.lists(CLAIMS, max_size=4), st.lists(CLAIMS, max_size=4))
def test_b15_check_batch_refuses_exactly_what_the_service_refuses_before_it_reads(
    creates: list[Claim], destroys: list[Claim]
) -> None:
    """If `check_batch` passes, only stored claims can refuse the begin. The service is empty, so only destroys can fail."""
    refused = None
    try:
        check_batch(creates, destroys)
    except InvalidError as error:
        refused = error
    try:
        ClaimsService().begin(1, creates, destroys)
    except LeaseholdError as error:
        if refused is None:
            assert (error.code, len(error.details)) == ("CLAIM_NOT_FOUND", len(destroys))
        else:
            assert (error.code, error.message, error.details) == (refused.code, refused.message, refused.details)
    else:
        assert refused is None
        assert not destroys


@dataclass(frozen=True)
class World:
    """A random case for verification: rows of a table, and claims that differ from some of them in spelling, row or subject."""

    rows: dict[int, str]
    claimed: dict[str, int]


WORLDS = st.builds(
    World,
    st.dictionaries(st.integers(1, 6), NAMES, max_size=6),
    st.dictionaries(NAMES, st.integers(1, 6), max_size=6),
)


def table(rows: dict[int, str]) -> pa.Table:
    ordered = sorted(rows.items())
    return pa.table(
        {"id": pa.array([key for key, _ in ordered], pa.int64()), "name": pa.array([name for _, name in ordered], pa.string())}
    )


class ArrowVerifier(Verifier):
    """A verifier that reads rows from Arrow streams, in batches of other sizes than the run's pages."""

    def read_rows(self, after: bytes, upto: bytes) -> None:
        """Answer the step `ReadRows` with the rows in the requested range."""
        chosen = [row for row in self.rows if row.source_id > after and (not upto or row.source_id <= upto)]
        rows = {int.from_bytes(row.source_id, "big"): row.claims[0].bucket_value for row in chosen}
        username = verification.ClaimColumns(BucketType.USERNAMES, "name", SubjectType.USER, "id")
        columns = verification.TableColumns("id", [username])
        self.session.arrow(table(rows).to_reader(max_chunksize=2), columns, now=NOW)


def verifier(service: ClaimsService, world: World, page: int) -> Verifier:
    rows = [verification.Row(encode_source_id(key), [username(name, key)]) for key, name in sorted(world.rows.items())]
    return ArrowVerifier(service, 1, SourceType.USERS, rows, page)


@given(WORLDS, st.integers(1, 4))
def test_v01_a_second_run_finds_no_differences(world: World, page: int) -> None:
    service = ClaimsService(clock=lambda: NOW)
    for name, key in world.claimed.items():
        try:
            service.commit(1, service.begin(1, [username(name, key)]).uuid)
        except LeaseholdError as error:
            assert error.code == "CLAIM_TAKEN"
    verifier(service, world, page).run()
    service.check()
    again = verifier(service, world, page).run()
    assert (again.created, again.replaced, again.destroyed, again.extra, again.different) == (0, 0, 0, 0, 0)
    # Two rows can make a claim of the same name. Only one of them gets the claim.
    forms = {canonical_form(BucketType.USERNAMES, name) for name in world.rows.values()}
    records = service.list_records(1, SourceType.USERS).records
    assert {canonical_form(BucketType.USERNAMES, record.claim.bucket_value) for record in records} == forms
    assert again.missing == again.other_row == len(world.rows) - len(forms)
    for record in records:
        assert record.claim.source is not None
        key = int.from_bytes(record.claim.source.id, "big")
        assert replace(record.claim) == username(world.rows[key], key)


@given(st.lists(st.integers(0, 300), unique=True), st.integers(1, 20), st.integers(1, 20), st.data())
def test_bounds_of_a_stream_equal_those_of_its_rows(keys: list[int], chunk: int, page: int, data: st.DataObject) -> None:
    keys.sort()
    columns = verification.TableColumns("id", [])
    rows = verification.ArrowRows(pa.table({"id": pa.array(keys, pa.int64())}).to_reader(max_chunksize=chunk), columns)
    start = data.draw(st.integers(0, 300))
    beyond = [key for key in keys if key > start]
    expected = encode_source_id(beyond[page - 1]) if page <= len(beyond) else None
    assert rows.bound(encode_source_id(start), page) == expected
    assert rows.bound(encode_source_id(start), page) == expected


@settings(max_examples=20)
@given(st.integers(0, 2**53 - 1), st.integers(1, 3), st.integers(0, 150))
def test_a_seed_plays_one_history_without_a_violation(seed: int, cells: int, events: int) -> None:
    runs = [Simulation(seed=seed, cells=cells) for _ in range(2)]
    assert [run.play(events) for run in runs] == [events, events]
    assert runs[0].trace() == runs[1].trace()
    run = Simulation.load(runs[0].trace())
    run.seek(run.length)
    run.quiesce()
    assert "violation" not in run.marks()


@settings(max_examples=20)
@given(st.lists(st.sampled_from(["begin", "commit", "rollback", "wait"]), max_size=12), st.data())
def test_invariants_hold_after_every_call(steps: list[str], data: st.DataObject) -> None:
    now = [NOW]
    service = ClaimsService([1, 2], clock=lambda: now[0])
    leases = ["01a1fefb-0383-7360-95c3-3b4e0d5dfab0"]
    fence = 0
    for step in steps:
        cell = data.draw(st.integers(1, 3))
        try:
            if step == "begin":
                lease = service.begin(cell, [username(data.draw(NAMES), data.draw(st.integers(1, 3)))])
                assert lease.fence > fence
                fence = lease.fence
                leases.append(lease.uuid)
            elif step == "commit":
                service.commit(cell, data.draw(st.sampled_from(leases)))
            elif step == "rollback":
                service.rollback(cell, data.draw(st.sampled_from(leases)))
            else:
                now[0] += timedelta(seconds=1)
        except LeaseholdError as error:
            assert error.number > 0
        service.check()
    assert leasehold.errors.NUMBERS
