"""The locks that the blocks of the running task or thread hold (K15).

An acquire within such a block names their asks, so that the server can refuse a wait that would never end.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.client._lock_base import HeldLockBase

# The most asks that an acquire may name.
_MAX_ASKS = 64

# Each lock with the task or thread of its block, innermost last. A task that is created in a block has a copy of the block's
# context, but does not hold the lock: the block may end while that task waits. So the holder is kept beside the lock.
_HELD: ContextVar[tuple[tuple[object, HeldLockBase], ...]] = ContextVar("leasehold_held_locks", default=())


def enter(locks: Sequence[HeldLockBase]) -> None:
    """Add the locks of a block that begins."""
    holder = _running()
    # A block that ended in another context could not remove its locks here.
    held = [entry for entry in _HELD.get() if entry[1].is_held]
    _HELD.set((*held, *((holder, lock) for lock in locks)))


def leave(locks: Sequence[HeldLockBase]) -> None:
    """Remove the locks of a block that ends."""
    ended = {id(lock) for lock in locks}
    _HELD.set(tuple(entry for entry in _HELD.get() if id(entry[1]) not in ended))


def ask_ids() -> list[bytes]:
    """Return the ids of the asks of the innermost locks that the blocks of the running task or thread hold.

    A block may have released or lost its lock already. A forked process holds no lock of its parent.
    """
    running = _running()
    held = [lock for holder, lock in _HELD.get() if holder == running and lock.is_held]
    return [lock._ask_id for lock in held[-_MAX_ASKS:]]  # noqa: SLF001 - same package


def _running() -> object:
    """Return a weak reference to the running task; outside of tasks, the number of the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # No event loop runs in this thread.
        task = None
    return threading.get_ident() if task is None else weakref.ref(task)
