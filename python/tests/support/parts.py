"""Calls each part of the installed package once. A release's wheel runs it in environments that lack libraries of the tests.

It runs as a program, with the URLs of a server and of a database that has a table `users` and an outbox, and the names of
the parts: `base`, or an extra.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import leasehold
from leasehold import BucketType, Claim, Source, SourceType, Subject, SubjectType, reconciliation, verification
from leasehold.client import AsyncClient, Client
from leasehold.tables import Table, verify_table
from leasehold.tables.files import arrow_table, csv_table, parquet_table

COLUMNS = verification.TableColumns(
    key="id", claims=[verification.ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "id")]
)
CLAIMS = [
    Claim(BucketType.USERNAMES, name, Subject(SubjectType.USER, user), Source.of(SourceType.USERS, user))
    for user, name in [(7, "alice"), (9, "carol")]
]


def base(server: str, _: str) -> None:
    """Call the parts that need no extra."""
    assert leasehold.canonical_form(BucketType.USERNAMES, "Alice") == "alice"
    with leasehold.ClaimsService().client(1) as client:
        assert list(client.leases()) == []
    assert leasehold.simulation.Simulation(seed=1).play(100) == 100
    assert isinstance(reconciliation.Reconciliation(stale_after_seconds=600).step(), reconciliation.ListLeases)
    with Client(server, cell_id=1) as client:
        for claim in CLAIMS:
            with client.update(creates=[claim]):
                pass
        try:
            with client.update(creates=CLAIMS):
                raise AssertionError("names were claimed twice")
        except leasehold.TakenError as error:
            # The details come in a message of another library.
            assert len(error.details) == 2, error
        _work(client)
        for table in _tables():
            _verify(client, table)
    asyncio.run(_call_async(server))


def cli(server: str, _: str) -> None:
    """Call the command, whose answers are tables and JSON."""
    assert _command("--version").startswith("leasehold-py ")
    assert "verify" in _command("--help")
    shown = _command("verify", "--help")
    assert all(words in shown for words in ("--claim CLAIM", "A postgres:// URL", "--rows-per-page N", "[1 to 4294967295]"))
    assert "\nConnection:\n" in shown
    assert _refused("leases", "--cell", "x") == "error: invalid value for `--cell`: pass an integer, 1 to 9223372036854775807"
    assert _refused("leases") == "error: missing option '--cell'"
    assert _command("leases", "--server", server, "--cell", "1").strip()
    assert json.loads(_command("simulate", "--events", "100", "--json").splitlines()[0])


def postgres(server: str, database: str) -> None:
    """Verify a table in PostgreSQL, and relay an outbox."""
    from leasehold.relay import Relay
    from leasehold.tables.postgres import PostgresTable

    with Client(server, cell_id=1) as client:
        _verify(client, PostgresTable(database, "users", COLUMNS))
        assert Relay(client, database).relay_all() == 0


def plot(_: str, __: str) -> None:
    """Draw the comparison of thresholds, which the command does."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "sweep.png"
        _command("sweep", "--worlds", "1", "--world-seconds", "400", "--crash-rate", "8", "--plot", str(path))
        assert path.read_bytes().startswith(b"\x89PNG")


PARTS: dict[str, Callable[[str, str], None]] = {"base": base, "cli": cli, "postgres": postgres, "plot": plot}


def _work(client: Client) -> None:
    with client.lock_session() as session, session.lock("parts", "7") as held:
        assert held.fence > 0
    client.submit("parts", "7", "make it")
    with client.take("parts") as worker:
        for batch in worker:
            with batch:
                worker.stop()


def _tables() -> list[Table]:
    data = pa.table({"id": pa.array([7, 8], pa.int64()), "username": ["alice", "bob"]})
    directory = Path(tempfile.mkdtemp())
    pyarrow.csv.write_csv(data, directory / "users.csv")
    pyarrow.parquet.write_table(data, directory / "users.parquet")
    files = [csv_table(directory / "users.csv", COLUMNS), parquet_table(directory / "users.parquet", COLUMNS)]
    return [*files, arrow_table(data, COLUMNS), arrow_table(data.to_reader(), COLUMNS)]


def _verify(client: Client, table: Table) -> None:
    found = verify_table(client, table, source_type=SourceType.USERS, recent_within_seconds=0)
    report = found.report
    assert (report.rows, report.missing, report.different, report.extra) == (2, 1, 0, 1), report


async def _call_async(server: str) -> None:
    async with AsyncClient(server, cell_id=1) as client:
        assert len([record async for record in client.records(SourceType.USERS, [BucketType.USERNAMES])]) == 2
        try:
            async with client.update(creates=CLAIMS):
                raise AssertionError("names were claimed twice")
        except leasehold.TakenError as error:
            assert len(error.details) == 2, error
        async with client.lock_session() as session, session.lock("parts", "7") as held:
            assert held.fence > 0
        await client.submit("parts", "7", "make it")
        async with client.take("parts") as worker:
            async for batch in worker:
                async with batch:
                    worker.stop()


def _refused(*arguments: str) -> str:
    """Return the first line that the command writes about a wrong command line."""
    program = str(Path(sys.executable).parent / "leasehold-py")
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended
    return ended.stderr.splitlines()[0]


def _command(*arguments: str) -> str:
    program = str(Path(sys.executable).parent / "leasehold-py")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    _, server_url, database_url, *names = sys.argv
    for name in names:
        PARTS[name](server_url, database_url)
