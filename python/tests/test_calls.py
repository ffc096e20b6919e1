"""Tests of the pure functions in `leasehold.calls`."""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

import leasehold
from leasehold import (
    BucketType,
    Claim,
    ClaimsService,
    InvalidError,
    MisconfiguredError,
    Record,
    RecordPage,
    Source,
    SourceType,
    Subject,
    SubjectType,
    reconciliation,
    verification,
)
from leasehold.client import Client


def username(name: str, key: int = 7) -> Claim:
    source = Source(SourceType.USERS, leasehold.encode_source_id(key))
    return Claim(BucketType.USERNAMES, name, Subject(SubjectType.USER, key), source)


def test_b12_canonical_form_depends_on_the_bucket_type() -> None:
    assert leasehold.canonical_form(BucketType.USERNAMES, "Alice") == "alice"
    assert leasehold.canonical_form(BucketType.SSH_KEYS, "ssh-rsa AAAA") == "ssh-rsa AAAA"


@pytest.mark.parametrize(("bucket_type", "code", "number"), [(4, "VALUE_NOT_ALLOWED", 3), (99, "INVALID_UPDATE", 1)])
def test_refusals_keep_their_code_and_number(bucket_type: int, code: str, number: int) -> None:
    with pytest.raises(InvalidError) as caught:
        leasehold.canonical_form(bucket_type, "two words")
    assert (caught.value.code, caught.value.number, caught.value.details) == (code, number, ())
    assert "two words" not in str(caught.value)


def test_b10_an_invalid_batch_names_every_claim() -> None:
    leasehold.check_batch([username("alice")], [Claim(BucketType.USERNAMES, "ALICE")])
    with pytest.raises(InvalidError) as caught:
        leasehold.check_batch([username("a"), username("a b"), username("A")], [username(" ")])
    details = [
        (detail.list, detail.position, detail.bucket_type, detail.code, detail.number) for detail in caught.value.details
    ]
    assert details == [
        ("creates", 1, 4, "VALUE_NOT_ALLOWED", 3),
        ("creates", 2, 4, "INVALID_UPDATE", 1),
        ("destroys", 0, 4, "VALUE_NOT_ALLOWED", 3),
    ]


def test_encoded_keys_keep_the_order_of_the_keys() -> None:
    keys = [0, 1, 255, 256, 65_536, 2**63 - 1]
    assert [int.from_bytes(leasehold.encode_source_id(key), "big") for key in keys] == keys
    assert len(leasehold.encode_source_id("01a1fefb-0383-7360-95c3-3b4e0d5dfab0")) == 16
    assert leasehold.encode_source_id("größe") == "größe".encode()


@pytest.mark.parametrize(("key", "code"), [(-1, "INVALID_UPDATE"), ("", "INVALID_UPDATE"), ("x" * 129, "LIMIT_EXCEEDED")])
def test_an_invalid_key_is_refused(key: int | str, code: str) -> None:
    with pytest.raises(InvalidError) as caught:
        leasehold.encode_source_id(key)
    assert caught.value.code == code


def test_arguments_of_wrong_types_raise_type_errors() -> None:
    with pytest.raises(TypeError):
        leasehold.encode_source_id(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bucket_value"):
        leasehold.check_batch([Claim(BucketType.USERNAMES, 7)])  # type: ignore[arg-type]


def test_a_bool_is_no_number() -> None:
    for key in (True, False):
        for call in (leasehold.encode_source_id, lambda key: Source.of(SourceType.USERS, key)):
            with pytest.raises(TypeError, match="the key is a bool: pass an integer, a string or a UUID"):
                call(key)
        with pytest.raises(TypeError, match="`id` is a bool: pass an integer"):
            Subject(SubjectType.USER, key)


# The package without the types of its arguments.
UNTYPED: Any = leasehold
WRONG_TYPES: list[tuple[Callable[[], object], str]] = [
    (lambda: UNTYPED.Source.of(SourceType.USERS, 1.5), "the key is a float: pass an integer, a string or a UUID"),
    (lambda: UNTYPED.encode_source_id(b"1"), "the key is a bytes: pass an integer, a string or a UUID"),
    (lambda: UNTYPED.canonical_form(True, "secret"), "`bucket_type` is a bool: pass an integer"),
    (lambda: UNTYPED.canonical_form("secret", "a"), "`bucket_type` is a str: pass an integer"),
    (lambda: UNTYPED.canonical_form(BucketType.USERNAMES, 4), "`value` is an int: pass a string"),
    (lambda: UNTYPED.ClaimsService().get(1.5, "secret"), "`bucket_type` is a float: pass an integer"),
    (lambda: UNTYPED.ClaimsService().get(BucketType.USERNAMES, b"secret"), "`value` is a bytes: pass a string"),
    (lambda: UNTYPED.check_batch(["secret"]), "`creates[0]` is a str: pass a `Claim`"),
    (lambda: UNTYPED.check_batch([username("a")], [None]), "`destroys[0]` is a NoneType: pass a `Claim`"),
    (lambda: UNTYPED.check_batch(username("a")), "`creates` is a Claim: pass a list"),
    (lambda: UNTYPED.check_batch("secret"), "`creates` is a str: pass a list"),
    (
        lambda: UNTYPED.check_batch([UNTYPED.Claim(4, b"a")]),
        "`creates[0].bucket_value` is a bytes: pass a string",
    ),
    (
        lambda: UNTYPED.check_batch([UNTYPED.Claim(4, "a", 7)]),
        "`creates[0].subject` is an int: pass a `Subject`",
    ),
    (
        lambda: UNTYPED.ClaimsService().begin(1, [UNTYPED.Claim(4, "a", None, UNTYPED.Source(1, "secret"))]),
        "`creates[0].source.id` is a str: pass bytes",
    ),
    (lambda: UNTYPED.ClaimsService().begin("1"), "`cell_id` is a str: pass an integer"),
    (lambda: UNTYPED.ClaimsService().begin(1, idempotency_key=7), "`idempotency_key` is an int: pass a string"),
    (lambda: UNTYPED.ClaimsService().begin(1, organization_id=True), "`organization_id` is a bool: pass an integer"),
    (lambda: UNTYPED.ClaimsService().commit(1, 7), "`lease_uuid` is an int: pass a string"),
    (lambda: UNTYPED.ClaimsService().rollback(None, "secret"), "`cell_id` is a NoneType: pass an integer"),
    (lambda: UNTYPED.ClaimsService().list_leases(True), "`cell_id` is a bool: pass an integer"),
    (lambda: UNTYPED.ClaimsService().list_leases(1, limit=1.5), "`limit` is a float: pass an integer"),
    (lambda: UNTYPED.ClaimsService().list_leases(1, cursor=b"secret"), "`cursor` is a bytes: pass a string"),
    (lambda: UNTYPED.ClaimsService().list_records(1, "1"), "`source_type` is a str: pass an integer"),
    (lambda: UNTYPED.ClaimsService().list_records(1, 1, after="secret"), "`after` is a str: pass bytes"),
    (lambda: UNTYPED.ClaimsService().list_records(1, 1, bucket_types=7), "`bucket_types` is an int: pass a list"),
    (lambda: UNTYPED.ClaimsService().list_records(1, 1, bucket_types=["1"]), "`bucket_types[0]` is a str: pass an integer"),
    (lambda: UNTYPED.ClaimsService().begin(1, [username("a"), "secret"]), "`creates[1]` is a str: pass a `Claim`"),
]


@pytest.mark.parametrize(("call", "message"), WRONG_TYPES)
def test_an_argument_of_a_wrong_type_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize("seconds", ["1", None, True, 0, -1, float("nan"), float("inf"), 10**400])
def test_a_timeout_is_a_positive_finite_number(seconds: Any) -> None:
    with pytest.raises(MisconfiguredError, match=r"^`timeout_seconds` is .*: pass a positive, finite number of seconds$"):
        Client(timeout_seconds=seconds)


def test_a_limit_that_no_request_can_hold_is_refused() -> None:
    with Client(cell_id=1) as client:
        for limit, kind in ((2**31, InvalidError), (True, TypeError), ("1", TypeError)):
            with pytest.raises(kind, match="`limit` is "):
                client.list_leases(limit=limit)  # type: ignore[arg-type]


def test_a_uuid_is_a_key() -> None:
    key = uuid.UUID("01a1fefb-0383-7360-95c3-3b4e0d5dfab0")
    assert leasehold.encode_source_id(key) == leasehold.encode_source_id(str(key)) == key.bytes
    assert Source.of(SourceType.USERS, key) == Source(SourceType.USERS, key.bytes)


def test_a_service_has_cells() -> None:
    for cells, message in (
        ([], "`cells` is empty: pass the id of at least one cell"),
        ([-1], "`cells[0]` is -1: pass an integer from 1 to 9223372036854775807"),
        ([1, 0], "`cells[1]` is 0: pass an integer from 1 to 9223372036854775807"),
        ([2**63], "`cells[0]` is 9223372036854775808: pass an integer from 1 to 9223372036854775807"),
        (["secret"], "`cells[0]` is a str: pass an integer from 1 to 9223372036854775807"),
        (7, "`cells` is 7: pass a list"),
    ):
        with pytest.raises(InvalidError) as caught:
            ClaimsService(cells)  # type: ignore[arg-type]
        assert str(caught.value) == message


def test_a_number_that_is_out_of_range_is_refused_when_it_is_set() -> None:
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: Subject(SubjectType.USER, 2**63), "`id` is out of range: the largest is 2**63 - 1"),
        (lambda: Subject(2**31, 7), "`subject_type` is out of range: the largest is 2**31 - 1"),
        (lambda: Source(2**31, b"1"), "`source_type` is out of range: the largest is 2**31 - 1"),
        (lambda: Claim(2**31, "ann"), "`bucket_type` is out of range: the largest is 2**31 - 1"),
        (lambda: leasehold.Bucket(2**31, "ann"), "`bucket_type` is out of range: the largest is 2**31 - 1"),
    ]
    for call, message in calls:
        with pytest.raises(InvalidError) as caught:
            call()
        assert (caught.value.code, str(caught.value)) == ("INVALID_ARGUMENT", message)
    assert Subject(2**31 - 1, 2**63 - 1).id == 2**63 - 1


def test_a_page_has_a_row() -> None:
    for rows in (0, -1):
        for call in (
            lambda rows=rows: reconciliation.Reconciliation(stale_after_seconds=1, rows_per_page=rows),
            lambda rows=rows: verification.Verification(
                source_type=SourceType.USERS, bucket_types=[], recent_within_seconds=0, rows_per_page=rows
            ),
        ):
            with pytest.raises(InvalidError, match=f"`rows_per_page` is {rows}: pass an integer from 1"):
                call()


LARGE: list[Callable[[], object]] = [
    lambda: leasehold.encode_source_id(2**63),
    lambda: leasehold.encode_source_id(-(2**70)),
    lambda: Source.of(SourceType.USERS, 2**63),
    lambda: leasehold.canonical_form(2**31, "secret"),
    lambda: leasehold.check_batch([Claim(BucketType.USERNAMES, "secret", Subject(SubjectType.USER, 2**63))]),
    lambda: leasehold.check_batch([], [Claim(2**31, "secret")]),
    lambda: ClaimsService().begin(2**63, [username("secret")]),
    lambda: ClaimsService().begin(1, [Claim(BucketType.USERNAMES, "secret", None, Source(2**31, b"1"))]),
    lambda: ClaimsService().get(2**31, "secret"),
    lambda: ClaimsService().list_leases(2**63),
    lambda: ClaimsService().list_records(1, 2**31),
    lambda: ClaimsService().commit(2**63, "01a1fefb-0383-7360-95c3-3b4e0d5dfab0"),
    lambda: ClaimsService().rollback(2**63, "01a1fefb-0383-7360-95c3-3b4e0d5dfab0"),
]
SURROGATES: list[Callable[[], object]] = [
    lambda: leasehold.encode_source_id("secret\udc4d"),
    lambda: Source.of(SourceType.USERS, "secret\ud83d"),
    lambda: leasehold.canonical_form(BucketType.USERNAMES, "secret\ud83d"),
    lambda: leasehold.check_batch([username("secret\ud83d")]),
    lambda: leasehold.check_batch([], [username("secret\ud83d")]),
    lambda: ClaimsService().begin(1, [username("secret\ud83d")]),
    lambda: ClaimsService().begin(1, [username("secret")], idempotency_key="\ud83d"),
    lambda: ClaimsService().commit(1, "\ud83d"),
    lambda: ClaimsService().get(BucketType.USERNAMES, "secret\ud83d"),
    lambda: ClaimsService().list_leases(1, cursor="\ud83d"),
]


@pytest.mark.parametrize(
    ("call", "words"),
    [*((call, "out of range") for call in LARGE), *((call, "lone surrogate") for call in SURROGATES)],
    ids=[*(f"integer {at}" for at in range(len(LARGE))), *(f"text {at}" for at in range(len(SURROGATES)))],
)
def test_v09_integers_and_texts_that_the_engine_cannot_hold_are_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidError, match=words) as caught:
        call()
    assert caught.value.code == "INVALID_ARGUMENT"
    assert "secret" not in "".join(traceback.format_exception_only(caught.value))
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)


def test_rows_and_records_that_the_engine_cannot_hold_are_refused() -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    run = verification.Verification(
        source_type=SourceType.USERS, bucket_types=[BucketType.USERNAMES], recent_within_seconds=0, rows_per_page=1
    )
    run.bound(None)
    record = Record("", username("secret\ud83d"), 1, "ACTIVE", None, now, now)
    with pytest.raises(InvalidError, match="lone surrogate"):
        run.records(RecordPage((record,), False, now))
    run.records(RecordPage((), False, now))
    with pytest.raises(InvalidError, match="lone surrogate"):
        run.rows([verification.Row(b"1", [username("secret\ud83d")])], now=now)
