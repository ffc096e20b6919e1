"""The `async with` blocks whose task is cancelled when what they hold is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from leasehold.client._lock_base import LEAVE_SECONDS
from leasehold.errors import LeaseholdError


class TaskScope:
    """A block of a task, which is cancelled with a reason if the hold of the block is lost."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._task: asyncio.Task[object] | None = None
        self._is_cancelled = False
        self._cancelling = 0

    @property
    def fences(self) -> set[int]:
        """The fences of what the block holds."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel the task of the block, because what the block holds is lost."""
        if self._task is not None and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel(self._reason)

    def _begin(self, holders: set[TaskScope], *, is_lost: bool) -> None:
        self._task = asyncio.current_task()
        self._cancelling = self._cancel_requests()
        holders.add(self)
        if is_lost:
            # The loss came before the block could be told.
            self.cancel()

    def _end(self, holders: set[TaskScope], error: BaseException | None, lost: type[LeaseholdError]) -> bool:
        """End the block. Return True if it ends because of its own cancellation, which is then taken back."""
        holders.discard(self)
        return self._is_cancelled and self._take_back_cancellation(error, lost)

    def _cancel_requests(self) -> int:
        # `Task.cancelling` and `Task.uncancel` exist since Python 3.11; the package supports 3.10.
        cancelling: Callable[[], int] = getattr(self._task, "cancelling", lambda: 0)
        return cancelling()

    def _take_back_cancellation(self, error: BaseException | None, lost: type[LeaseholdError]) -> bool:
        """Take back the request to cancel the task. Return True if nobody else asked for its cancellation.

        The standard library decides in the same way for `asyncio.timeout` (Lib/asyncio/timeouts.py, `__aexit__`).
        """
        uncancel: Callable[[], int] = getattr(self._task, "uncancel", lambda: 0)
        is_only = uncancel() <= self._cancelling
        return is_only and (error is None or isinstance(error, asyncio.CancelledError | lost))


async def ends(calls: Iterable[Awaitable[None]]) -> list[BaseException | None]:
    """Run the calls that end a block. Return what each of them raised.

    A cancellation of the task waits for them, at most for `LEAVE_SECONDS`.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        # `shield` lets the calls finish if this task is cancelled. `gather` waits for all, also if one fails.
        return await asyncio.shield(asyncio.gather(*tasks, return_exceptions=True))
    except asyncio.CancelledError:
        await asyncio.wait(tasks, timeout=LEAVE_SECONDS)
        raise
