"""Options that several commands take: which server to talk to, and as whom. They are those of `leasehold`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from leasehold.client import DEFAULT_SERVER, AsyncClient, Client, Retry, Tls
from leasehold.errors import MisconfiguredError

_PANEL = "Connection"

Server: TypeAlias = Annotated[
    str, typer.Option(help="The server to ask.", metavar="URL", envvar="LEASEHOLD_SERVER", rich_help_panel=_PANEL)
]
Ca: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The certificate authority to trust, as PEM.", envvar="LEASEHOLD_CA", rich_help_panel=_PANEL),
]
Cert: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The certificate that says who you are, as PEM.", envvar="LEASEHOLD_CERT", rich_help_panel=_PANEL),
]
Key: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The private key of --cert, as PEM.", envvar="LEASEHOLD_KEY", rich_help_panel=_PANEL),
]
TimeoutSeconds: TypeAlias = Annotated[
    float, typer.Option(help="How long to wait for each answer, with all tries.", min=0.001, rich_help_panel=_PANEL)
]
CellId: TypeAlias = Annotated[int, typer.Option("--cell", help="The cell.", min=1, max=2**63 - 1)]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]

SERVER = DEFAULT_SERVER
TIMEOUT_SECONDS = 10.0


def tls_of(ca: Path | None, cert: Path | None, key: Path | None) -> Tls | None:
    """Take all three files, or none.

    Raises
    ------
    MisconfiguredError
        Some are named, and others are not.
    """
    if ca is not None and cert is not None and key is not None:
        return Tls(ca, cert, key)
    if ca is None and cert is None and key is None:
        return None
    raise MisconfiguredError("of `--ca`, `--cert` and `--key` some are missing: name all three, or none")


def open_client(
    server: str, cell_id: int, ca: Path | None, cert: Path | None, key: Path | None, timeout_seconds: float
) -> Client:
    """Make the client that the options say."""
    return Client(server, cell_id=cell_id, tls=tls_of(ca, cert, key), timeout_seconds=timeout_seconds)


def open_async_client(
    server: str, cell_id: int, ca: Path | None, cert: Path | None, key: Path | None, timeout_seconds: float, retry: Retry
) -> AsyncClient:
    """Make its twin for asyncio."""
    return AsyncClient(server, cell_id=cell_id, tls=tls_of(ca, cert, key), timeout_seconds=timeout_seconds, retry=retry)
