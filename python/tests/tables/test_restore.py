"""A restored service, whose cells are ahead of it, and a restored cell, whose claims are ahead of its rows."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest
from support import users as sources
from support.claims import raised_by
from support.claims_server import ClaimsServer, binary
from support.postgres_cluster import PostgresCluster, program
from support.users import User, claim, in_postgres

from leasehold import BucketType, SourceType, errors
from leasehold.client import Client
from leasehold.tables import VerificationResult, verify_table

TYPES = [BucketType.USERNAMES]
USERS = [User(key, f"user{key}") for key in range(1, 131)]
# The rows of the backup.
FORMER = USERS[:100]

Copy = Callable[[str, PostgresCluster], str]


@pytest.fixture
def other() -> Iterator[PostgresCluster]:
    """Start a cluster of its own, which has another identifier than the one of all tests."""
    with PostgresCluster() as cluster:
        yield cluster


def restored(url: str, cluster: PostgresCluster) -> str:
    """Copy a database into another cluster by a dump, under its name. Return the URL of the copy."""
    dump = subprocess.run([program("pg_dump"), url], check=True, capture_output=True).stdout
    copy = cluster.create_database(url.rpartition("/")[2])
    psql = [program("psql"), "--quiet", "--set", "ON_ERROR_STOP=1", copy]
    subprocess.run(psql, check=True, input=dump, stdout=subprocess.DEVNULL)
    return copy


def adopt(url: str) -> None:
    """Let servers use a copy, which they refuse before."""
    serve = [str(binary()), "serve", "--listen", "127.0.0.1:0", "--store", url]
    refused = subprocess.run(serve, capture_output=True, text=True, check=False, timeout=60)
    assert (refused.returncode, "migrate --adopt" in refused.stderr) == (1, True), refused.stderr
    subprocess.run([str(binary()), "migrate", "--adopt", "--store", url], check=True, capture_output=True)


def refuse_both(service: str, copy: str) -> None:
    """Check that no server takes a database and its copy for hosts of one database."""
    (former, name), (latter, _) = (url.rpartition("@")[2].split("/") for url in (service, copy))
    for hosts in (f"{former},{latter}", f"{latter},{former}"):
        url = f"postgres://leasehold@{hosts}/{name}"
        refused = subprocess.run(
            [str(binary()), "doctor", "--store", url], capture_output=True, text=True, check=False, timeout=60
        )
        assert (refused.returncode == 0, "of two clusters" in refused.stdout) == (False, True), refused.stdout


def fence(client: Client, name: str) -> int:
    """Return the fence of a new update."""
    with client.update(creates=[User(1000, name).claims()[0]]) as update:
        return update.fence


def claimed(client: Client) -> set[str]:
    return {record.claim.bucket_value for record in client.records(SourceType.USERS, TYPES)}


def verify(client: Client, url: str, share: float = 0.1) -> VerificationResult:
    table = sources.postgres_table(url)
    settings = {"recent_within_seconds": 0.0, "max_destroy_share": share}
    return verify_table(client, table, source_type=SourceType.USERS, apply=True, **settings)  # type: ignore[arg-type]


def test_v11_b13_verification_claims_again_what_a_restored_service_lacks(
    cluster: PostgresCluster, other: PostgresCluster
) -> None:
    rows = in_postgres(cluster.create_database(), USERS)
    service = cluster.create_database()
    with ClaimsServer(store=service) as server, Client(server.url, cell_id=1) as client:
        claim(client, FORMER)
        backup = restored(service, other)
        claim(client, USERS[len(FORMER) :])
        last = fence(client, "last")
    adopt(backup)
    refuse_both(service, backup)
    with ClaimsServer(store=backup) as server, Client(server.url, cell_id=1) as client:
        report = verify(client, rows).report
        assert (report.created, report.destroyed) == (len(USERS) - len(FORMER), 0)
        assert claimed(client) == {user.username for user in USERS}
        assert fence(client, "first") > last


def test_v11_verification_of_a_restored_cell_stops_before_it_destroys(cluster: PostgresCluster, other: PostgresCluster) -> None:
    rows = in_postgres(cluster.create_database(), FORMER)
    restored_rows = restored(rows, other)
    with ClaimsServer(store=cluster.create_database()) as server, Client(server.url, cell_id=1) as client:
        claim(client, USERS)
        refused = raised_by(lambda: verify(client, restored_rows))
        assert isinstance(refused, errors.MisconfiguredError)
        assert (refused.code, "destroy 30 of the table's 130 claims" in str(refused)) == ("TOO_MANY_DESTROYS", True)
        assert claimed(client) == {user.username for user in USERS}
        assert verify(client, restored_rows, 0.25).report.destroyed == 30


def test_b13_tables_survive_pg_upgrade(other: PostgresCluster) -> None:
    service = other.create_database().rsplit("/", 1)[1]
    with ClaimsServer(store=other.url(service)) as server, Client(server.url, cell_id=1) as client:
        claim(client, FORMER)
        last = fence(client, "last")
    other.upgrade()
    adopt(other.url(service))
    with ClaimsServer(store=other.url(service)) as server, Client(server.url, cell_id=1) as client:
        assert claimed(client) == {user.username for user in FORMER} | {"last"}
        assert fence(client, "first") > last
