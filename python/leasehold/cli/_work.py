"""`leasehold-py work`: a worker that calls a Python function with the batches of a queue."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from leasehold.cli import _options as options
from leasehold.cli._output import ERRORS
from leasehold.cli._server import Connection
from leasehold.client import AsyncBatch, AsyncClient, AsyncTaking, Batch, Client, Taking
from leasehold.client._queue_base import STOP_SECONDS
from leasehold.errors import MisconfiguredError

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def work(
    *,
    queue: Annotated[str, typer.Argument(help="The queue, such as `sheets.refresh`.", metavar="QUEUE")],
    function: Annotated[
        str, typer.Argument(help="The function that works a batch: MODULE:FUNCTION.", metavar="MODULE:FUNCTION")
    ],
    credit: Annotated[int, typer.Option(help="The most batches that are worked at a time.", min=1, max=256)] = 1,
    max_requests: Annotated[int, typer.Option(help="The most requests of a batch.", min=1, max=100)] = 100,
    stop_within_seconds: Annotated[
        float,
        typer.Option(help="The time after a signal until unfinished batches are given back.", min=0.0, max=options.MAX_SECONDS),
    ] = STOP_SECONDS,
    server: options.Server = options.SERVER,
    ca: options.Ca = None,
    cert: options.Cert = None,
    key: options.Key = None,
    timeout_seconds: options.TimeoutSeconds = options.TIMEOUT_SECONDS,
) -> None:
    """Take the batches of a queue, and call a function with each, until SIGTERM or Ctrl-C.

    The function is imported from the working directory or an installed package. A batch is complete when the function returns,
    and fails if it raises. A plain function runs in a thread for each batch, a coroutine function in a task. After a signal,
    nothing more is taken. A second signal gives unfinished batches back at once.
    """
    called = _imported(function)
    connection = Connection(server, ca, cert, key, timeout_seconds)
    worker = _Worker(queue, credit, max_requests, stop_within_seconds)
    if _is_asynchronous(called):
        asyncio.run(worker.run_tasks(connection.async_client(), called))
    else:
        worker.run_threads(connection.client(), called)


def _imported(name: str) -> Callable[[Any], Any]:
    """Return the function `MODULE:FUNCTION`.

    Raises
    ------
    MisconfiguredError
        The module cannot be imported, or has no such function.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise MisconfiguredError(f"`{name}` names no function: pass MODULE:FUNCTION, such as `sheets.jobs:refresh`")
    # The directory of the command is not on the path, as it is for `python -m`.
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise MisconfiguredError(f"the module `{module_name}` cannot be imported ({error}): check its name") from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise MisconfiguredError(f"`{module_name}` has no function `{path}`: check its name")
    return found  # type: ignore[no-any-return]


def _is_asynchronous(function: Callable[[Any], Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


class _Worker:
    """The terms of a worker, and its stop by signals."""

    def __init__(self, queue: str, credit: int, max_requests: int, stop_within_seconds: float) -> None:
        self._queue = queue
        self._terms: dict[str, Any] = {"credit": credit, "max_requests": max_requests}
        self._stop_within_seconds = stop_within_seconds

    def run_threads(self, opened: AbstractContextManager[Client], function: Callable[[Batch], object]) -> None:
        """Work until a signal, with a thread for each batch."""
        with opened as client, client.take(self._queue, **self._terms) as worker:
            for number in _SIGNALS:
                signal.signal(number, lambda *_: self._stop(worker))
            _say_ready()
            worker.run(function)
        if worker.is_at_work:
            # The interpreter would stop these threads wherever they are, also in the code of C libraries.
            ERRORS.print("unfinished batches were given back", highlight=False)
            sys.stdout.flush()
            os._exit(0)

    async def run_tasks(
        self, opened: AbstractAsyncContextManager[AsyncClient], function: Callable[[AsyncBatch], Awaitable[object]]
    ) -> None:
        """Work until a signal, with a task for each batch."""
        loop = asyncio.get_running_loop()
        async with opened as client, client.take(self._queue, **self._terms) as worker:
            for number in _SIGNALS:
                loop.add_signal_handler(number, self._stop, worker)
            _say_ready()
            await worker.run(function)

    def _stop(self, worker: Taking | AsyncTaking) -> None:
        if worker.is_stopping:
            worker.stop(within_seconds=0)
            return
        worker.stop(within_seconds=self._stop_within_seconds)
        ERRORS.print("stopping; a second signal gives unfinished batches back at once", highlight=False)


def _say_ready() -> None:
    ERRORS.print("working; press Ctrl-C to stop", highlight=False)
