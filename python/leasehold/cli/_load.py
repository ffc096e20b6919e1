"""`leasehold-py load`: a load test of a server with new names."""

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
from leasehold.cli._server import Connection
from leasehold.client import AsyncClient, Retry
from leasehold.errors import LeaseholdError

_PROGRESS_INTERVAL_SECONDS = 0.2
_PERCENTILES = (50, 90, 99)
# The results keep a latency of each save: 10 million need some 320 MB.
_MAX_SAVES = 10_000_000
# Fewer attempts than the client's default, so that each save in progress fails soon if the server goes down.
_RETRY = Retry(attempts=3)


@dataclass
class _Measurements:
    """The latencies and the errors of the saves that a load test has made so far."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    elapsed_seconds: float = 0.0

    def percentile_ms(self, percent: int) -> float:
        """Return a percentile of the latencies, in milliseconds. The list `seconds` must be sorted."""
        last = len(self.seconds) - 1
        return self.seconds[-(-percent * last // 100)] * 1e3

    def figures(self) -> dict[str, object]:
        """Return the results of the load test by name, as shown to the user. Sorts the list `seconds`."""
        self.seconds.sort()
        latencies = (
            {f"p{percent}_ms": round(self.percentile_ms(percent), 3) for percent in _PERCENTILES} if self.seconds else {}
        )
        longest = {"max_ms": round(self.percentile_ms(100), 3)} if self.seconds else {}
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
    saves: Annotated[int, typer.Option(help="The number of saves.", min=1, max=_MAX_SAVES)] = 10_000,
    duration_seconds: Annotated[
        float | None, typer.Option(help="Stop after this time, even if fewer saves are done.", min=0.1, max=options.MAX_SECONDS)
    ] = None,
    concurrency: Annotated[int, typer.Option(help="The number of concurrent saves.", min=1, max=10_000)] = 32,
    claims: Annotated[int, typer.Option(help="The number of names that each save claims.", min=1, max=2000)] = 4,
    json: options.Json = False,
    server: options.Server = options.SERVER,
    ca: options.Ca = None,
    cert: options.Cert = None,
    key: options.Key = None,
    timeout_seconds: options.TimeoutSeconds = options.TIMEOUT_SECONDS,
) -> None:
    """Begin and commit updates with random new names, and measure latency and throughput.

    The names stay claimed: use a test server. Ctrl-C finishes the saves in progress, then prints the results. The exit code
    is 1 if a save failed.
    """

    async def measure() -> _Measurements:
        async with Connection(server, ca, cert, key, timeout_seconds).async_client(cell, _RETRY) as client:
            return await _LoadTest(client, saves, claims).run(concurrency, duration_seconds)

    with _collected_warnings() as warnings:
        measurements = asyncio.run(measure())
    _show(measurements, json=json)
    if warnings:
        ERRORS.print(f"{len(warnings):,} warnings, the first: {warnings[0]}", markup=False, highlight=False, soft_wrap=True)
    if measurements.errors:
        raise typer.Exit(1)


@contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """Collect the client's warnings instead of printing them: if the server goes down, each save logs one."""
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("leasehold")
    log.addHandler(handler)
    try:
        yield warnings
    finally:
        log.removeHandler(handler)


class _LoadTest:
    """Saves that run concurrently until their number is reached, the time is over, or the user presses Ctrl-C."""

    def __init__(self, client: AsyncClient, saves: int, claims: int) -> None:
        self._client = client
        self._saves = saves
        self._claims = claims
        self._started = 0
        self._is_over = asyncio.Event()
        self._measurements = _Measurements()
        # Names begin with this random prefix, so that no other run against the same server has used them.
        self._prefix = secrets.token_hex(4)

    async def run(self, concurrency: int, duration_seconds: float | None) -> _Measurements:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._is_over.set)
        if duration_seconds is not None:
            loop.call_later(duration_seconds, self._is_over.set)
        start = time.monotonic()
        workers = asyncio.gather(*(self._work() for _ in range(min(concurrency, self._saves))))
        ERRORS.print("saving; press Ctrl-C to stop", highlight=False)
        try:
            with progress_bar() as bar:
                await self._show_progress(bar, workers, start)
            await workers
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        self._measurements.elapsed_seconds = time.monotonic() - start
        return self._measurements

    async def _show_progress(self, bar: Progress, workers: asyncio.Future[list[None]], start: float) -> None:
        task = bar.add_task("saving", total=self._saves)
        while True:
            done, _ = await asyncio.wait([workers], timeout=_PROGRESS_INTERVAL_SECONDS)
            saved, failed = len(self._measurements.seconds), self._measurements.errors.total()
            rate = saved / (time.monotonic() - start)
            bar.update(task, completed=saved + failed, description=f"{saved:,} saved, {rate:,.0f}/s, {failed:,} failed")
            if done:
                return

    async def _work(self) -> None:
        while self._started < self._saves and not self._is_over.is_set():
            self._started += 1
            claims = self._new_claims(self._started)
            start = time.perf_counter()
            try:
                async with self._client.update(creates=claims):
                    pass
            except LeaseholdError as error:
                self._measurements.errors[error.code] += 1
            else:
                self._measurements.seconds.append(time.perf_counter() - start)

    def _new_claims(self, number: int) -> list[Claim]:
        subject, source = Subject(SubjectType.USER, number), Source.of(SourceType.USERS, number)
        token = secrets.token_hex(6)
        names = (f"{token}-{self._prefix}-{index}" for index in range(self._claims))
        return [Claim(BucketType.USERNAMES, name, subject, source) for name in names]


def _show(measurements: _Measurements, *, json: bool) -> None:
    figures = measurements.figures()
    if json:
        show_json(figures)
        return
    errors = [(f"failed: {code}", f"{count:,}") for code, count in measurements.errors.most_common()]
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in figures.items() if isinstance(value, int | float)]
    show_table("load", ("measure", "value"), [*rows, *errors], right=["value"])
    if measurements.seconds:
        show_table("latency", ("up to", "saves", ""), _histogram(measurements.seconds), right=["up to", "saves"])


def _histogram(seconds: list[float]) -> list[tuple[str, str, str]]:
    """Return the rows of a histogram of sorted latencies. Each bar's upper bound is twice the bound before."""
    bounds = [max(seconds[0] * 1e3, 0.001)]
    while bounds[-1] < seconds[-1] * 1e3:
        bounds.append(bounds[-1] * 2)
    counts = Counter(next(at for at, bound in enumerate(bounds) if latency * 1e3 <= bound) for latency in seconds)
    most = max(counts.values())
    return [(f"{bound:,.2f} ms", f"{counts[at]:,}", "█" * (40 * counts[at] // most)) for at, bound in enumerate(bounds)]
