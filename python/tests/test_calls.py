"""Tests of the pure functions in `leasehold.calls`."""

from __future__ import annotations

import pytest

import leasehold
from leasehold import BucketType, Claim, InvalidError, Source, SourceType, Subject, SubjectType


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
    with pytest.raises(OverflowError):
        leasehold.encode_source_id(2**70)
    with pytest.raises(TypeError, match="bucket_value"):
        leasehold.check_batch([Claim(BucketType.USERNAMES, 7)])  # type: ignore[arg-type]
