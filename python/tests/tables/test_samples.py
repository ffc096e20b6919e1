"""Tests of samples: a person can find the row and the reason by them, and two runs give the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet
import pytest
from support.claims_server import ClaimsServer
from support.users import COLUMNS, User, as_arrow, claim

from leasehold import BucketType, Claim, Source, SourceType, Subject, SubjectType, errors
from leasehold.client import Client
from leasehold.tables import VerificationResult, verify_table
from leasehold.tables.files import arrow_table, parquet_table
from leasehold.verification import ClaimColumns, Report, TableColumns

USERNAME = TableColumns("id", [ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "owner")])
UUIDS = [UUID(int=1), UUID("f1a1fefb-0383-7360-95c3-3b4e0d5dfab0")]


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url, cell_id=1) as client:
        yield client


def verify(client: Client, data: pa.Table, columns: TableColumns = USERNAME, **options: Any) -> VerificationResult:
    return verify_table(client, arrow_table(data, columns), source_type=SourceType.USERS, recent_within_seconds=0, **options)


def owned(keys: Any, names: list[str] | None = None, owner: list[int] | None = None) -> pa.Table:
    return pa.table({"id": keys, "username": names or ["ann", "bob"], "owner": owner or [1, 2]})


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([1000, 2**62], [1000, 2**62]),
        (["1000", "31"], ["1000", "31"]),
        (["a name of 16 b.", "eightchr"], ["a name of 16 b.", "eightchr"]),
        (["größe", "zoë"], ["größe", "zoë"]),
        ([str(key) for key in UUIDS], UUIDS),
        (pa.array([key.bytes for key in UUIDS], pa.uuid()), UUIDS),
        (pa.array([key.bytes for key in UUIDS], pa.binary()), UUIDS),
        (pa.array([b"\0\0\0\0\0\0\0\7", b"\xff"]), [7, b"\xff"]),
    ],
)
def test_keys_are_shown_as_in_the_table(client: Client, keys: Any, expected: list[object]) -> None:
    data = owned(keys).sort_by("id") if isinstance(keys, list) and isinstance(keys[0], str) else owned(keys)
    found = verify(client, data)
    assert sorted(map(repr, (sample.key for sample in found.samples))) == sorted(map(repr, expected))


def test_keys_of_other_kinds_are_shown_as_what_they_are(client: Client) -> None:
    subject = Subject(SubjectType.USER, 1)
    sources = [Source.of(SourceType.USERS, key) for key in (31, "31", str(UUIDS[1]))]
    names = [Claim(BucketType.USERNAMES, f"extra{at}", subject, source) for at, source in enumerate(sources)]
    with client.update(creates=names):
        pass
    for keys in ([1, 2], ["1", "2"]):
        extra = {sample.key for sample in verify(client, owned(keys)).samples if sample.outcome == "destroyed"}
        assert extra == {31, "31", UUIDS[1]}


@pytest.mark.parametrize(
    ("name", "owner", "reason"),
    [
        ("two words", 1, "the value is not allowed: the value has white space where its type allows none"),
        ("", 1, "the value is not allowed: the value is empty"),
        ("x" * 2000, 1, "a limit is exceeded: `bucket_value_bytes` is 2000, at most 1024 is allowed"),
        ("ann", 0, "the request is not valid: `subject.id` is not 1 or more"),
    ],
)
def test_an_invalid_claim_has_a_reason(client: Client, name: str, owner: int, reason: str) -> None:
    (sample,) = verify(client, owned([7, 8], [name, "bob"], [owner, 2])).samples[:1]
    assert (sample.outcome, sample.bucket_type, sample.key, sample.reason) == ("invalid", BucketType.USERNAMES, 7, reason)
    assert sample.type_name == "USERNAMES"


def test_v09_two_runs_give_the_same_samples_without_values(client: Client) -> None:
    claim(client, [User(1, "ann"), User(3, "carol"), User(4, "dan")])
    data = as_arrow([User(1, "ann"), User(2, "bob"), User(3, "Carol"), User(5, "not allowed")])
    first, second = (verify(client, data, COLUMNS).samples for _ in range(2))
    assert repr(first) == repr(second)
    assert first == second
    assert {sample.outcome for sample in first} == {"created", "replaced", "destroyed", "invalid"}
    assert all(sample.reason for sample in first)
    assert not any(name in repr(first) for name in ("ann", "bob", "carol", "Carol", "dan'", "not allowed'"))


def test_a_run_that_fails_while_it_reads_samples_reports_its_counts(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "users.parquet"
    pyarrow.parquet.write_table(owned([1, 2], ["ann", "not allowed"]), path)
    partial: list[VerificationResult] = []

    def remove(_: Report) -> None:
        path.unlink(missing_ok=True)

    table = parquet_table(path, USERNAME)
    with pytest.raises(errors.MisconfiguredError):
        verify_table(client, table, source_type=SourceType.USERS, on_progress=remove, on_failure=partial.append)
    assert [(sample.key, sample.outcome) for sample in partial[0].samples] == [(2, "invalid"), (1, "created")]
