"""`leasehold-py sweep`: how thresholds, latency and crashes bear on conflicts, lost leases and recovery."""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import pyarrow.parquet
import typer

from leasehold.cli import _options as options
from leasehold.cli._output import check_places, progress_bar, show_json, show_table
from leasehold.cli._worlds import Outcomes, outcomes
from leasehold.errors import MisconfiguredError
from leasehold.simulation import Simulation
from leasehold.simulation.types import Rates, Thresholds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAVE, _STEP, _DELIVER = 60, 480, 300
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Point:
    """What a world is made with: when leases are given up, how long a step takes, how often processes crash."""

    stale_after_seconds: int
    step_ms: float
    crash_rate: int


@dataclass(frozen=True)
class Swept:
    """What befell the worlds of a point, in all.

    Attributes
    ----------
    stale_after_seconds, step_ms, crash_rate
        The point.
    worlds, leases, conflicts, lost : int
        Worlds that were played, leases that were begun, begins that met another lease, leases whose claims were lost.
    conflicts_per_lease : float
        Conflicts of each lease that was begun.
    recovered : int
        Leases that reconcilers settled.
    recover_median_seconds, recover_max_seconds : float or None
        How long these were outstanding; None where there were none.
    violations : int
        Worlds that broke a promise.
    """

    stale_after_seconds: int
    step_ms: float
    crash_rate: int
    worlds: int
    leases: int
    conflicts: int
    conflicts_per_lease: float
    lost: int
    recovered: int
    recover_median_seconds: float | None
    recover_max_seconds: float | None
    violations: int


def sweep(
    *,
    stale_after_seconds: Annotated[
        str, typer.Option(help="Ages from which a lease is given up.", metavar="LIST")
    ] = "10,30,60,120",
    latency_ms: Annotated[
        str, typer.Option(help="How long each step of a process and each message takes, at the least.", metavar="LIST")
    ] = "50,200",
    crash_rate: Annotated[
        str, typer.Option(help=f"Weights of crashes, beside {_STEP} for steps and {_DELIVER} for messages.", metavar="LIST")
    ] = "2,8,32",
    worlds: Annotated[int, typer.Option(help="How many worlds to play for each point.", min=1)] = 8,
    world_seconds: Annotated[float, typer.Option(help="How much time passes in each world.", min=1)] = 600.0,
    seed: Annotated[int, typer.Option(help="The first world's seed; the others' follow.", min=0)] = 0,
    threads: Annotated[int | None, typer.Option(help="Worlds to play at a time; one a core unless told.", min=1)] = None,
    parquet: Annotated[Path | None, typer.Option(help="Where to write the table as Parquet.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Where to write a plot, as PNG; needs `leasehold[plot]`.")] = None,
    json: options.Json = False,
) -> None:
    """Play simulated worlds over all combinations of three lists, and tell what befell them.

    Worlds of one seed are the same however many threads play them. Nothing but crashes troubles them. What is outstanding
    when a world ends counts as no recovery.
    """
    points = [
        Point(stale, step, crash)
        for stale, step, crash in itertools.product(
            _whole("stale-after-seconds", stale_after_seconds),
            _numbers("latency-ms", latency_ms),
            _whole("crash-rate", crash_rate),
        )
    ]
    # Worlds take long: what is missing is told before.
    check_places(parquet, plot)
    if plot is not None:
        _figure_class()
    found = _play(points, range(seed, seed + worlds), world_seconds, threads or os.cpu_count() or 1)
    if parquet is not None:
        pyarrow.parquet.write_table(pa.Table.from_pylist([asdict(one) for one in found]), parquet)
    if plot is not None:
        draw(found, plot)
    if json:
        for one in found:
            show_json(asdict(one))
    else:
        _show(found)


def play(point: Point, seed: int, world_seconds: float) -> Outcomes:
    """Play one world of a point, most of it beside other threads."""
    run = Simulation(
        seed=seed,
        cells=2,
        workers=3,
        names=8,
        step_micros=round(point.step_ms * 1000),
        thresholds=_thresholds(point.stale_after_seconds),
        rates=_rates(point.crash_rate),
    )
    # As much time for each point: who takes longer for a step takes fewer of them.
    run.play(round(world_seconds * 1000 / point.step_ms))
    return outcomes(run)


def _thresholds(stale_after_seconds: int) -> Thresholds:
    # In proportion to the usual ones; time to commit is half of what makes a lease stale.
    return {
        "stale_after_seconds": stale_after_seconds,
        "commit_within_seconds": max(1, stale_after_seconds // 2),
        "transaction_within_seconds": stale_after_seconds * 3,
        "recent_within_seconds": stale_after_seconds * 6,
        "remember_within_seconds": max(_DAY_SECONDS, stale_after_seconds * 144),
        "replica_lag_seconds": 0,
    }


def _rates(crash: int) -> Rates:
    quiet: Rates = {
        "save": _SAVE,
        "step": _STEP,
        "deliver": _DELIVER,
        "drop": 0,
        "duplicate": 0,
        "time_out": 0,
        "crash": crash,
        "disconnect": 0,
        "partition": 0,
        "restart": 0,
        "wait": 0,
        "drift": 0,
    }
    return quiet


def _whole(name: str, text: str) -> list[int]:
    found = _numbers(name, text)
    if not all(number.is_integer() for number in found):
        raise MisconfiguredError(f"`--{name}` is `{text}`: give whole numbers")
    return [int(number) for number in found]


def _numbers(name: str, text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    is_good = found and all(0 <= number <= 1_000_000 for number in found)
    if not is_good or (name != "crash-rate" and 0 in found):
        raise MisconfiguredError(f"`--{name}` is `{text}`: give numbers with commas between them, as 10,30,60")
    return found


def _play(points: Sequence[Point], seeds: Sequence[int], world_seconds: float, threads: int) -> list[Swept]:
    jobs = list(itertools.product(points, seeds))
    befell: dict[Point, list[Outcomes]] = {point: [] for point in points}
    with progress_bar() as bar, ThreadPoolExecutor(threads) as pool:
        task = bar.add_task(f"{len(jobs):,} worlds", total=len(jobs))
        played = pool.map(lambda job: play(job[0], job[1], world_seconds), jobs)
        for (point, _), one in zip(jobs, played, strict=True):
            befell[point].append(one)
            bar.advance(task)
    return [_sum(point, some) for point, some in befell.items()]


def _sum(point: Point, some: Sequence[Outcomes]) -> Swept:
    recoveries = [seconds for one in some for seconds in one.recoveries]
    leases, conflicts = sum(one.leases for one in some), sum(one.conflicts for one in some)
    return Swept(
        **asdict(point),
        worlds=len(some),
        leases=leases,
        conflicts=conflicts,
        conflicts_per_lease=conflicts / leases if leases else 0.0,
        lost=sum(one.lost for one in some),
        recovered=len(recoveries),
        recover_median_seconds=statistics.median(recoveries) if recoveries else None,
        recover_max_seconds=max(recoveries, default=None),
        violations=sum(bool(one.violations) for one in some),
    )


def draw(found: Iterable[Swept], path: Path) -> None:
    """Draw conflicts and times to recover over the threshold, a line for each latency and crash rate.

    Raises
    ------
    MisconfiguredError
        matplotlib is not installed.
    """
    figure = _figure_class()(figsize=(11, 4.5), layout="constrained")
    lines: dict[tuple[float, int], list[Swept]] = {}
    for one in found:
        lines.setdefault((one.step_ms, one.crash_rate), []).append(one)
    left, right = figure.subplots(1, 2)
    for (step_ms, crash_rate), some in lines.items():
        at = [one.stale_after_seconds for one in some]
        label = f"{step_ms:g} ms, crash {crash_rate}"
        left.plot(at, [one.conflicts_per_lease for one in some], marker="o", label=label)
        times = [float("nan") if one.recover_median_seconds is None else one.recover_median_seconds for one in some]
        right.plot(at, times, marker="o", label=label)
    left.set(xlabel="stale after (s)", ylabel="conflicts a lease", ylim=(0, None))
    right.set(xlabel="stale after (s)", ylabel="time to recover, median (s)", ylim=(0, None))
    right.legend(fontsize="small")
    figure.savefig(path, format="png")


def _figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MisconfiguredError("matplotlib is not installed: `pip install matplotlib`, or leave `--plot` out") from None
    return Figure


def _show(found: Sequence[Swept]) -> None:
    columns = (
        "stale s",
        "step ms",
        "crash",
        "leases",
        "conflicts",
        "a lease",
        "lost",
        "recovered",
        "median s",
        "max s",
        "broken",
    )

    def seconds(value: float | None) -> str:
        return "" if value is None else f"{value:,.1f}"

    rows = [
        (
            str(one.stale_after_seconds),
            f"{one.step_ms:g}",
            str(one.crash_rate),
            f"{one.leases:,}",
            f"{one.conflicts:,}",
            f"{one.conflicts_per_lease:.2f}",
            str(one.lost),
            str(one.recovered),
            seconds(one.recover_median_seconds),
            seconds(one.recover_max_seconds),
            str(one.violations),
        )
        for one in found
    ]
    show_table("", columns, rows, right=columns)
