"""`leasehold-py leases`: the outstanding leases of a cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from leasehold.cli import _options as options
from leasehold.cli._output import format_duration, show_json, show_table
from leasehold.cli._server import Connection
from leasehold.client import Client, Retry


@dataclass(frozen=True)
class _LeaseAge:
    uuid: str
    created_at: datetime
    age_seconds: float
    is_stale: bool


def leases(
    *,
    cell: options.CellId,
    stale_after_seconds: Annotated[
        float, typer.Option(help="The age at which a lease counts as abandoned.", min=0.0, max=options.MAX_SECONDS)
    ] = 600.0,
    only_stale: Annotated[bool, typer.Option("--stale", help="List stale leases only.")] = False,
    json: options.Json = False,
    server: options.Server = options.SERVER,
    ca: options.Ca = None,
    cert: options.Cert = None,
    key: options.Key = None,
    timeout_seconds: options.TimeoutSeconds = options.TIMEOUT_SECONDS,
) -> None:
    """List the outstanding leases of a cell with their ages, oldest first.

    Ages are measured by the server's clock. With --json, each lease is one JSON object on a line.
    """
    # A user decides if a call is repeated, as with `leasehold`.
    retry = Retry(attempts=1, attempt_timeout_seconds=timeout_seconds)
    with Connection(server, ca, cert, key, timeout_seconds).client(cell, retry) as client:
        found = sorted(_lease_ages(client, stale_after_seconds), key=lambda lease: (-lease.age_seconds, lease.uuid))
    shown = [lease for lease in found if lease.is_stale or not only_stale]
    if json:
        for lease in shown:
            show_json({**vars(lease), "created_at": lease.created_at.isoformat()})
        return
    stale = sum(lease.is_stale for lease in found)
    rows = [
        (
            lease.uuid,
            format_duration(lease.age_seconds),
            "stale" if lease.is_stale else "fresh",
            f"{lease.created_at:%Y-%m-%d %H:%M:%S}",
        )
        for lease in shown
    ]
    title = f"cell {cell}: {len(found)} outstanding, {stale} stale"
    show_table(title, ("lease", "age", "state", "begun (UTC)"), rows, right=["age"])


def _lease_ages(client: Client, stale_after_seconds: float) -> Iterator[_LeaseAge]:
    for page in client.lease_pages():
        for lease in page.leases:
            age_seconds = (page.server_time - lease.created_at).total_seconds()
            yield _LeaseAge(lease.uuid, lease.created_at, age_seconds, age_seconds >= stale_after_seconds)
