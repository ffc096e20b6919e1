"""The outbox in a database of its own, and what transactions write into it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import psycopg

from leasehold.client import Batch
from support.claims_server import binary
from support.postgres_cluster import PostgresCluster, execute
from support.queues import QUEUE


def create_outbox(cluster: PostgresCluster) -> str:
    """Create a database with an outbox. Return its connection URL."""
    printed = subprocess.run([binary(), "outbox"], capture_output=True, text=True, check=True).stdout
    url = cluster.create_database()
    with psycopg.connect(url) as connection:
        # Before version 15, all roles may create in this schema.
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.execute(printed.encode())
    return url


def write(url: str, key: str, body: str = "", *, kind: str = "update", queue: str = QUEUE) -> str:
    """Submit a request in a transaction that commits. Return the request's id."""
    ((found,),) = execute(url, "SELECT leasehold_submit(%s, %s, convert_to(%s, 'UTF8'), %s)", queue, key, body, kind)
    return str(found)


def write_settle(url: str, batch: Batch, session_id: str, outcome: str = "complete", *, mark: bool = False) -> None:
    """Settle a batch in a transaction that commits. With `mark`, it leaves done-marks of the batch's requests."""
    arguments: list[object] = [session_id, batch.queue, batch.key, batch.fence]
    marks = ""
    if mark:
        arguments.append([each.id for each in batch.requests])
        marks = ", %s::uuid[]"
    with psycopg.connect(url) as connection:
        connection.execute(f"SELECT leasehold_{outcome}(%s::uuid, %s, %s, %s{marks})".encode(), arguments)


def done(url: str, key: str, ids: Sequence[str]) -> list[str]:
    """Return those of the requests of a lane that transactions have done."""
    ((found,),) = execute(url, "SELECT leasehold_done(%s, %s, %s::uuid[])::text[]", QUEUE, key, list(ids))
    return list(found)


def set_aside(url: str) -> list[tuple[object, ...]]:
    """Return the requests that the outbox has set aside: queue, id and reason, in their order."""
    return execute(url, "SELECT queue, request_id::text, reason FROM leasehold_outbox_refused ORDER BY number")


def is_relayed(url: str) -> bool:
    """Return True if a relay has nothing to hand on. The outbox is asked in a transaction that is rolled back."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT batch FROM leasehold_outbox_begin()").fetchone()
        connection.rollback()
    return found == (None,)
