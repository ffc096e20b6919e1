"""`leasehold-py sweep`: conflicts, lost leases and recovery times by threshold, latency and crash rate."""

from __future__ import annotations

import itertools
import os
import statistics
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.parquet
import typer

from leasehold._extras import importing
from leasehold._kinds import shortened
from leasehold.cli import _options as options
from leasehold.cli._exit import INTERRUPTED
from leasehold.cli._interrupt import until_interrupt
from leasehold.cli._output import ERRORS, check_output_paths, progress_bar, show_json, show_table
from leasehold.cli._world_summary import WorldSummary, summarise
from leasehold.errors import MisconfiguredError
from leasehold.simulation import Simulation
from leasehold.simulation._signatures import MAX_SEED
from leasehold.simulation.types import Rates, Thresholds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Relative weights of the simulated events that are not faults. `--crash-rate` is the weight of crashes beside them.
_SAVE_WEIGHT, _STEP_WEIGHT, _DELIVER_WEIGHT = 60, 480, 300
_DAY_SECONDS = 86_400

# The events that a world plays between two looks for Ctrl-C.
_EVENTS_AT_ONCE = 10_000
_POLL_SECONDS = 0.5

# The most worlds of all combinations together.
_MAX_WORLDS = 100_000
# The most events of a world, which need some gigabytes of memory.
_MAX_EVENTS = 10_000_000
# The least and the largest number of each list. The weights of a world have 16 bits, and its shortest step is a microsecond.
_RANGES: dict[str, tuple[float, float]] = {
    "stale-after-seconds": (1, 1_000_000),
    "latency-ms": (0.001, 1_000_000),
    "crash-rate": (0, 65_535),
}
_EXAMPLES = {"stale-after-seconds": "10,30,60", "latency-ms": "50,200", "crash-rate": "2,8,32"}

# The lines of a plot: colours for latencies and styles for crash rates, which also paper without colours shows.
_STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Point:
    """One combination of swept parameters: the stale threshold, the duration of a step, and the weight of crashes."""

    stale_after_seconds: int
    step_ms: float
    crash_rate: int


@dataclass(frozen=True)
class SweepResult:
    """Counts over all worlds of a point.

    Attributes
    ----------
    stale_after_seconds, step_ms, crash_rate
        The point.
    worlds, leases, conflicts, lost : int
        The number of worlds, of leases that began, of begins refused by another lease, and of leases that lost their claims.
    conflicts_per_lease : float
        Conflicts divided by leases.
    recovered : int
        The number of leases that reconcilers settled.
    recover_median_seconds, recover_max_seconds : float or None
        The median and the maximum of the seconds that the recovered leases were outstanding; None if none recovered.
    violations : int
        The number of worlds that broke a promise.
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
        str, typer.Option(help="Ages at which a lease counts as abandoned, comma-separated.", metavar="LIST")
    ] = "10,30,60,120",
    latency_ms: Annotated[
        str, typer.Option(help="The shortest times of a step of a process and of a message, comma-separated.", metavar="LIST")
    ] = "50,200",
    crash_rate: Annotated[
        str,
        typer.Option(
            help=f"Weights of crashes, comma-separated. Steps have the weight {_STEP_WEIGHT}, messages {_DELIVER_WEIGHT}.",
            metavar="LIST",
        ),
    ] = "2,8,32",
    worlds: Annotated[int, typer.Option(help="The number of worlds for each combination.", min=1, max=_MAX_WORLDS)] = 8,
    world_seconds: Annotated[
        float, typer.Option(help="The simulated time of each world.", min=1, max=options.MAX_SECONDS)
    ] = 600.0,
    seed: Annotated[
        int, typer.Option(help="The seed of the first world. Later worlds use the following numbers.", min=0, max=MAX_SEED)
    ] = 0,
    threads: Annotated[
        int | None, typer.Option(help="The number of concurrent worlds. The default is one per core.", min=1, max=1000)
    ] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write the table to this Parquet file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a plot to this PNG file. Needs `leasehold[plot]`.")] = None,
    json: options.Json = False,
) -> None:
    """Play simulated worlds for every combination of three lists, and count their outcomes.

    The results depend on the seeds only, not on the number of threads. Crashes are the only faults. Leases that are
    outstanding at the end of a world do not count as recovered.

    Ctrl-C stops the worlds, and prints the results of those that were finished. The exit code is then 130.
    """
    points = _points(stale_after_seconds, latency_ms, crash_rate, worlds, world_seconds)
    if seed + worlds - 1 > MAX_SEED:
        raise MisconfiguredError(
            f"the last world has the seed {seed + worlds - 1}: use a `--seed` for which it is at most {MAX_SEED}"
        )
    # Playing the worlds can take hours, so a missing directory or library must raise an error before the first one.
    check_output_paths(parquet, plot)
    if plot is not None:
        _figure_class()
    with until_interrupt() as stop:
        results = _play(points, range(seed, seed + worlds), world_seconds, threads or os.cpu_count() or 1, stop)
    if results:
        _write(results, parquet, plot)
    if json:
        for result in results:
            show_json(asdict(result))
    else:
        _show(results)
    if stop.is_set():
        played = sum(result.worlds for result in results)
        ERRORS.print(f"stopped: {played:,} of {len(points) * worlds:,} worlds were finished", highlight=False)
        raise typer.Exit(INTERRUPTED)


def _write(results: Sequence[SweepResult], parquet: Path | None, plot: Path | None) -> None:
    if parquet is not None:
        pyarrow.parquet.write_table(pa.Table.from_pylist([asdict(result) for result in results]), parquet)
    if plot is not None:
        draw(results, plot)


def play(point: Point, seed: int, world_seconds: float, stop: threading.Event) -> WorldSummary | None:
    """Play one world with the parameters of a point; None if the event stopped it before its end.

    The extension releases the interpreter lock, so threads can run.
    """
    run = Simulation(
        seed=seed,
        cells=2,
        workers=3,
        names=8,
        step_micros=round(point.step_ms * 1000),
        thresholds=_thresholds(point.stale_after_seconds),
        rates=_rates(point.crash_rate),
    )
    # Every world gets the same simulated time. The number of events to play therefore depends on the duration of a step.
    remaining = _events(world_seconds, point.step_ms)
    while remaining and not stop.is_set():
        events = min(remaining, _EVENTS_AT_ONCE)
        # A world that broke a promise plays no more events.
        remaining = remaining - events if run.play(events) == events else 0
    return None if remaining else summarise(run)


def _thresholds(stale_after_seconds: int) -> Thresholds:
    # The ratios of the durations are those of the default thresholds. A local COMMIT must end within half of the time after
    # which its lease is stale, so that reconciliation cannot roll the lease back before it (R04).
    return {
        "stale_after_seconds": stale_after_seconds,
        "commit_within_seconds": max(1, stale_after_seconds // 2),
        "transaction_within_seconds": stale_after_seconds * 3,
        "recent_within_seconds": stale_after_seconds * 6,
        "remember_within_seconds": max(_DAY_SECONDS, stale_after_seconds * 144),
        "replica_lag_seconds": 0,
    }


def _rates(crash: int) -> Rates:
    return {
        "save": _SAVE_WEIGHT,
        "step": _STEP_WEIGHT,
        "deliver": _DELIVER_WEIGHT,
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


def _list(name: str, text: str) -> list[float]:
    """Return the numbers of an option that is a list.

    Raises
    ------
    MisconfiguredError
        A part is no number, or out of its range.
    """
    low, high = _RANGES[name]
    kind = "integers" if isinstance(low, int) else "numbers"
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(low <= number <= high and (kind == "numbers" or number.is_integer()) for number in numbers):
        problem = f"`--{name}` is `{shortened(text)}`"
        raise MisconfiguredError(f"{problem}: use comma-separated {kind} from {low} to {high}, such as {_EXAMPLES[name]}")
    return numbers


def _points(stale_after_seconds: str, latency_ms: str, crash_rate: str, worlds: int, world_seconds: float) -> list[Point]:
    """Return every combination of the three lists.

    Raises
    ------
    MisconfiguredError
        A list is wrong, or the worlds are too many or too long.
    """
    stales, steps = _list("stale-after-seconds", stale_after_seconds), _list("latency-ms", latency_ms)
    crashes = _list("crash-rate", crash_rate)
    count = len(stales) * len(steps) * len(crashes) * worlds
    if count > _MAX_WORLDS:
        raise MisconfiguredError(f"the lists and `--worlds` make {count} worlds: use at most {_MAX_WORLDS} together")
    events = _events(world_seconds, min(steps))
    if events > _MAX_EVENTS:
        raise MisconfiguredError(
            f"a world of {world_seconds:g} s with steps of {min(steps):g} ms has {events} events, more than {_MAX_EVENTS}: use "
            "a shorter `--world-seconds`, or a longer `--latency-ms`"
        )
    return [Point(int(stale), step, int(crash)) for stale, step, crash in itertools.product(stales, steps, crashes)]


def _events(world_seconds: float, step_ms: float) -> int:
    """Return the number of events that a world plays in its time."""
    return round(world_seconds * 1000 / step_ms)


def _play(
    points: Sequence[Point], seeds: Sequence[int], world_seconds: float, threads: int, stop: threading.Event
) -> list[SweepResult]:
    """Return the results of all points; if the event stops the worlds, those of the points with a finished world."""
    summaries: dict[Point, list[WorldSummary]] = {point: [] for point in points}
    with progress_bar() as bar, ThreadPoolExecutor(threads) as pool:
        jobs = [(point, pool.submit(play, point, seed, world_seconds, stop)) for point in points for seed in seeds]
        task = bar.add_task("", total=len(jobs))
        ERRORS.print("playing; press Ctrl-C to stop", highlight=False)
        for done in _completed([future for _, future in jobs], stop):
            bar.update(task, completed=done, description=f"{done:,} of {len(jobs):,} worlds")
    for point, future in jobs:
        # An iteration in the order of the seeds makes the results independent of the threads.
        if not future.cancelled() and (summary := future.result()) is not None:
            summaries[point].append(summary)
    return [_total(point, worlds) for point, worlds in summaries.items() if worlds]


def _completed(futures: Sequence[Future[WorldSummary | None]], stop: threading.Event) -> Iterator[int]:
    """Yield the number of completed worlds, until all are. If the event is set, worlds that have not begun are cancelled."""
    pending = set(futures)
    while pending:
        # The handler of Ctrl-C runs between two steps of this thread, so no wait is long.
        _, pending = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
        if stop.is_set():
            pending = {future for future in pending if not future.cancel()}
        yield len(futures) - len(pending)


def _total(point: Point, worlds: Sequence[WorldSummary]) -> SweepResult:
    recoveries = [seconds for world in worlds for seconds in world.recoveries]
    leases, conflicts = sum(world.leases for world in worlds), sum(world.conflicts for world in worlds)
    return SweepResult(
        **asdict(point),
        worlds=len(worlds),
        leases=leases,
        conflicts=conflicts,
        conflicts_per_lease=conflicts / leases if leases else 0.0,
        lost=sum(world.lost for world in worlds),
        recovered=len(recoveries),
        recover_median_seconds=statistics.median(recoveries) if recoveries else None,
        recover_max_seconds=max(recoveries, default=None),
        violations=sum(bool(world.violations) for world in worlds),
    )


def draw(results: Iterable[SweepResult], path: Path) -> None:
    """Write a plot of conflicts and recovery times over the threshold.

    Raises
    ------
    MisconfiguredError
        matplotlib is not installed.
    """
    figure_of(list(results)).savefig(path, format="png")


def figure_of(results: Sequence[SweepResult]) -> Figure:
    """Return the plot of `draw`, with a colour for each latency and a line style for each crash rate."""
    figure = _figure_class()(figsize=(11, 5), layout="constrained")
    worlds = sum(result.worlds for result in results)
    figure.suptitle(f"Conflicts and recovery by staleness threshold, in {worlds:,} simulated worlds")
    conflicts, recovery = figure.subplots(1, 2)
    colours = {step_ms: f"C{at}" for at, step_ms in enumerate(dict.fromkeys(result.step_ms for result in results))}
    styles = dict(zip(dict.fromkeys(result.crash_rate for result in results), itertools.cycle(_STYLES), strict=False))
    for step_ms, crash_rate in itertools.product(colours, styles):
        line = [result for result in results if (result.step_ms, result.crash_rate) == (step_ms, crash_rate)]
        thresholds = [result.stale_after_seconds for result in line]
        medians = (result.recover_median_seconds for result in line)
        # Matplotlib leaves a gap in the line where a value is NaN.
        seconds = [float("nan") if median is None else median for median in medians]
        look: dict[str, Any] = {"color": colours[step_ms], "linestyle": styles[crash_rate], "marker": "o"}
        conflicts.plot(thresholds, [result.conflicts_per_lease for result in line], **look)
        recovery.plot(thresholds, seconds, **look)
    conflicts.set(xlabel="stale after (s)", ylabel="conflicts (refused begins per lease)", ylim=(0, None))
    recovery.set(xlabel="stale after (s)", ylabel="median recovery time (s)", ylim=(0, None))
    _add_legend(figure, colours, styles)
    return figure


def _add_legend(figure: Figure, colours: Mapping[float, str], styles: Mapping[int, Any]) -> None:
    from matplotlib.lines import Line2D

    latencies = [Line2D([], [], color=colour, marker="o", label=f"latency {ms:g} ms") for ms, colour in colours.items()]
    rates = [Line2D([], [], color="black", linestyle=style, label=f"crash rate {rate}") for rate, style in styles.items()]
    figure.legend(handles=[*latencies, *rates], loc="outside lower center", ncols=len(latencies) + len(rates), fontsize="small")


def _figure_class() -> type[Figure]:
    with importing("plot"):
        from matplotlib.figure import Figure
    return Figure


def _show(results: Sequence[SweepResult]) -> None:
    columns = (
        "stale s",
        "step ms",
        "crash",
        "leases",
        "conflicts",
        "per lease",
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
            str(result.stale_after_seconds),
            f"{result.step_ms:g}",
            str(result.crash_rate),
            f"{result.leases:,}",
            f"{result.conflicts:,}",
            f"{result.conflicts_per_lease:.2f}",
            str(result.lost),
            str(result.recovered),
            seconds(result.recover_median_seconds),
            seconds(result.recover_max_seconds),
            str(result.violations),
        )
        for result in results
    ]
    show_table("", columns, rows, right=columns)
