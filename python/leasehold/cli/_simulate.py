"""`leasehold-py simulate`: one simulated world, and the counts of its outcomes."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer

from leasehold.cli import _options as options
from leasehold.cli._output import check_output_paths, show_json, show_table
from leasehold.cli._world_summary import WorldSummary, summarise
from leasehold.errors import MisconfiguredError
from leasehold.simulation import Simulation, rules
from leasehold.simulation._signatures import MAX_SEED, MAX_STEPS, SIZES
from leasehold.simulation.types import Rule


def _size(name: str) -> dict[str, Any]:
    """Return the bounds of an option that sets the size of a world."""
    low, high = SIZES[name]
    return {"min": low, "max": high}


def simulate(
    *,
    seed: Annotated[
        int, typer.Option(help="The seed of the random events. The same seed plays the same world.", min=0, max=MAX_SEED)
    ] = 0,
    events: Annotated[
        int, typer.Option(help="The number of events. The run ends early at the first violation.", min=1, max=MAX_STEPS)
    ] = 2000,
    cells: Annotated[int, typer.Option(help="The number of cells.", **_size("cells"))] = 2,
    workers: Annotated[int, typer.Option(help="The number of concurrent saves of a cell.", **_size("workers"))] = 2,
    reconcilers: Annotated[
        int, typer.Option(help="The number of concurrent reconcilers of a cell.", **_size("reconcilers"))
    ] = 1,
    names: Annotated[int, typer.Option(help="The number of different names.", **_size("names"))] = 3,
    rule_off: Annotated[
        list[str] | None, typer.Option(help="A protocol rule to switch off. Can be repeated.", metavar="RULE")
    ] = None,
    quiesce: Annotated[
        bool, typer.Option("--quiesce", help="After the events, stop all faults and play until every process is idle.")
    ] = False,
    trace: Annotated[Path | None, typer.Option(help="Write the run to this file, for the browser page.")] = None,
    json: options.Json = False,
) -> None:
    """Play a simulated world of cells, databases, network and clocks, and count its outcomes.

    The exit code is 1 if the protocol broke a promise.
    """
    check_output_paths(trace)
    run = Simulation(
        seed=seed, cells=cells, workers=workers, reconcilers=reconcilers, names=names, rules_off=_rules(rule_off or [])
    )
    run.play(events)
    if quiesce and run.marks().get("violation") is None:
        run.quiesce()
    if trace is not None:
        trace.write_text(run.trace(), encoding="utf-8")
    summary = summarise(run)
    _show(summary, seed, json=json)
    if summary.violations:
        raise typer.Exit(1)


def _rules(named: list[str]) -> list[Rule]:
    known: list[Rule] = [info["rule"] for info in rules()]
    for rule in named:
        if rule not in known:
            raise MisconfiguredError(f"`{rule}` is not a rule: use one of {', '.join(known)}")
    return [rule for rule in known if rule in named]


def _show(summary: WorldSummary, seed: int, *, json: bool) -> None:
    if json:
        show_json({"seed": seed, **vars(summary)})
        return
    rows = [
        ("events", summary.events),
        ("faults", summary.faults),
        *((f"save result: {text}", count) for text, count in summary.save_results.most_common()),
        *((f"refused: {text}", count) for text, count in summary.refusals.most_common()),
        ("leases begun", summary.leases),
        ("leases committed", summary.committed),
        ("leases rolled back", summary.rolled_back),
        ("leases lost", summary.lost),
        ("leases settled by reconcilers", len(summary.recoveries)),
    ]
    shown = [(name, f"{count:,}") for name, count in rows]
    if summary.recoveries:
        shown.append(("median recovery time (s)", f"{statistics.median(summary.recoveries):,.1f}"))
    shown += [("broken promise", violation) for violation in summary.violations]
    show_table(f"world {seed}", ("outcome", "count"), shown, right=["count"])
