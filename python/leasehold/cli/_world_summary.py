"""Counts of the outcomes of a simulated world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from leasehold.simulation import Simulation
from leasehold.simulation.types import Entry

# Texts of the simulation that this module counts: from the timeline (simulation/src/event_text.rs), from messages
# (message_text.rs), and from violations (violation.rs). tests/cli/test_world_summary.py fails if a text changes.
_REPORTED_TO_USER = "the user is told: "
_REFUSED = "refused: "
_LOST = "rolled_back_under_rows"


@dataclass(frozen=True)
class WorldSummary:
    """Counts of the outcomes of a world.

    Attributes
    ----------
    events, faults : int
        The number of events, and of those that inject a fault.
    save_results : Counter of str
        The results of saves as reported to users, by text.
    refusals : Counter of str
        The refusals of the service, by text.
    leases, committed, rolled_back : int
        The number of leases that began, were committed, and were rolled back.
    lost : int
        The number of leases that were rolled back although their rows were committed. Their claims are missing until
        verification. The first lost lease ends the world.
    recoveries : tuple of float
        The seconds from begin to settlement of each lease that a reconciler settled.
    violations : tuple of str
        The broken promises.
    """

    events: int
    faults: int
    save_results: Counter[str]
    refusals: Counter[str]
    leases: int
    committed: int
    rolled_back: int
    lost: int
    recoveries: tuple[float, ...]
    violations: tuple[str, ...]

    @property
    def conflicts(self) -> int:
        """The number of begins that the service refused because another lease held a name."""
        return self.refusals["the claim is under another lease"]


def summarise(run: Simulation) -> WorldSummary:
    """Return the counts of a whole run of a simulated world. The run's position must be its end."""
    entries = run.entries()
    senders = {arrow["id"]: arrow["from"] for arrow in run.arrows()}
    settled = Counter(fired["event"] for entry in entries for fired in entry["fired"] if fired["machine"] == "lease")
    return WorldSummary(
        events=len(entries),
        faults=sum(entry["fault"] for entry in entries),
        save_results=Counter(_texts_after(_REPORTED_TO_USER, (entry["says"] for entry in entries))),
        refusals=Counter(_texts_after(_REFUSED, (arrow["says"] for entry in entries for arrow in entry["sent"]))),
        leases=settled["Begin"],
        committed=settled["Commit"],
        rolled_back=settled["Rollback"],
        # A lost lease is a violation, and a violation ends the run. The view at the end of the run therefore contains it.
        lost=sum(isinstance(violation, dict) and _LOST in violation for violation in run.view().get("violation", [])),
        recoveries=tuple(_recoveries(entries, senders)),
        violations=tuple(entry["violation"] for entry in entries if "violation" in entry),
    )


def _texts_after(prefix: str, texts: Iterable[str]) -> Iterator[str]:
    return (text.partition(prefix)[2] for text in texts if prefix in text)


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


def _is_reconciler(lane: Any) -> bool:  # noqa: ANN401 - a value of a trace
    process = lane["process"][1] if isinstance(lane, dict) and "process" in lane else None
    return isinstance(process, dict) and "reconciler" in process
