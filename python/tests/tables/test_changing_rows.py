"""Tests of database rows that change while a verification run corrects their claims."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import psycopg
import pytest
from support.claims_server import ClaimsServer
from support.postgres_cluster import PostgresCluster, execute
from support.users import COLUMNS, User, in_postgres, postgres_table
from typing_extensions import LiteralString

from leasehold import BucketType, SourceType
from leasehold.client import Client, Update
from leasehold.tables import Table, verify_table
from leasehold.tables import postgres as tables
from leasehold.tables.postgres import PostgresTable
from leasehold.verification import Report


class Hooked(Client):
    """A client that calls a hook once, before its first update begins."""

    hook: Callable[[], object] | None = None

    def update(self, **wanted: object) -> Update:
        """Call the hook if it has not been called yet, then return the update."""
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()
        return super().update(**wanted)  # type: ignore[arg-type]


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Hooked]:
    with Hooked(embedded.url, cell_id=1) as client:
        yield client


@pytest.fixture
def url(cluster: PostgresCluster) -> str:
    return in_postgres(cluster.create_database(), [User(1, "ann"), User(2, "bob"), User(3, "carol")])


def correct(client: Client, table: Table) -> Report:
    return verify_table(
        client, table, source_type=SourceType.USERS, apply=True, recent_within_seconds=1e-6, max_destroy_share=1
    ).report


def claimed(client: Client) -> set[str]:
    types = [BucketType.USERNAMES, BucketType.EMAILS]
    return {record.claim.bucket_value for record in client.records(SourceType.USERS, types)}


def test_v03_rows_that_change_before_the_begin_get_no_claim(client: Hooked, url: str) -> None:
    def change() -> None:
        execute(url, "UPDATE users SET username = 'anna' WHERE id = 1")
        execute(url, "DELETE FROM users WHERE id = 2")

    client.hook = change
    report = correct(client, postgres_table(url))
    assert (report.changed, report.created) == (2, 1)
    assert claimed(client) == {"carol"}
    assert list(client.leases()) == []
    correct(client, postgres_table(url))
    assert claimed(client) == {"anna", "carol"}


@pytest.mark.parametrize("statement", ["UPDATE users SET username = 'bo' WHERE id = 2", "DELETE FROM users WHERE id = 2"])
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "beside a locker"])
def test_v02_a_row_in_an_open_transaction_is_left_to_a_later_run(
    client: Client, url: str, statement: LiteralString, *, shared: bool
) -> None:
    with psycopg.connect(url) as locker, psycopg.connect(url) as writer:
        if shared and statement.startswith("UPDATE"):
            # A foreign key check takes this lock. With a locker and a writer, the `xmax` of the row is a multixact id.
            locker.execute("SELECT FROM users WHERE id = 2 FOR KEY SHARE")
        writer.execute(statement)
        report = correct(client, postgres_table(url))
        assert (report.recent, report.created) == (1, 2)
        assert claimed(client) == {"ann", "carol"}
        assert list(client.leases()) == []
        writer.rollback()
        locker.rollback()
    assert correct(client, postgres_table(url)).created == 1
    assert claimed(client) == {"ann", "bob", "carol"}


def test_v02_a_row_changed_after_its_records_were_listed_is_recent(
    client: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This fake clock advances 100 seconds while the records are listed. Row 2 is written in that time.
    clock = SimpleNamespace(monotonic=itertools.count(0, 100).__next__)
    monkeypatch.setattr("leasehold.tables._verify.time", clock)
    execute(url, "UPDATE users SET updated_at = clock_timestamp() - interval '50 seconds' WHERE id = 2")
    report = verify_table(
        client, postgres_table(url), source_type=SourceType.USERS, apply=True, recent_within_seconds=10
    ).report
    assert (report.rows_recent, report.created) == (1, 2)


def test_v02_a_partition_row_in_an_open_transaction_is_left_to_a_later_run(client: Client, url: str) -> None:
    execute(url, "CREATE TABLE parts (LIKE users) PARTITION BY HASH (id)")
    execute(url, "CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    execute(url, "INSERT INTO parts SELECT * FROM users")
    with psycopg.connect(url) as writer:
        writer.execute("UPDATE parts SET username = 'bo' WHERE id = 2")
        report = correct(client, PostgresTable(url, "parts", COLUMNS))
    assert (report.recent, report.created) == (1, 2)


def test_rows_of_a_view_are_read_without_the_xmax_test(client: Client, url: str) -> None:
    execute(url, "CREATE VIEW people AS SELECT * FROM users")
    assert correct(client, PostgresTable(url, "people", COLUMNS)).created == 3


def test_an_interrupt_between_begin_and_commit_leaves_no_lease(
    client: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outstanding: list[int] = []

    def interrupt(*_: object, **__: object) -> None:
        outstanding.append(len(list(client.leases())))
        raise KeyboardInterrupt

    monkeypatch.setattr(tables._PostgresReader, "feed_again", interrupt)
    with pytest.raises(KeyboardInterrupt):
        correct(client, postgres_table(url))
    assert outstanding == [1]
    assert list(client.leases()) == []
    assert claimed(client) == set()


def test_a_lost_database_connection_between_begin_and_commit_leaves_no_lease(client: Hooked, url: str) -> None:
    def end() -> None:
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        execute(url, others + " AND pid <> pg_backend_pid()")

    client.hook = end
    with pytest.raises(psycopg.OperationalError):
        correct(client, postgres_table(url))
    assert list(client.leases()) == []
    assert claimed(client) == set()
