"""Connection options that commands of `leasehold-py` share. Names and variables equal those of the `leasehold` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from leasehold.client import DEFAULT_SERVER

_PANEL = "Connection"

# The longest time of an option: some 31 years.
MAX_SECONDS = 10**9
# The longest wait for an answer. Python's sockets refuse more than 24 days.
_MAX_TIMEOUT_SECONDS = 86_400

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
    float,
    typer.Option(
        help="The longest wait for the answer to a call, with all of its attempts.",
        min=0.001,
        max=_MAX_TIMEOUT_SECONDS,
        rich_help_panel=_PANEL,
    ),
]
CellId: TypeAlias = Annotated[int, typer.Option("--cell", help="The id of the cell.", min=1, max=2**63 - 1)]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print results and errors as JSON.")]

SERVER = DEFAULT_SERVER
TIMEOUT_SECONDS = 10.0
