"""`leasehold-py load`: saves against a server, and how it bears them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.progress import Progress

from leasehold.claims import BucketType, Claim, Source, SourceType, Subject, SubjectType
from leasehold.cli import _options as options
from leasehold.cli._output import ERRORS, progress_bar, show_json, show_table
from leasehold.client import AsyncClient, Retry
from leasehold.errors import LeaseholdError

_TICK_SECONDS = 0.2
_PERCENTILES = (50, 90, 99)
# A server that has gone is not waited for by every save.
_RETRY = Retry(attempts=3)


@dataclass
class _Measured:
    """What came of the saves so far."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    elapsed_seconds: float = 0.0

    def at(self, percent: int) -> float:
        """Give the latency that so many of a hundred saves do not exceed, in milliseconds; of sorted ones."""
        last = len(self.seconds) - 1
        return self.seconds[-(-percent * last // 100)] * 1e3

    def figures(self) -> dict[str, object]:
        """Put it in numbers."""
        self.seconds.sort()
        latencies = {f"p{percent}_ms": round(self.at(percent), 3) for percent in _PERCENTILES} if self.seconds else {}
        longest = {"max_ms": round(self.at(100), 3)} if self.seconds else {}
        return {
            "saves": len(self.seconds),
            "elapsed_seconds": round(self.elapsed_seconds, 3),
            "saves_per_second": round(len(self.seconds) / self.elapsed_seconds, 1) if self.elapsed_seconds else 0.0,
            **latencies,
            **longest,
            "errors": dict(self.errors),
        }


def load(
    *,
    cell: options.CellId,
    saves: Annotated[int, typer.Option(help="How many saves to make.", min=1)] = 10_000,
    duration_seconds: Annotated[float | None, typer.Option(help="When to stop, however many are made.", min=0.1)] = None,
    concurrency: Annotated[int, typer.Option(help="How many saves to be at, at a time.", min=1)] = 32,
    claims: Annotated[int, typer.Option(help="How many names a save claims.", min=1, max=2000)] = 4,
    json: options.Json = False,
    server: options.Server = options.SERVER,
    ca: options.Ca = None,
    cert: options.Cert = None,
    key: options.Key = None,
    timeout_seconds: options.TimeoutSeconds = options.TIMEOUT_SECONDS,
) -> None:
    """Begin and commit updates of new random names against a server, and measure them.

    The names stay claimed: use a server that is there for it. Ctrl-C ends the run once what was begun is settled, and tells
    what was measured so far. The exit code is 1 where a save failed.
    """

    async def measure() -> _Measured:
        async with options.open_async_client(server, cell, ca, cert, key, timeout_seconds, _RETRY) as client:
            return await _Run(client, saves, claims).go(concurrency, duration_seconds)

    with _counted() as unsettled:
        measured = asyncio.run(measure())
    _show(measured, json=json)
    if unsettled:
        ERRORS.print(f"{len(unsettled):,} times: {unsettled[0]}", markup=False, highlight=False, soft_wrap=True)
    if measured.errors:
        raise typer.Exit(1)


@contextmanager
def _counted() -> Iterator[list[str]]:
    """Keep what the client warns of, which a server that has gone makes it do for every save."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("leasehold")
    log.addHandler(handler)
    try:
        yield told
    finally:
        log.removeHandler(handler)


class _Run:
    """Saves that go on until they are enough, or somebody says so."""

    def __init__(self, client: AsyncClient, saves: int, claims: int) -> None:
        self._client = client
        self._saves = saves
        self._claims = claims
        self._started = 0
        self._is_over = asyncio.Event()
        self._measured = _Measured()
        # Runs do not meet each other's names.
        self._prefix = secrets.token_hex(4)

    async def go(self, concurrency: int, duration_seconds: float | None) -> _Measured:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._is_over.set)
        if duration_seconds is not None:
            loop.call_later(duration_seconds, self._is_over.set)
        start = time.monotonic()
        workers = asyncio.gather(*(self._work() for _ in range(min(concurrency, self._saves))))
        ERRORS.print("saving; Ctrl-C ends it", highlight=False)
        try:
            with progress_bar() as bar:
                await self._watch(bar, workers, start)
            await workers
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        self._measured.elapsed_seconds = time.monotonic() - start
        return self._measured

    async def _watch(self, bar: Progress, workers: asyncio.Future[list[None]], start: float) -> None:
        task = bar.add_task("saving", total=self._saves)
        while True:
            done, _ = await asyncio.wait([workers], timeout=_TICK_SECONDS)
            saved, failed = len(self._measured.seconds), self._measured.errors.total()
            rate = saved / (time.monotonic() - start)
            bar.update(task, completed=saved + failed, description=f"{saved:,} saved, {rate:,.0f}/s, {failed:,} failed")
            if done:
                return

    async def _work(self) -> None:
        while self._started < self._saves and not self._is_over.is_set():
            self._started += 1
            claims = self._names(self._started)
            start = time.perf_counter()
            try:
                async with self._client.update(creates=claims):
                    pass
            except LeaseholdError as error:
                self._measured.errors[error.code] += 1
            else:
                self._measured.seconds.append(time.perf_counter() - start)

    def _names(self, number: int) -> list[Claim]:
        subject, source = Subject(SubjectType.USER, number), Source.of(SourceType.USERS, number)
        token = secrets.token_hex(6)
        names = (f"{token}-{self._prefix}-{at}" for at in range(self._claims))
        return [Claim(BucketType.USERNAMES, name, subject, source) for name in names]


def _show(measured: _Measured, *, json: bool) -> None:
    figures = measured.figures()
    if json:
        show_json(figures)
        return
    errors = [(f"failed: {code}", f"{count:,}") for code, count in measured.errors.most_common()]
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in figures.items() if isinstance(value, int | float)]
    show_table("load", ("measure", "value"), [*rows, *errors], right=["value"])
    if measured.seconds:
        show_table("latency", ("up to", "saves", ""), _histogram(measured.seconds), right=["up to", "saves"])


def _histogram(seconds: list[float]) -> list[tuple[str, str, str]]:
    """Count sorted latencies in steps that double."""
    bounds = [max(seconds[0] * 1e3, 0.001)]
    while bounds[-1] < seconds[-1] * 1e3:
        bounds.append(bounds[-1] * 2)
    counts = Counter(next(at for at, bound in enumerate(bounds) if one * 1e3 <= bound) for one in seconds)
    most = max(counts.values())
    return [(f"{bound:,.2f} ms", f"{counts[at]:,}", "█" * (40 * counts[at] // most)) for at, bound in enumerate(bounds)]
