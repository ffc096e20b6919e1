"""Deterministic simulated worlds of cells, databases, network and clocks around the engine.

Every change in a world is an event. The same settings and events produce the same trace, byte for byte, in Python, in
Rust and in a browser.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from leasehold import _native
from leasehold._kinds import text
from leasehold.errors import LeaseholdError, TraceError
from leasehold.simulation import _signatures as kinds
from leasehold.simulation.types import (
    Arrow,
    Entry,
    Event,
    Found,
    Marks,
    PartialSettings,
    Plan,
    Progress,
    Rule,
    RuleInfo,
    Scenario,
    Settings,
    TransitionTables,
    View,
)

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack

__all__ = ["Explorer", "Simulation", "rule_world", "rules", "scenarios", "transition_tables"]

# The start of the message for a text that has another form than a trace (simulation/src/trace.rs).
_NO_TRACE = "the text is not a trace: "
_A_TRACE = "pass what `trace` of a `Simulation` has returned"


class Simulation:
    """A run of a simulated world, with a position in its list of events.

    Parameters
    ----------
    **settings
        The settings that differ from the defaults: `seed`, `cells`, `workers`, … See `types.Settings`.

    Raises
    ------
    InvalidError
        The settings are invalid.

    Examples
    --------
    >>> from leasehold.simulation import Simulation
    >>> run = Simulation(seed=7, cells=2)
    >>> run.play(200)
    200
    >>> events = run.quiesce()
    >>> run.marks().get("violation") is None
    True
    >>> Simulation.load(run.trace()).length == run.length
    True
    """

    def __init__(self, **settings: Unpack[PartialSettings]) -> None:
        self._run = _native.Simulation(json.dumps(kinds.SETTINGS(settings, "")))

    @classmethod
    def load(cls, trace: str) -> Simulation:
        """Return a recorded run, positioned at its start.

        Parameters
        ----------
        trace : str
            The text that `trace` returned, or a file that the browser page saved.

        Returns
        -------
        Simulation
            The run.

        Raises
        ------
        TraceError
            The text is not a trace, or it can't be replayed.
        """
        run = cls.__new__(cls)
        run._run = _loaded(text(trace, "trace"))  # noqa: SLF001
        return run

    @property
    def position(self) -> int:
        """The number of events before the run's current position."""
        return self._run.position

    @property
    def length(self) -> int:
        """The number of events in the whole run."""
        return self._run.length

    def settings(self) -> Settings:
        """Return all settings of the simulated world, defaults included."""
        value: Settings = json.loads(self._run.settings())
        return value

    def trace(self) -> str:
        """Return the whole run as JSON for the browser page. The same run returns the same bytes."""
        return self._run.trace()

    def step(self) -> bool:
        """Move the run's position one event forward. Return False at the end of the run."""
        return self._run.step()

    def back(self) -> bool:
        """Move the run's position one event back. Return False at the start of the run."""
        return self._run.back()

    def seek(self, position: int) -> None:
        """Move the run's position, to the end of the run if `position` is larger."""
        self._run.seek(kinds.POSITION(position, "position"))

    def apply(self, event: Event) -> None:
        """Insert an event at the current position and execute it. Events after the position are discarded.

        Parameters
        ----------
        event : str or dict
            The event, as in traces.

        Raises
        ------
        ImpossibleError
            The event is impossible in the current state. The run is unchanged.
        InvalidError
            It is no event.
        """
        self._run.apply(json.dumps(kinds.EVENT(event, "event")))

    def play(self, events: int) -> int:
        """Discard the events after the position, and add random events up to the first violation.

        Parameters
        ----------
        events : int
            The maximum number of events to add: at most 1,000,000, which need up to a gigabyte of memory.

        Returns
        -------
        int
            The number of events added.

        Raises
        ------
        InvalidError
            The number is out of range.
        """
        return self._run.play(kinds.STEPS(events, "events"))

    def quiesce(self) -> int:
        """Discard the events after the position, stop all faults, and play until every process is idle.

        Returns
        -------
        int
            The number of events added.

        Raises
        ------
        ImpossibleError
            The world does not become idle. The run is unchanged.
        """
        return self._run.quiesce()

    def possible(self) -> list[Event]:
        """Return the events that are possible at the current position, except saves, drifts and the passing of time."""
        value: list[Event] = json.loads(self._run.possible())
        return value

    def describe(self, event: Event) -> str:
        """Return a description of the effect that an event would have at the position.

        Parameters
        ----------
        event : str or dict
            The event, as in traces.

        Returns
        -------
        str
            The description, one sentence.

        Raises
        ------
        InvalidError
            It is no event.
        """
        return self._run.describe(json.dumps(kinds.EVENT(event, "event")))

    def view(self) -> View:
        """Return the state of the simulated world at the current position."""
        value: View = json.loads(self._run.view())
        return value

    def entries(self, start: int = 0, stop: int | None = None) -> list[Entry]:
        """Return the events between two positions with their descriptions and effects.

        Parameters
        ----------
        start : int, optional
            The first position, from 0.
        stop : int, optional
            The position after the last one. The default is the end of the run.

        Returns
        -------
        list of dict
            One `types.Entry` per event.
        """
        value: list[Entry] = json.loads(self._run.entries(*self._between(start, stop)))
        return value

    def arrows(self, start: int = 0, stop: int | None = None) -> list[Arrow]:
        """Return the messages that were in transit between two positions.

        Parameters
        ----------
        start : int, optional
            The first position, from 0.
        stop : int, optional
            The position after the last one. The default is the end of the run.

        Returns
        -------
        list of dict
            One `types.Arrow` per message.
        """
        value: list[Arrow] = json.loads(self._run.arrows(*self._between(start, stop)))
        return value

    def _between(self, start: int, stop: int | None) -> tuple[int, int]:
        end = self.length if stop is None else kinds.POSITION(stop, "stop")
        return kinds.POSITION(start, "start"), end

    def marks(self) -> Marks:
        """Return the positions of the faults of the whole run, and of its violation if it has one."""
        value: Marks = json.loads(self._run.marks())
        return value

    def minimise(self) -> str | None:
        """Return a shorter run with a violation of the same kind, as JSON; None if the run has no violation."""
        return self._run.minimise()


class Explorer:
    """A breadth-first search over every order of events in a small world.

    Parameters
    ----------
    plan : mapping
        The world, the saves of its users, and the allowed faults: see `types.Plan`. `rule_world` returns examples.

    Raises
    ------
    InvalidError
        The plan is invalid.

    Examples
    --------
    >>> from leasehold.simulation import Explorer, rule_world
    >>> explorer = Explorer(rule_world("lease_exclusivity"))
    >>> while explorer.explore(1000):
    ...     pass
    >>> explorer.found() is None
    False
    """

    def __init__(self, plan: Plan | Mapping[str, Any]) -> None:
        self._explorer = _native.Explorer(json.dumps(kinds.PLAN(plan, "plan")))

    def explore(self, states: int) -> bool:
        """Continue the search.

        Parameters
        ----------
        states : int
            The number of states to expand: at most 1,000,000.

        Returns
        -------
        bool
            True if states remain to expand.

        Raises
        ------
        InvalidError
            The number is out of range.
        """
        return self._explorer.explore(kinds.STEPS(states, "states"))

    def progress(self) -> Progress:
        """Return the counters of the search so far."""
        value: Progress = json.loads(self._explorer.progress())
        return value

    def found(self) -> Found | None:
        """Return the violation and one of the shortest traces to it; None if no violation has been found."""
        found = self._explorer.found()
        return found and {"violation": found[0], "trace": found[1]}


def scenarios() -> list[Scenario]:
    """Return all recorded scenarios, in the recommended order."""
    value: list[Scenario] = json.loads(_native.scenarios())
    return value


def rules() -> list[RuleInfo]:
    """Return each rule of the protocol that can be switched off, with a summary."""
    return [{"rule": rule, "summary": summary} for rule, summary in json.loads(_native.rules())]


def rule_world(rule: Rule) -> Plan:
    """Return a plan whose world breaks a promise, because this rule is switched off.

    Parameters
    ----------
    rule : str
        The name of the rule; see `rules`.

    Returns
    -------
    dict
        A plan for `Explorer`.

    Raises
    ------
    InvalidError
        The rule does not exist.
    """
    value: Plan = json.loads(_native.rule_world(json.dumps(kinds.RULE(rule, "rule"))))
    return value


def transition_tables() -> TransitionTables:
    """Return the engine's transition tables of claims and of leases."""
    value: TransitionTables = json.loads(_native.transition_tables())
    return value


def _loaded(trace: str) -> _native.Simulation:
    try:
        return _native.Simulation.load(trace)
    except TraceError as error:
        raise _trace_error(error, trace) from None


def _trace_error(error: TraceError, trace: str) -> TraceError:
    """Return the error for a text that the extension refuses.

    The extension's reader of JSON names types of Rust, so the text is read again to find the wrong member.
    """
    if error.code != "NO_TRACE":
        return error
    try:
        kinds.TRACE(json.loads(trace), "trace")
    except LeaseholdError as found:
        fault = found.message
    except (ValueError, RecursionError):
        fault = f"it is no JSON: {_A_TRACE}"
    else:
        fault = _A_TRACE
    return TraceError(_NO_TRACE + fault, code=error.code)
