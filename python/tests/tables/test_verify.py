"""Tests of `verify_table` against the real server, for tables in a database, in dump files and in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from support import users as sources
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.postgres_cluster import PostgresCluster
from support.users import COLUMNS, User, as_arrow, claim, in_postgres

from leasehold import BucketType, Source, SourceType, Subject, SubjectType, errors
from leasehold.client import Client, Retry
from leasehold.tables import Table, VerificationResult, verify_table
from leasehold.tables.files import arrow_table
from leasehold.tables.postgres import PostgresTable
from leasehold.verification import ClaimColumns, Report, TableColumns

Make = Callable[[Sequence[User]], Table]
TYPES = [BucketType.USERNAMES, BucketType.EMAILS]

# Rows 1 and 2 are claimed correctly, row 3 in another spelling, and row 4 not at all. Row 5 is claimed under its former name.
# Row 6 was deleted after it was claimed.
ROWS = [
    User(1, "ann", "ann@example.com"),
    User(2, "bob"),
    User(3, "Carol"),
    User(4, "dan", "dan@example.com"),
    User(5, "erin"),
]
CLAIMED = [User(1, "ann", "ann@example.com"), User(2, "bob"), User(3, "carol"), User(5, "eric"), User(6, "frank")]


@pytest.fixture(params=["postgres", *(dump.__name__ for dump in sources.DUMPS)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a function that creates a `Table` of users, for each kind of table in turn."""
    if request.param == "postgres":
        cluster: PostgresCluster = request.getfixturevalue("cluster")
        return lambda users: sources.postgres_table(in_postgres(cluster.create_database(), users))
    dump = next(dump for dump in sources.DUMPS if dump.__name__ == request.param)
    return lambda users: dump(tmp_path, users)


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url, cell_id=1) as client:
        yield client


def verify(client: Client, table: Table, **options: object) -> VerificationResult:
    sources.renew(table)
    # The claims are only seconds old, so a threshold of 0 is needed to correct them. With few claims, each is a large share.
    settings = {"source_type": SourceType.USERS, "recent_within_seconds": 0.0, "max_destroy_share": 1.0, **options}
    return verify_table(client, table, **settings)  # type: ignore[arg-type]


def claimed(client: Client) -> set[str]:
    return {record.claim.bucket_value for record in client.records(SourceType.USERS, TYPES)}


def test_v01_a_dry_run_reports_differences_and_changes_nothing(client: Client, make: Make) -> None:
    claim(client, CLAIMED)
    before = list(client.records(SourceType.USERS, TYPES))
    found = verify(client, make(ROWS))
    report = found.report
    assert (report.dry_run, report.rows, report.claims, report.records) == (True, 5, 7, 6)
    assert (report.missing, report.different, report.extra) == (3, 1, 2)
    assert (found.is_finished, found.is_clean) == (True, False)
    outcomes = sorted(sample.finding.outcome for sample in found.samples)
    assert outcomes == ["created", "created", "created", "destroyed", "destroyed", "replaced"]
    assert list(client.records(SourceType.USERS, TYPES)) == before
    assert list(client.leases()) == []


def test_v09_samples_contain_no_values_unless_show_values_is_set(client: Client, make: Make) -> None:
    claim(client, CLAIMED)
    table = make(ROWS)
    assert not any(name in repr(verify(client, table).samples) for name in ("dan", "erin", "carol", "frank"))
    shown = {
        (sample.finding.outcome, int(sample.finding.source_id, 16), sample.in_table, sample.in_service)
        for sample in verify(client, table, show_values=True).samples
        if sample.finding.bucket_type == BucketType.USERNAMES
    }
    assert shown == {
        ("created", 4, ("dan",), ()),
        ("created", 5, ("erin",), ("eric",)),
        ("destroyed", 5, ("erin",), ("eric",)),
        ("destroyed", 6, (), ("frank",)),
        ("replaced", 3, ("Carol",), ("carol",)),
    }


def test_samples_show_values_of_rows_with_uuid_keys(client: Client) -> None:
    keys = pa.array([bytes([number]) * 16 for number in (1, 2)], pa.uuid())
    data = pa.table({"id": keys, "number": [1, 2], "username": ["ann", "bob"]})
    columns = TableColumns("id", [ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "number")])
    found = verify(client, arrow_table(data, columns), show_values=True)
    assert [(sample.finding.source_id, *sample.in_table) for sample in found.samples] == [
        ("01" * 16, "ann"),
        ("02" * 16, "bob"),
    ]


def test_v07_a_failed_run_reports_its_counts_and_a_checkpoint(client: Client, embedded: ClaimsServer, make: Make) -> None:
    table = make([User(key, f"user{key}") for key in range(1, 3001)])
    partial: list[VerificationResult] = []

    def kill(report: Report) -> None:
        if report.updates == 1:
            embedded.kill()

    # One attempt is enough: a killed server refuses connections at once. The long timeouts are for busy machines.
    once = Client(embedded.url, cell_id=1, retry=Retry(attempts=1, attempt_timeout_seconds=60.0), timeout_seconds=60)
    error = raised_by(lambda: verify(once, table, apply=True, on_progress=kill, on_failure=partial.append))
    assert isinstance(error, errors.UnavailableError | errors.DeadlineExceededError)
    (found,) = partial
    assert (found.report.created, found.is_finished) == (2000, False)
    embedded.start()
    assert verify(client, table, apply=True, checkpoint=found.checkpoint).is_finished
    assert len(claimed(client)) == 3000


def test_v01_v05_a_second_run_finds_no_differences(client: Client, make: Make) -> None:
    claim(client, CLAIMED)
    table = make(ROWS)
    done = verify(client, table, apply=True).report
    assert (done.dry_run, done.created, done.replaced, done.destroyed, done.failed) == (False, 3, 1, 2, 0)
    assert claimed(client) == {"ann", "ann@example.com", "bob", "Carol", "dan", "dan@example.com", "erin"}
    assert list(client.leases()) == []
    again = verify(client, table)
    assert again.is_clean
    assert again.samples == ()


@pytest.mark.parametrize("make", ["postgres", "csv", "parquet", "pyarrow_table", "polars_frame"], indirect=True)
def test_v05_one_run_corrects_more_moved_names_than_it_can_defer(client: Client, make: Make) -> None:
    count = 26_000
    claim(client, [User(at, f"name{at}") for at in range(1, count + 1)])
    done = verify(client, make([User(at, f"name{count + 1 - at}") for at in range(1, count + 1)]), apply=True)
    assert (done.report.missing, done.report.other_row, done.report.failed) == (count, 0, 0)
    assert done.report.rows > count, "there was no second scan"
    held = [(record.claim.bucket_value, record.claim.source) for record in client.records(SourceType.USERS, TYPES)]
    assert dict(held) == {f"name{count + 1 - at}": Source.of(SourceType.USERS, at) for at in range(1, count + 1)}


def test_an_empty_table_destroys_its_claims_only_with_allow_empty(client: Client, make: Make) -> None:
    claim(client, CLAIMED)
    before = claimed(client)
    table = make([])
    with pytest.raises(errors.MisconfiguredError, match="no rows"):
        verify(client, table, apply=True)
    assert claimed(client) == before
    assert verify(client, table).report.extra == len(before)
    assert verify(client, table, apply=True, allow_empty=True).report.destroyed == len(before)
    assert claimed(client) == set()


def test_v11_a_run_stops_before_it_destroys_a_large_share(client: Client, make: Make) -> None:
    users = [User(key, f"user{key}") for key in range(1, 101)]
    claim(client, users)
    before = claimed(client)
    table = make(users[11:])
    partial: list[VerificationResult] = []
    message = r"destroy 11 of the table's 100 claims.*`max_destroy_share` to 0\.11"
    with pytest.raises(errors.MisconfiguredError, match=message) as raised:
        verify(client, table, apply=True, max_destroy_share=0.1, on_failure=partial.append)
    assert raised.value.code == "TOO_MANY_DESTROYS"
    assert claimed(client) == before
    assert list(client.leases()) == []
    assert verify(client, table, max_destroy_share=0.1).report.over_destroy_limit
    assert not verify(client, table, max_destroy_share=0.11).report.over_destroy_limit
    goes_on = verify(client, table, apply=True, max_destroy_share=0.11, checkpoint=partial[0].checkpoint)
    assert (goes_on.report.destroyed, goes_on.report.rows) == (11, 0)


def test_v11_destroys_close_together_are_surveyed(client: Client, make: Make) -> None:
    users = [User(key, f"user{key}") for key in range(1, 4001)]
    claim(client, users)
    before = claimed(client)
    with pytest.raises(errors.MisconfiguredError, match=r"destroy 2100 of the table's 4000 claims"):
        verify(client, make(users[2100:]), apply=True, max_destroy_share=0.5)
    assert claimed(client) == before
    done = verify(client, make(users[2100:]), apply=True, max_destroy_share=0.53).report
    assert (done.destroyed, done.pages_surveyed > 0) == (2100, True)


def test_v11_a_share_beyond_one_is_refused(client: Client, make: Make) -> None:
    with pytest.raises(errors.MisconfiguredError, match="from 0 to 1"):
        verify(client, make(ROWS), max_destroy_share=1.5)


def test_v11_a_run_destroys_ten_claims_of_any_table(client: Client, make: Make) -> None:
    users = [User(key, f"user{key}") for key in range(1, 21)]
    claim(client, users)
    assert verify(client, make(users[10:]), apply=True, max_destroy_share=0).report.destroyed == 10


def test_v11_an_empty_list_of_types_is_refused(client: Client) -> None:
    claim(client, CLAIMED)
    with pytest.raises(errors.MisconfiguredError, match="`bucket_types` is empty"):
        client.list_records(SourceType.USERS, [])
    table = arrow_table(pa.table({"id": [1]}), TableColumns("id", []))
    with pytest.raises(errors.LeaseholdError, match="`bucket_types` is empty"):
        verify(client, table)


def test_v05_v08_a_backfill_spans_pages_and_updates(client: Client, make: Make) -> None:
    rows = [User(key, f"user{key}", f"user{key}@example.com") for key in range(1, 2501)]
    pages: list[int] = []
    done = verify(client, make(rows), apply=True, rows_per_page=400, on_progress=lambda report: pages.append(report.pages))
    assert (done.report.created, done.report.updates) == (5000, 3)
    assert pages == [1, 2, 3, 4, 5, 6, 7, 7]
    assert len(claimed(client)) == 5000


def test_v05_swapped_names_are_corrected_in_one_run(client: Client, make: Make) -> None:
    claim(client, [User(1, "first"), User(2, "second")])
    done = verify(client, make([User(1, "second"), User(2, "first")]), apply=True, rows_per_page=1)
    assert (done.report.replaced, done.report.failed, done.report.other_row) == (2, 0, 0)
    assert {record.claim.bucket_value: record.claim.subject for record in client.records(SourceType.USERS, TYPES)} == {
        "second": Subject(SubjectType.USER, 1),
        "first": Subject(SubjectType.USER, 2),
    }


def test_v06_v09_a_claim_of_another_cell_is_reported_and_kept(client: Client, embedded: ClaimsServer, make: Make) -> None:
    with Client(embedded.url, cell_id=2) as other:
        claim(other, [User(1, "ann")])
        done = verify(client, make([User(7, "ANN")]), apply=True)
        assert (done.report.other_cell, done.report.created) == (1, 0)
        assert claimed(other) == {"ann"}
    assert [sample.finding.outcome for sample in done.samples] == ["other_cell"]


def test_v02_recent_changes_are_skipped_on_both_sides(client: Client, make: Make) -> None:
    claim(client, [User(1, "claimed-just-now")])
    rows = [User(2, "changed-just-now", updated_at=datetime.now(timezone.utc)), User(3, "long-ago")]
    report = verify(client, make(rows), apply=True, recent_within_seconds=600).report
    assert (report.rows_recent, report.records_recent, report.created) == (1, 1, 1)
    assert claimed(client) == {"claimed-just-now", "long-ago"}


def test_v07_a_run_stops_at_its_time_budget_and_continues_from_its_checkpoint(client: Client, make: Make) -> None:
    table = make([User(key, f"user{key}") for key in range(1, 101)])
    checkpoint, runs = None, 0
    while runs == 0 or checkpoint is not None:
        done = verify(client, table, apply=True, rows_per_page=30, time_budget_seconds=0.0, checkpoint=checkpoint)
        checkpoint, runs = done.checkpoint, runs + 1
    assert runs == 4
    assert len(claimed(client)) == 100
    assert "user" not in repr(done)
    assert isinstance(raised_by(lambda: verify(client, table, checkpoint="nonsense")), errors.InvalidError)


def test_v07_a_checkpoint_of_a_run_with_other_settings_is_refused(client: Client, embedded: ClaimsServer, make: Make) -> None:
    table = make([User(key, f"user{key}") for key in range(1, 11)])
    options = {"apply": True, "rows_per_page": 3}
    checkpoint = verify(client, table, time_budget_seconds=0.0, **options).checkpoint

    def refused(**other: object) -> str:
        error = raised_by(lambda: verify(client, table, **{**options, "checkpoint": checkpoint, **other}))
        assert (type(error), error.code) == (errors.InvalidError, "INVALID_CHECKPOINT")
        assert "user" not in str(error)
        return str(error)

    assert "`source type`" in refused(source_type=SourceType.EMAILS)
    assert "`apply`" in refused(apply=False)
    for wrong in ("{}", "[]", '{"of": {}, "at": ""}', '{"of": 1, "at": 2}'):
        refused(checkpoint=wrong)
    with Client(embedded.url, cell_id=2) as other:
        assert "`cell`" in str(raised_by(lambda: verify(other, table, checkpoint=checkpoint, **options)))
    assert len(claimed(client)) == 3
    verify(client, table, checkpoint=checkpoint, **options)
    assert len(claimed(client)) == 10


def test_v07_a_checkpoint_of_another_table_is_refused(client: Client, cluster: PostgresCluster) -> None:
    url = in_postgres(cluster.create_database(), [User(key, f"user{key}") for key in range(1, 11)])
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE people AS SELECT gen_random_uuid() AS id, id AS number, username FROM users")
    options = {"apply": True, "rows_per_page": 3}
    names = [ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "id")]
    users = PostgresTable(url, "users", TableColumns("id", names))
    checkpoint = verify(client, users, time_budget_seconds=0.0, **options).checkpoint
    people = TableColumns("id", [replace(names[0], subject="number")])
    for table, words in [
        (PostgresTable(url, "people", people), ["`table`", "`keys`", "`claims`"]),
        (PostgresTable(url, "users", TableColumns("id", names), where="id > 5"), ["`where`"]),
    ]:
        message = str(raised_by(lambda table=table: verify(client, table, checkpoint=checkpoint, **options)))  # type: ignore[misc]
        assert all(word in message for word in words)
    assert len(claimed(client)) == 3


def test_an_unknown_cell_is_refused_and_changes_nothing(client: Client, embedded: ClaimsServer, make: Make) -> None:
    with Client(embedded.url, cell_id=99) as unknown:
        assert isinstance(
            raised_by(lambda: verify(unknown, make(ROWS), apply=True, recent_within_seconds=60)), errors.InvalidError
        )
    assert claimed(client) == set()


def test_a_dump_without_a_valid_age_corrects_nothing(client: Client) -> None:
    data = as_arrow(ROWS)
    claim(client, CLAIMED)
    for taken_at, word in [
        (None, "`taken_at`"),
        (datetime.now(timezone.utc) - timedelta(hours=2), "`recent_within_seconds`"),
        (datetime.now(timezone.utc) + timedelta(hours=2), "`taken_at`"),
        (datetime(2026, 1, 1), "time zone"),  # noqa: DTZ001 - that is the mistake
    ]:
        table = arrow_table(data, COLUMNS, taken_at=taken_at)
        error = raised_by(lambda table=table: verify_table(client, table, source_type=SourceType.USERS, apply=True))  # type: ignore[misc]
        assert isinstance(error, errors.MisconfiguredError)
        assert word in str(error)
    assert "frank" in claimed(client)


def test_rows_outside_the_condition_lose_their_claims(client: Client, cluster: PostgresCluster) -> None:
    url = in_postgres(cluster.create_database(), [User(1, "ann"), User(2, "ghost")])
    claim(client, [User(1, "ann"), User(2, "ghost")])
    table = PostgresTable(url, "users", COLUMNS, where="username NOT LIKE 'gh%'")
    assert verify(client, table, apply=True).report.destroyed == 1
    assert claimed(client) == {"ann"}


def test_v03_a_row_inserted_again_keeps_its_claim(client: Client, cluster: PostgresCluster) -> None:
    url = in_postgres(cluster.create_database(), [User(1, "ann")])
    claim(client, [User(1, "ann"), User(2, "bob")])

    def insert(_: Report) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO users VALUES (2, 'bob', NULL, '2026-01-01T00:00:00Z') ON CONFLICT DO NOTHING")

    report = verify(client, sources.postgres_table(url), apply=True, on_progress=insert).report
    assert (report.extra, report.changed, report.destroyed) == (1, 1, 0)
    assert claimed(client) == {"ann", "bob"}
