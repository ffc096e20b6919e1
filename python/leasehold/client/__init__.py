"""gRPC clients of the claims server: `Client` blocks its thread, `AsyncClient` runs under asyncio."""

from leasehold.client._asynchronous import AsyncClient, AsyncUpdate
from leasehold.client._endpoint import DEFAULT_SERVER, Tls
from leasehold.client._messages import ReceivedPage
from leasehold.client._retry import Retry
from leasehold.client._synchronous import Client, Update

__all__ = ["DEFAULT_SERVER", "AsyncClient", "AsyncUpdate", "Client", "ReceivedPage", "Retry", "Tls", "Update"]
