"""A server, and the same table wherever a table can be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.claims_server import ClaimsServer
from support.postgres_cluster import PostgresCluster

from leasehold.client import Client


@pytest.fixture(scope="session")
def cluster() -> Iterator[PostgresCluster]:
    with PostgresCluster() as cluster:
        yield cluster


@pytest.fixture
def server() -> Iterator[ClaimsServer]:
    with ClaimsServer() as server:
        yield server


@pytest.fixture
def client(server: ClaimsServer) -> Iterator[Client]:
    with Client(server.url, cell_id=1) as client:
        yield client
