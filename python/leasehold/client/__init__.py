"""gRPC clients of the claims server: `Client` blocks its thread, `AsyncClient` runs under asyncio."""

from leasehold.client._async_lock_session import AsyncHeldLock, AsyncLockScope, AsyncLockSession, AsyncLocksScope, AsyncOrphan
from leasehold.client._async_taking import AsyncBatch, AsyncTaking
from leasehold.client._asynchronous import AsyncClient, AsyncUpdate
from leasehold.client._endpoint import DEFAULT_SERVER, Tls
from leasehold.client._lock_base import LOCK_LOST
from leasehold.client._lock_calls import WantedLock
from leasehold.client._lock_session import HeldLock, LockScope, LockSession, LocksScope, Orphan
from leasehold.client._memory import MemoryClient
from leasehold.client._messages import ReceivedPage
from leasehold.client._queue_base import BATCH_LOST
from leasehold.client._retry import Retry
from leasehold.client._synchronous import Client, Update
from leasehold.client._taking import Batch, Taking

__all__ = [
    "BATCH_LOST",
    "DEFAULT_SERVER",
    "LOCK_LOST",
    "AsyncBatch",
    "AsyncClient",
    "AsyncHeldLock",
    "AsyncLockScope",
    "AsyncLockSession",
    "AsyncLocksScope",
    "AsyncOrphan",
    "AsyncTaking",
    "AsyncUpdate",
    "Batch",
    "Client",
    "HeldLock",
    "LockScope",
    "LockSession",
    "LocksScope",
    "MemoryClient",
    "Orphan",
    "ReceivedPage",
    "Retry",
    "Taking",
    "Tls",
    "Update",
    "WantedLock",
]
