"""`leasehold-py simulate`: one world of cells, and what befalls it."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated

import typer

from leasehold.cli import _options as options
from leasehold.cli._output import check_places, show_json, show_table
from leasehold.cli._worlds import Outcomes, outcomes
from leasehold.errors import MisconfiguredError
from leasehold.simulation import Simulation, rules
from leasehold.simulation.types import Rule


def simulate(
    *,
    seed: Annotated[int, typer.Option(help="Whence chance draws: the same seed, the same world.", min=0)] = 0,
    events: Annotated[int, typer.Option(help="How many events befall it, up to the first violation.", min=1)] = 2000,
    cells: Annotated[int, typer.Option(help="How many cells.")] = 2,
    workers: Annotated[int, typer.Option(help="How many saves a cell can be at, at a time.")] = 2,
    reconcilers: Annotated[int, typer.Option(help="How many reconcilers a cell runs at a time.")] = 1,
    names: Annotated[int, typer.Option(help="How many names there are to claim.")] = 3,
    rule_off: Annotated[
        list[str] | None, typer.Option(help="A rule of the protocol to switch off. Repeat it.", metavar="RULE")
    ] = None,
    settle: Annotated[bool, typer.Option("--settle", help="End all trouble, and let everybody come to rest.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Where to write the run; the browser page opens it.")] = None,
    json: options.Json = False,
) -> None:
    """Play a simulated world of cells, databases, network and clocks, and tell what befell it.

    The exit code is 1 where a promise of the protocol was broken.
    """
    check_places(trace)
    run = Simulation(
        seed=seed, cells=cells, workers=workers, reconcilers=reconcilers, names=names, rules_off=_rules(rule_off or [])
    )
    run.play(events)
    if settle and run.marks().get("violation") is None:
        run.settle()
    if trace is not None:
        trace.write_text(run.trace(), encoding="utf-8")
    found = outcomes(run)
    _show(found, seed, json=json)
    if found.violations:
        raise typer.Exit(1)


def _rules(named: list[str]) -> list[Rule]:
    known: list[Rule] = [one["rule"] for one in rules()]
    for rule in named:
        if rule not in known:
            raise MisconfiguredError(f"`{rule}` is no rule: say one of {', '.join(known)}")
    return [rule for rule in known if rule in named]


def _show(found: Outcomes, seed: int, *, json: bool) -> None:
    if json:
        show_json({"seed": seed, **vars(found)})
        return
    rows = [
        ("events", found.events),
        ("faults", found.faults),
        *((f"users told: {words}", count) for words, count in found.told.most_common()),
        *((f"refused: {words}", count) for words, count in found.refusals.most_common()),
        ("leases begun", found.leases),
        ("leases committed", found.committed),
        ("leases rolled back", found.rolled_back),
        ("leases lost", found.lost),
        ("leases settled by reconcilers", len(found.recoveries)),
    ]
    shown = [(name, f"{count:,}") for name, count in rows]
    if found.recoveries:
        shown.append(("seconds to recover, median", f"{statistics.median(found.recoveries):,.1f}"))
    shown += [("broken", violation) for violation in found.violations]
    show_table(f"world {seed}", ("outcome", "count"), shown, right=["count"])
