"""gRPC clients of the claims server: `Client` blocks its thread, `AsyncClient` runs under asyncio."""

from leasehold.client._async_lock_session import AsyncHeldLock, AsyncLockScope, AsyncLockSession, AsyncLocksScope, AsyncOrphan
from leasehold.client._asynchronous import AsyncClient, AsyncUpdate
from leasehold.client._endpoint import DEFAULT_SERVER, Tls
from leasehold.client._lock_base import LOCK_LOST
from leasehold.client._lock_calls import WantedLock
from leasehold.client._lock_session import HeldLock, LockScope, LockSession, LocksScope, Orphan
from leasehold.client._messages import ReceivedPage
from leasehold.client._retry import Retry
from leasehold.client._synchronous import Client, Update

__all__ = [
    "DEFAULT_SERVER",
    "LOCK_LOST",
    "AsyncClient",
    "AsyncHeldLock",
    "AsyncLockScope",
    "AsyncLockSession",
    "AsyncLocksScope",
    "AsyncOrphan",
    "AsyncUpdate",
    "Client",
    "HeldLock",
    "LockScope",
    "LockSession",
    "LocksScope",
    "Orphan",
    "ReceivedPage",
    "Retry",
    "Tls",
    "Update",
    "WantedLock",
]
