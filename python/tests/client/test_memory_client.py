"""Tests of the client of a service in memory: it answers as the client of a server does."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from support.claims import bucket, raised_by, username
from support.claims_server import ClaimsServer
from support.users import COLUMNS, User, as_arrow, claim, just_now

from leasehold import BucketType, Claim, ClaimsService, SourceType, TakenError
from leasehold.claims import Record
from leasehold.client import Client
from leasehold.errors import LeaseholdError, MisconfiguredError
from leasehold.tables import verify_table
from leasehold.tables.files import arrow_table

USERS = (SourceType.USERS, [BucketType.USERNAMES])
NAMES = [f"name{number}" for number in range(5)]


class Player:
    """Makes the calls that a seed decides, with clients of two cells. The ids of leases are replaced by their order."""

    def __init__(self, seed: int, clients: list[Client]) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a test needs no secrets
        self._clients = clients
        self._leases: list[str] = []
        self._calls = [
            self._begin,
            self._begin,
            self._commit,
            self._roll_back,
            self._get,
            self._list_records,
            self._list_leases,
        ]

    def play(self) -> object:
        """Make one call. Return what it returns or raises, without ids and times."""
        client, call = self._random.choice(self._clients), self._random.choice(self._calls)
        try:
            return call(client)
        except LeaseholdError as error:
            # The server's messages name the fields of the wire, and those of the engine the parameters.
            details = [(detail.list, detail.position, detail.bucket_type, detail.code) for detail in error.details]
            return (type(error), error.code, details, error.outcome_is_unknown, self._number(error.lease_uuid))

    def _begin(self, client: Client) -> object:
        lists: list[list[Claim]] = [
            [username(self._random.choice(NAMES), self._random.randint(1, 3)) for _ in range(self._random.randint(0, 2))]
            for _ in range(2)
        ]
        # Some keys are sent twice, with the same update or another one.
        lease = client.begin(*lists, idempotency_key=f"key{self._random.randint(1, 40)}")
        if lease.uuid not in self._leases:
            self._leases.append(lease.uuid)
        return self._number(lease.uuid)

    def _commit(self, client: Client) -> object:
        client.commit(self._lease())
        return None

    def _roll_back(self, client: Client) -> object:
        client.rollback(self._lease())
        return None

    def _lease(self) -> str:
        return self._random.choice([*self._leases, "01a1fefb-0383-7360-95c3-3b4e0d5dfab0"])

    def _get(self, client: Client) -> object:
        found = client.get(bucket(self._random.choice(NAMES).upper()))
        return found.cell and found.cell.id, self._known(found.record)

    def _list_records(self, client: Client) -> object:
        return [self._known(record) for record in client.records(*USERS)]

    def _list_leases(self, client: Client) -> object:
        pages = list(client.lease_pages(limit=self._random.randint(1, 3)))
        return [[self._number(lease.uuid) for lease in page.leases] for page in pages]

    def _known(self, record: Record) -> object:
        return record.claim, record.cell_id, record.status, self._number(record.lease_uuid)

    def _number(self, uuid: str | None) -> int | None:
        return self._leases.index(uuid) if uuid in self._leases else None


@pytest.mark.parametrize("seed", range(3))
def test_a_service_in_memory_answers_as_a_server_does(seed: int) -> None:
    service = ClaimsService(cells=[1, 2])
    with ClaimsServer() as server, Client(server.url, cell_id=1) as one, Client(server.url, cell_id=2) as other:
        players = [Player(seed, [one, other]), Player(seed, [service.client(1), service.client(2)])]
        answers = [[player.play() for player in players] for _ in range(400)]
    assert [pair for pair in answers if pair[0] != pair[1]] == []
    assert {type(first).__name__ for first, _ in answers} >= {"int", "tuple", "list", "NoneType"}


def test_an_update_of_a_service_in_memory_commits_and_rolls_back() -> None:
    service = ClaimsService(cells=[1, 2])
    one, other = service.client(1), service.client(2)
    with one.update(creates=[username("alice")]):
        assert [lease.uuid for lease in one.leases()] != []
    assert (list(one.leases()), one.get(bucket("ALICE")).record.status) == ([], "ACTIVE")
    refused = raised_by(lambda: other.begin([username("alice")], idempotency_key="again"))
    assert (type(refused), refused.idempotency_key) == (TakenError, "again")
    with pytest.raises(ZeroDivisionError), one.update(destroys=[username("alice")]):
        raise ZeroDivisionError
    assert one.get(bucket("alice")).record.status == "ACTIVE"


def test_a_table_is_verified_with_a_service_in_memory() -> None:
    client = ClaimsService().client(1)
    users = [User(key, f"user{key}") for key in range(1, 50)]
    claim(client, users[:40])
    table = arrow_table(as_arrow(users), COLUMNS, taken_at=just_now())
    report = verify_table(client, table, source_type=SourceType.USERS, apply=True, recent_within_seconds=0.0).report
    assert report.created == 9
    assert {record.claim.bucket_value for record in client.records(*USERS)} == {user.username for user in users}


CALLS: list[Callable[[Client], object]] = [
    lambda client: client.get_lock("cron", "backup"),
    lambda client: client.submit("mails", "7"),
    lambda client: client.classify_first_cell(),
    lambda client: client.lock_session().__enter__(),
    lambda client: list(client.take("mails")),
]


@pytest.mark.parametrize("call", CALLS, ids=["get_lock", "submit", "classify", "session", "take"])
def test_calls_that_need_a_server_are_refused(call: Callable[[Client], object]) -> None:
    error = raised_by(lambda: call(ClaimsService().client(1)))
    assert (type(error), "use a `Client` of a server" in str(error)) == (MisconfiguredError, True)


def test_a_closed_client_leaves_the_service_as_it_is() -> None:
    service = ClaimsService()
    with service.client(1) as client:
        client.begin([username("alice")])
    assert raised_by(lambda: client.get(bucket("alice"))).code == "CLOSED"
    assert service.client(1).get(bucket("alice")).record.status == "LEASE_CREATING"
