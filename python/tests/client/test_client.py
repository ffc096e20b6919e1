"""Tests of the blocking client, on the real server with each of its stores."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import partial
from uuid import UUID, uuid4

import pytest
from support.claims import bucket, raised_by, username
from support.claims_server import ClaimsServer

from leasehold import BucketType, Claim, SourceType, UserData, encode_source_id, errors
from leasehold.client import Client
from leasehold.errors import LeaseholdError

USERS = (SourceType.USERS, [BucketType.USERNAMES])


def other_cell(server: ClaimsServer) -> Client:
    return Client(server.url, cell_id=2)


def test_b20_b13_b32_a_committed_claim_can_be_listed_and_read(client: Client) -> None:
    claim = username("Alice")
    lease = client.begin([claim])
    assert lease.fence >= 1
    assert [outstanding.uuid for outstanding in client.leases()] == [lease.uuid]

    client.commit(lease.uuid)
    assert list(client.leases()) == []
    page = client.list_records(*USERS)
    assert [record.claim for record in page.records] == [claim]
    assert not page.truncated
    assert abs(page.server_time - datetime.now(timezone.utc)) < timedelta(minutes=10)

    found = client.get(bucket("ALICE"))
    assert (found.record.cell_id, found.record.status, found.record.lease_uuid) == (1, "ACTIVE", None)
    assert found.cell is not None
    assert found.cell.name == "cell-1"

    later = client.begin(destroys=[Claim(claim.bucket_type, "alice")])
    assert later.fence > lease.fence
    client.commit(later.uuid)
    assert isinstance(raised_by(lambda: client.get(bucket("alice"))), errors.NotFoundError)


def test_a_client_of_one_store_refuses_another_and_changes_nothing(client: Client, server: ClaimsServer) -> None:
    own = Client(server.url, cell_id=1, store_id=server.store_id.upper())
    own.commit(own.begin([username("alice")]).uuid)
    expected = UUID(int=0)
    other = Client(server.url, cell_id=1, store_id=expected)
    for call in (
        lambda: other.begin([username("bob")]),
        lambda: other.begin([username("alice")]),
        lambda: other.commit(str(expected)),
        other.cells,
    ):
        error = raised_by(call)
        assert isinstance(error, errors.OtherStoreError)
        assert server.store_id in error.message
        assert str(expected) in error.message
    assert isinstance(raised_by(lambda: client.get(bucket("bob"))), errors.NotFoundError)
    assert list(client.leases()) == []
    with pytest.raises(errors.MisconfiguredError, match="`store_id` is 'my store'"):
        Client(server.url, store_id="my store")


def test_b21_a_rolled_back_name_can_be_claimed_by_another_cell(client: Client, server: ClaimsServer) -> None:
    lease = client.begin([username("alice")])
    client.rollback(lease.uuid)
    assert list(client.leases()) == []
    with other_cell(server) as other:
        other.begin([username("alice")])


def test_b10_details_name_every_refused_claim(client: Client, server: ClaimsServer) -> None:
    with other_cell(server) as other:
        with other.update(creates=[username("taken"), username("theirs")]):
            pass
        other.begin([username("busy")])
    creates = [username("free"), username("Taken"), username("BUSY")]

    error = raised_by(lambda: client.begin(creates, [username("absent"), username("theirs")]))
    assert isinstance(error, errors.NotOwnerError)
    assert (error.code, error.number) == ("NOT_OWNER", 6)
    assert [(detail.list, detail.position, detail.bucket_type, detail.code, detail.number) for detail in error.details] == [
        ("creates", 1, 4, "CLAIM_TAKEN", 9),
        ("creates", 2, 4, "CLAIM_BUSY", 12),
        ("destroys", 0, 4, "CLAIM_NOT_FOUND", 10),
        ("destroys", 1, 4, "NOT_OWNER", 6),
    ]


def test_each_refusal_raises_its_class(client: Client, server: ClaimsServer) -> None:
    held = username("held", 7)
    with client.update(creates=[held]):
        pass
    busy = client.begin([username("busy")]).uuid
    gone = client.begin([username("gone")]).uuid
    client.rollback(gone)
    kept = client.begin([username("kept")]).uuid
    client.commit(kept)
    with other_cell(server) as other:
        cases: list[tuple[type[LeaseholdError], LeaseholdError]] = [
            (errors.TakenError, raised_by(lambda: client.begin([held]))),
            (errors.BusyError, raised_by(lambda: client.begin([username("busy")]))),
            (errors.ChangedError, raised_by(lambda: client.begin(destroys=[username("held", 8)]))),
            (errors.NotFoundError, raised_by(lambda: client.begin(destroys=[username("absent")]))),
            (errors.NotOwnerError, raised_by(lambda: other.commit(busy))),
            (errors.InvalidError, raised_by(lambda: client.begin([username("two words")]))),
            (errors.InvalidError, raised_by(client.begin)),
            (errors.RolledBackError, raised_by(lambda: client.commit(gone))),
            (errors.CommittedError, raised_by(lambda: client.rollback(kept))),
        ]
    assert [type(error) for _, error in cases] == [expected for expected, _ in cases]
    assert all(error.number > 0 and not error.outcome_is_unknown for _, error in cases)


def test_b03_only_temporary_refusals_carry_a_retry_delay(client: Client, server: ClaimsServer) -> None:
    client.begin([username("alice")])
    with other_cell(server) as other:
        busy = raised_by(lambda: other.begin([username("alice")]))
    assert busy.is_temporary
    assert (busy.retry_after_seconds or 0) > 0
    invalid = raised_by(lambda: client.begin([username("two words")]))
    assert not invalid.is_temporary
    assert invalid.retry_after_seconds is None


def test_b11_an_exceeded_limit_carries_its_figures(client: Client) -> None:
    error = raised_by(lambda: client.begin([username("x" * 1025)]))
    assert (error.code, error.metadata["limit"], error.metadata["actual"]) == (
        "LIMIT_EXCEEDED",
        "bucket_value_bytes",
        "1025",
    )


def test_b09_the_organization_is_part_of_the_begin(client: Client) -> None:
    first = client.begin([username("alice")], organization_id=5, idempotency_key="mine")
    with client.update(creates=[username("alice")], organization_id=5, idempotency_key="mine") as update:
        assert update.lease == first
    for other in (None, 6):
        again = partial(client.begin, [username("alice")], organization_id=other, idempotency_key="mine")
        error = raised_by(again)
        assert error.code == "IDEMPOTENCY_KEY_REUSED"


def test_b09_one_idempotency_key_begins_one_lease(client: Client) -> None:
    first = client.begin([username("alice")], idempotency_key="mine")
    assert client.begin([username("alice")], idempotency_key="mine") == first
    error = raised_by(lambda: client.begin([username("bob")], idempotency_key="mine"))
    assert (error.code, error.idempotency_key) == ("IDEMPOTENCY_KEY_REUSED", "mine")


def test_user_data_is_returned_unchanged(client: Client) -> None:
    claim = Claim(
        BucketType.USERNAMES,
        "alice",
        username("alice").subject,
        username("alice").source,
        UserData("type.example.com/of.Tomorrow", b"\x00\x01"),
    )
    with client.update(creates=[claim]):
        pass
    assert client.get(claim.bucket).record.claim == claim


@pytest.mark.parametrize("value", ["secret", None, 1.5])
def test_a_field_of_the_wrong_type_is_named_by_position_without_its_value(client: Client, value: object) -> None:
    subject = username("alice").subject
    wrong = username("alice")
    object.__setattr__(subject, "id", value)
    object.__setattr__(wrong, "subject", subject)
    error = raised_by(lambda: client.begin([username("bob"), wrong]))
    if value is None:
        # proto3 omits a missing integer, so the server reads the id 0 and refuses it.
        assert error.code == "INVALID_UPDATE"
        return
    assert isinstance(error, errors.InvalidError)
    assert [(detail.list, detail.position, detail.code) for detail in error.details] == [("creates", 1, "INVALID_UPDATE")]
    assert str(value) not in str(error)


def test_arguments_of_wrong_types_are_named(client: Client) -> None:
    for settle in (client.commit, client.rollback):
        for value in (uuid4(), None):
            with pytest.raises(TypeError, match="`lease_uuid`"):
                settle(value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`created_after`"):
        client.list_leases(created_after="2026-01-01")  # type: ignore[arg-type]


def test_b31_lease_pages_follow_the_cursor(client: Client) -> None:
    begun = [client.begin([username(f"user{n}")]).uuid for n in range(5)]
    pages = list(client.lease_pages(limit=2))
    assert [len(page.leases) for page in pages] == [2, 2, 1]
    assert [lease.uuid for page in pages for lease in page.leases] == begun
    assert list(client.leases(created_after=datetime.now(timezone.utc) + timedelta(minutes=1))) == []
    assert raised_by(lambda: client.list_leases(cursor="nonsense")).code == "INVALID_UPDATE"
    assert "time zone" in str(raised_by(lambda: client.list_leases(created_after=datetime(2026, 1, 1))))  # noqa: DTZ001


def test_b32_record_pages_are_complete_and_ordered(client: Client) -> None:
    names = [f"user{key:04}" for key in range(1, 2501)]
    for start in range(0, len(names), 500):
        batch = [username(name, start + at + 1) for at, name in enumerate(names[start : start + 500])]
        with client.update(creates=batch):
            pass
    assert len(list(client.record_pages(*USERS))) > 1
    assert [record.claim.bucket_value for record in client.records(*USERS)] == names
    part = client.records(*USERS, after=encode_source_id(10), upto=encode_source_id(12))
    assert [record.claim.bucket_value for record in part] == ["user0011", "user0012"]


def test_b30_classifies_by_claims_sessions_and_cells(client: Client) -> None:
    with client.update(creates=[username("Alice")]):
        pass
    first, second = client.cells()
    found = client.classify(bucket("nobody"), bucket("ALICE"))
    assert (found.address, found.matched) == (first.address, bucket("ALICE"))
    assert client.classify_session(second.session_prefix).address == second.address
    assert client.classify_cell(2).address == second.address
    assert client.classify_first_cell().address == first.address
    assert isinstance(raised_by(lambda: client.classify(bucket("nobody"))), errors.NotFoundError)
    assert raised_by(lambda: client.classify(Claim(99, "x").bucket)).code == "INVALID_UPDATE"
    assert "integer" in str(raised_by(lambda: client.classify(Claim(BucketType.USER_IDS, "x").bucket)))
    assert isinstance(raised_by(lambda: client.classify(Claim(BucketType.USER_IDS, "7").bucket)), errors.NotFoundError)


def test_a_client_without_a_cell_raises_where_it_needs_one(server: ClaimsServer) -> None:
    with Client(server.url) as client:
        assert "`cell_id`" in str(raised_by(lambda: client.begin([username("alice")])))
        assert len(client.cells()) == 2
