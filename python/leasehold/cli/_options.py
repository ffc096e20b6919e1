"""Connection options that commands of `leasehold-py` share. Names and variables equal those of the `leasehold` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from leasehold.client import DEFAULT_SERVER, AsyncClient, Client, Retry, Tls
from leasehold.errors import MisconfiguredError

_PANEL = "Connection"

Server: TypeAlias = Annotated[
    str, typer.Option(help="The address of the server.", metavar="URL", envvar="LEASEHOLD_SERVER", rich_help_panel=_PANEL)
]
Ca: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The PEM file of the certificate authority to trust.", envvar="LEASEHOLD_CA", rich_help_panel=_PANEL),
]
Cert: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="The PEM file of the client certificate, which identifies you.", envvar="LEASEHOLD_CERT", rich_help_panel=_PANEL
    ),
]
Key: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The PEM file of the private key of --cert.", envvar="LEASEHOLD_KEY", rich_help_panel=_PANEL),
]
TimeoutSeconds: TypeAlias = Annotated[
    float, typer.Option(help="The timeout of each call with all of its attempts.", min=0.001, rich_help_panel=_PANEL)
]
CellId: TypeAlias = Annotated[int, typer.Option("--cell", help="The id of the cell.", min=1, max=2**63 - 1)]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]

SERVER = DEFAULT_SERVER
TIMEOUT_SECONDS = 10.0


def tls_of(ca: Path | None, cert: Path | None, key: Path | None) -> Tls | None:
    """Return the client's TLS files; None if the user gave none of the three options.

    Raises
    ------
    MisconfiguredError
        Only some of the three files are given.
    """
    if ca is not None and cert is not None and key is not None:
        return Tls(ca, cert, key)
    if ca is None and cert is None and key is None:
        return None
    raise MisconfiguredError("only some of `--ca`, `--cert` and `--key` are set: set all three, or none")


def open_client(
    server: str, cell_id: int, ca: Path | None, cert: Path | None, key: Path | None, timeout_seconds: float
) -> Client:
    """Return a blocking client that the connection options describe."""
    return Client(server, cell_id=cell_id, tls=tls_of(ca, cert, key), timeout_seconds=timeout_seconds)


def open_async_client(
    server: str, cell_id: int, ca: Path | None, cert: Path | None, key: Path | None, timeout_seconds: float, retry: Retry
) -> AsyncClient:
    """Return an asyncio client that the connection options describe."""
    return AsyncClient(server, cell_id=cell_id, tls=tls_of(ca, cert, key), timeout_seconds=timeout_seconds, retry=retry)
