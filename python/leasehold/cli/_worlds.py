"""What befell a simulated world, in counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from leasehold.simulation import Simulation
from leasehold.simulation.types import Entry

_TOLD = "the user is told: "
_REFUSED = "refused: "
_LOST = "rolled_back_under_rows"


@dataclass(frozen=True)
class Outcomes:
    """What befell a world.

    Attributes
    ----------
    events, faults : int
        How much happened, and how much of it was trouble.
    told : Counter of str
        What users were told about their saves, in words.
    refusals : Counter of str
        How the service refused, in words.
    leases, committed, rolled_back : int
        Leases that were begun, and how they were settled.
    lost : int
        Leases that were rolled back though their rows were committed: their claims are gone until verification. A world
        ends with the first.
    recoveries : tuple of float
        For each lease that a reconciler settled, the seconds from its begin.
    violations : tuple of str
        Promises that were broken.
    """

    events: int
    faults: int
    told: Counter[str]
    refusals: Counter[str]
    leases: int
    committed: int
    rolled_back: int
    lost: int
    recoveries: tuple[float, ...]
    violations: tuple[str, ...]

    @property
    def conflicts(self) -> int:
        """How often a name was under another lease."""
        return self.refusals["the claim is under another lease"]


def outcomes(run: Simulation) -> Outcomes:
    """Count what befell the whole run, which is at its end: a lost lease is a broken promise, and ends it."""
    entries = run.entries()
    senders = {arrow["id"]: arrow["from"] for arrow in run.arrows()}
    settled = Counter(fired["event"] for entry in entries for fired in entry["fired"] if fired["machine"] == "lease")
    return Outcomes(
        events=len(entries),
        faults=sum(entry["fault"] for entry in entries),
        told=Counter(_after(_TOLD, (entry["says"] for entry in entries))),
        refusals=Counter(_after(_REFUSED, (arrow["says"] for entry in entries for arrow in entry["sent"]))),
        leases=settled["Begin"],
        committed=settled["Commit"],
        rolled_back=settled["Rollback"],
        lost=sum(isinstance(one, dict) and _LOST in one for one in run.view().get("violation", [])),
        recoveries=tuple(_recoveries(entries, senders)),
        violations=tuple(entry["violation"] for entry in entries if "violation" in entry),
    )


def _after(mark: str, texts: Iterable[str]) -> Iterator[str]:
    return (text.partition(mark)[2] for text in texts if mark in text)


def _recoveries(entries: Iterable[Entry], senders: dict[int, Any]) -> Iterator[float]:
    begun: dict[str, int] = {}
    for entry in entries:
        for fired in entry["fired"]:
            if fired["machine"] != "lease":
                continue
            if fired["event"] == "Begin":
                begun[fired["of"]] = entry["at_micros"]
            elif _is_reconciler(senders.get(entry.get("arrived", -1))):
                yield (entry["at_micros"] - begun[fired["of"]]) / 1e6


def _is_reconciler(lane: Any) -> bool:  # noqa: ANN401 - as traces have it
    process = lane["process"][1] if isinstance(lane, dict) and "process" in lane else None
    return isinstance(process, dict) and "reconciler" in process
