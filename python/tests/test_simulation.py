"""Tests of the simulation, and of the Python types of its values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from typeguard import TypeCheckError, check_type

import leasehold
from leasehold.simulation import Explorer, Simulation, rule_world, rules, scenarios, transition_tables, types

GOLDEN = json.loads((Path(__file__).parents[2] / "simulation/tests/golden.json").read_text(encoding="utf-8"))
SAVE = {"save": {"cell": 1, "worker": 0, "change": {"create": 0}}}


def played(seed: int = 7, events: int = 400, **settings: Any) -> Simulation:
    run = Simulation(seed=seed, **settings)
    assert run.play(events) == events
    return run


@pytest.mark.parametrize("seed", range(5))
def test_values_match_their_types(seed: int) -> None:
    """A simulation's values have exactly the members of their types: `check_type` refuses missing and additional ones."""
    run = played(seed, cells=2, workers=2, reconcilers=2)
    check_type(run.settings(), types.Settings)
    check_type(json.loads(run.trace()), types.Trace)
    check_type(run.entries(), list[types.Entry])
    check_type(run.arrows(), list[types.Arrow])
    check_type(run.marks(), types.Marks)
    for position in range(0, 400, 10):
        run.seek(position)
        check_type(run.view(), types.View)
        check_type(run.possible(), list[types.Event])


def test_values_of_a_world_of_locks_match_their_types() -> None:
    run = played(events=600, cells=3, locks={"count": 2})
    check_type(run.settings(), types.Settings)
    check_type(run.entries(), list[types.Entry])
    for position in range(0, 600, 10):
        run.seek(position)
        check_type(run.view(), types.View)


def test_values_of_a_world_of_a_queue_match_their_types() -> None:
    run = played(events=600, cells=3, locks={"count": 0, "lanes": 2})
    check_type(run.settings(), types.Settings)
    check_type(run.entries(), list[types.Entry])
    for position in range(0, 600, 10):
        run.seek(position)
        check_type(run.view(), types.View)


def test_scenarios_rules_and_tables_match_their_types() -> None:
    check_type(scenarios(), list[types.Scenario])
    check_type(rules(), list[types.RuleInfo])
    check_type(transition_tables(), types.TransitionTables)
    assert [info["rule"] for info in rules()] == list(get_args(types.Rule))
    for rule in get_args(types.Rule):
        check_type(rule_world(rule), types.Plan)


def test_the_type_checker_refuses_missing_and_additional_members() -> None:
    entry = dict(played(events=1).entries()[0])
    for wrong in ({**entry, "more": 1}, {name: entry[name] for name in entry if name != "says"}, {**entry, "says": 1}):
        with pytest.raises(TypeCheckError):
            check_type(wrong, types.Entry)


def test_a_run_can_be_stepped_rewound_and_changed() -> None:
    run = Simulation(cells=1)
    run.apply(SAVE)
    assert (run.position, run.length, run.step(), run.back(), run.position) == (1, 1, False, True, 0)
    assert run.step()
    step = {"step": {"cell": 1, "process": {"worker": 0}}}
    assert step in run.possible()
    assert run.describe(step)
    before = run.trace()
    with pytest.raises(leasehold.ImpossibleError) as caught:
        run.apply({"deliver": 99})
    assert caught.value.code == "IMPOSSIBLE"
    assert run.trace() == before
    run.seek(0)
    run.apply("stop_service")
    assert run.length == 1


def test_a_loaded_trace_equals_its_run() -> None:
    run = played()
    again = Simulation.load(run.trace())
    assert (again.position, again.length) == (0, 400)
    assert again.entries() == run.entries()
    again.seek(400)
    assert again.view() == run.view()
    assert again.trace() == run.trace()


def test_scenarios_reach_their_final_states() -> None:
    for scenario in scenarios():
        run = Simulation.load(json.dumps(scenario["trace"]))
        run.seek(run.length)
        view = run.view()
        claims = [[view["names"].index(claim["name"]), claim["cell"], claim.get("row")] for claim in view["claims"]]
        assert sorted(claims) == sorted(scenario["end"]["claims"]), scenario["id"]
        assert sum(lease["status"] == "Outstanding" for lease in view["leases"]) == scenario["end"]["outstanding"]


def test_without_a_rule_the_explorer_finds_a_violation_and_its_trace() -> None:
    explorer = Explorer(rule_world("lease_exclusivity"))
    while explorer.explore(1000):
        pass
    found = explorer.found()
    check_type(found, types.Found)
    check_type(explorer.progress(), types.Progress)
    assert found is not None
    run = Simulation.load(found["trace"])
    assert run.entries()[-1].get("violation") == found["violation"]
    assert run.marks().get("violation") == run.length - 1
    run.seek(run.length)
    check_type(run.view(), types.View)
    shorter = run.minimise()
    assert shorter is not None
    assert Simulation.load(shorter).length <= run.length


@pytest.mark.parametrize("text", ["", "{}", "no trace"])
def test_a_text_that_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(leasehold.TraceError) as caught:
        Simulation.load(text)
    assert caught.value.code == "NO_TRACE"


def test_a_trace_of_a_later_version_is_told_whatever_its_form_is() -> None:
    with pytest.raises(leasehold.TraceError, match=r"^the trace has version 99, but this program reads ") as caught:
        Simulation.load('{"version":99,"places":["later"]}')
    assert caught.value.code == "INVALID_TRACE"


def test_invalid_settings_plans_rules_and_events_are_refused() -> None:
    with pytest.raises(leasehold.InvalidError):
        Simulation(cells=0)
    with pytest.raises(leasehold.InvalidError):
        Simulation(speed=7)  # type: ignore[call-arg]
    with pytest.raises(leasehold.InvalidError):
        Explorer({})
    with pytest.raises(leasehold.InvalidError):
        rule_world("gravity")  # type: ignore[arg-type]
    with pytest.raises(leasehold.InvalidError):
        Simulation().apply({"sing": 1})
