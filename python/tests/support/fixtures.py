"""Fixtures that start servers on each of the two stores, and clients of these servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.client import Client
from support.certificates import Authority
from support.claims_server import ClaimsServer
from support.locks import REAPED
from support.postgres_cluster import PostgresCluster
from support.tcp_proxy import TcpProxy


@pytest.fixture(scope="session")
def cluster() -> Iterator[PostgresCluster]:
    with PostgresCluster() as cluster:
        yield cluster


@pytest.fixture(params=["embedded", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[ClaimsServer]:
    """Start one server per test, once on each of the two stores."""
    on_postgres = request.param == "postgres"
    store = request.getfixturevalue("cluster").create_database() if on_postgres else None
    with ClaimsServer(store=store) as server:
        yield server


@pytest.fixture
def embedded() -> Iterator[ClaimsServer]:
    """Start a server on the embedded store only, for tests that do not depend on the store."""
    with ClaimsServer() as server:
        yield server


@pytest.fixture
def reaped() -> Iterator[ClaimsServer]:
    """Start a server whose locks of the namespace `reaped` wait for a cleanup after the death of their holder."""
    with ClaimsServer(settings=REAPED) as server:
        yield server


@pytest.fixture
def client(server: ClaimsServer) -> Iterator[Client]:
    with Client(server.url, cell_id=1) as client:
        yield client


@pytest.fixture
def proxy(embedded: ClaimsServer) -> Iterator[TcpProxy]:
    with TcpProxy(embedded.address) as proxy:
        yield proxy


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)
