"""A world of cells, databases, network and clocks around the engine: to play, to bend and to break.

Nothing moves in it but by an event, so one list of events is one history, byte for byte, here, in Rust and in browsers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from leasehold import _native
from leasehold.simulation.types import (
    Arrow,
    Entry,
    Event,
    Found,
    Marks,
    Plan,
    Progress,
    Rule,
    RuleInfo,
    Scenario,
    Settings,
    SomeSettings,
    TransitionTables,
    View,
)

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack

__all__ = ["Explorer", "Simulation", "rule_world", "rules", "scenarios", "transition_tables"]


class Simulation:
    """A run of a simulated world, and a position in it.

    Parameters
    ----------
    **settings
        What the world is made of, as far as it is not the usual: `seed`, `cells`, `workers`, … See `types.Settings`.

    Raises
    ------
    InvalidError
        No world can be made of these settings.

    Examples
    --------
    >>> from leasehold.simulation import Simulation
    >>> run = Simulation(seed=7, cells=2)
    >>> run.play(200)
    200
    >>> settled = run.settle()
    >>> run.marks().get("violation") is None
    True
    >>> Simulation.load(run.trace()).length == run.length
    True
    """

    def __init__(self, **settings: Unpack[SomeSettings]) -> None:
        self._run = _native.Simulation(json.dumps(settings))

    @classmethod
    def load(cls, trace: str) -> Simulation:
        """Return a run that was recorded, at its start.

        Parameters
        ----------
        trace : str
            What `trace` has given, or a file of the browser page's.

        Returns
        -------
        Simulation
            The run.

        Raises
        ------
        TraceError
            The text is no trace, or can't be replayed.
        """
        run = cls.__new__(cls)
        run._run = _native.Simulation.load(trace)  # noqa: SLF001
        return run

    @property
    def position(self) -> int:
        """How many events have happened at the position."""
        return self._run.position

    @property
    def length(self) -> int:
        """How many events the run has, those after the position too."""
        return self._run.length

    def settings(self) -> Settings:
        """Return what the world is made of."""
        value: Settings = json.loads(self._run.settings())
        return value

    def trace(self) -> str:
        """Return the whole run as JSON, which the browser page opens: the same bytes for the same run."""
        return self._run.trace()

    def step(self) -> bool:
        """Go one event on. False at the end."""
        return self._run.step()

    def back(self) -> bool:
        """Go one event back. False at the start."""
        return self._run.back()

    def seek(self, position: int) -> None:
        """Go to a position, or to the end where it is beyond."""
        self._run.seek(position)

    def apply(self, event: Event) -> None:
        """Let something happen at the position; what was to happen after it is gone.

        Parameters
        ----------
        event : str or dict
            The event, as in traces.

        Raises
        ------
        ImpossibleError
            It can't happen. Nothing has changed.
        InvalidError
            It is no event.
        """
        self._run.apply(json.dumps(event))

    def play(self, events: int) -> int:
        """Let things happen by chance at the position, up to the first violation; what was to happen after it is gone.

        Parameters
        ----------
        events : int
            How many.

        Returns
        -------
        int
            How many have happened.
        """
        return self._run.play(events)

    def settle(self) -> int:
        """End all trouble at the position and let everybody come to rest; what was to happen after it is gone.

        Returns
        -------
        int
            How many events have happened.

        Raises
        ------
        ImpossibleError
            It goes on for ever. Nothing has changed.
        """
        return self._run.settle()

    def possible(self) -> list[Event]:
        """Return what can happen at the position, beside saves, changes past the claims, and time."""
        value: list[Event] = json.loads(self._run.possible())
        return value

    def describe(self, event: Event) -> str:
        """Return what would happen at the position, in words.

        Parameters
        ----------
        event : str or dict
            The event, as in traces.

        Returns
        -------
        str
            A sentence.

        Raises
        ------
        InvalidError
            It is no event.
        """
        return self._run.describe(json.dumps(event))

    def view(self) -> View:
        """Return the world at the position."""
        value: View = json.loads(self._run.view())
        return value

    def entries(self, start: int = 0, stop: int | None = None) -> list[Entry]:
        """Return what happened from one position up to another, each event in words.

        Parameters
        ----------
        start : int, optional
            The first position, from 0.
        stop : int, optional
            The position after the last one; the run's end unless told.

        Returns
        -------
        list of dict
            An entry an event: see `types.Entry`.
        """
        value: list[Entry] = json.loads(self._run.entries(start, self.length if stop is None else stop))
        return value

    def arrows(self, start: int = 0, stop: int | None = None) -> list[Arrow]:
        """Return every message that was under way between two positions.

        Parameters
        ----------
        start : int, optional
            The first position, from 0.
        stop : int, optional
            The position after the last one; the run's end unless told.

        Returns
        -------
        list of dict
            An arrow a message: see `types.Arrow`.
        """
        value: list[Arrow] = json.loads(self._run.arrows(start, self.length if stop is None else stop))
        return value

    def marks(self) -> Marks:
        """Return where the whole run is worth looking at: its faults, and its violation if there is one."""
        value: Marks = json.loads(self._run.marks())
        return value

    def minimise(self) -> str | None:
        """Return a shorter run to a violation of the same kind, as JSON; None where nothing is violated."""
        return self._run.minimise()


class Explorer:
    """An exploration of every order of events in a small world, the shortest first.

    Parameters
    ----------
    plan : mapping
        The world, what its users wish, and how much trouble there is: see `types.Plan`, and `rule_world` for some.

    Raises
    ------
    InvalidError
        The plan makes no world.

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
        self._explorer = _native.Explorer(json.dumps(plan))

    def explore(self, states: int) -> bool:
        """Go on from so many states.

        Parameters
        ----------
        states : int
            How many.

        Returns
        -------
        bool
            True while there is more to do.
        """
        return self._explorer.explore(states)

    def progress(self) -> Progress:
        """Return how far it has come."""
        value: Progress = json.loads(self._explorer.progress())
        return value

    def found(self) -> Found | None:
        """Return the violation and one of the shortest traces to it, once one is found."""
        found = self._explorer.found()
        return found and {"violation": found[0], "trace": found[1]}


def scenarios() -> list[Scenario]:
    """Return every scenario, in the order in which they are best watched."""
    value: list[Scenario] = json.loads(_native.scenarios())
    return value


def rules() -> list[RuleInfo]:
    """Return every rule that can be switched off, with what it says."""
    return [{"rule": rule, "summary": summary} for rule, summary in json.loads(_native.rules())]


def rule_world(rule: Rule) -> Plan:
    """Return the small world that breaks without a rule, with the rule switched off.

    Parameters
    ----------
    rule : str
        The rule: see `rules`.

    Returns
    -------
    dict
        A plan to explore.

    Raises
    ------
    InvalidError
        There is no such rule.
    """
    value: Plan = json.loads(_native.rule_world(json.dumps(rule)))
    return value


def transition_tables() -> TransitionTables:
    """Return the engine's tables of what can happen to claims and leases."""
    value: TransitionTables = json.loads(_native.transition_tables())
    return value
