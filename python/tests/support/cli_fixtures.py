"""Fixtures for tests of the command line: a server, and a client that inspects its state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasehold.client import Client
from support.claims_server import ClaimsServer


@pytest.fixture
def cli_server() -> Iterator[ClaimsServer]:
    with ClaimsServer() as server:
        yield server


@pytest.fixture
def cli_client(cli_server: ClaimsServer) -> Iterator[Client]:
    with Client(cli_server.url, cell_id=1) as client:
        yield client
