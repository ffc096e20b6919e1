"""Tests that each call checks its arguments: a refusal has plain words, and names the argument and what to pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, get_args

import pytest
from support.awkward import AWKWARD, changed, lacking, problem_of

from leasehold import (
    BucketType,
    InvalidError,
    LeasePage,
    OutstandingLease,
    SourceType,
    TraceError,
    reconciliation,
    simulation,
    verification,
)
from leasehold.simulation import Explorer, Simulation, _signatures, rule_world, scenarios, types

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
LEASE = "01a1fefb-0383-7360-95c3-3b4e0d5dfab0"
SAVE = {"save": {"cell": 1, "worker": 0, "change": {"create_two": [0, 1]}}}
DRIFT = {"drift": {"cell": 1, "drift": {"rename": {"row": 1, "name": 0}}}}
PLAN = {
    **rule_world("replay_keys"),
    "before": ["forget"],
    "works": [],
    "starts": ["forget"],
    "drifts": [[1, {"insert": 0}]],
}
LOCKS = {"count": 2, "duration_seconds": 4, "grace_seconds": 2, "tick_millis": 1000}
VERIFICATION: dict[str, Any] = {
    "source_type": SourceType.USERS,
    "bucket_types": [BucketType.USERNAMES],
    "recent_within_seconds": 1.0,
    "rows_per_page": 10,
    "dry_run": False,
    "max_destroy_share": 1.0,
    "hash_seed": 0,
    "checkpoint": None,
}


def played() -> Simulation:
    run = Simulation(cells=1, seed=7)
    run.play(20)
    return run


def reconciling() -> reconciliation.Reconciliation:
    old = NOW - timedelta(hours=1)
    run = reconciliation.Reconciliation(stale_after_seconds=1)
    run.leases(LeasePage((OutstandingLease(LEASE, old, old),), None, NOW))
    run.rows([], now=NOW)
    return run


RUN = played()
# The modules without the types of their arguments.
UNTYPED: Any = simulation
UNTYPED_RECONCILIATION: Any = reconciliation
# The keyword arguments of each call, and the call.
CALLS: dict[str, tuple[dict[str, Any], Callable[..., object]]] = {
    "Simulation": ({**RUN.settings(), "locks": LOCKS}, lambda **settings: Simulation(**settings).play(20)),
    "Simulation.load": ({"trace": RUN.trace()}, Simulation.load),
    "Simulation.seek": ({"position": 3}, RUN.seek),
    "Simulation.apply": ({"event": SAVE}, lambda **event: Simulation(cells=1).apply(**event)),
    "Simulation.describe": ({"event": DRIFT}, RUN.describe),
    "Simulation.play": ({"events": 3}, lambda **events: Simulation(cells=1).play(**events)),
    "Simulation.entries": ({"start": 0, "stop": 4}, RUN.entries),
    "Simulation.arrows": ({"start": 0, "stop": 4}, RUN.arrows),
    "Explorer": ({"plan": PLAN}, lambda plan: Explorer(plan).explore(20)),
    "Explorer.explore": ({"states": 3}, lambda states: Explorer(PLAN).explore(states)),
    "rule_world": ({"rule": "grace"}, rule_world),
    "Reconciliation": ({"stale_after_seconds": 1.0, "rows_per_page": 10}, reconciliation.Reconciliation),
    "Reconciliation.settled": (
        {"answer": "done"},
        lambda answer: reconciliation.Reconciliation(stale_after_seconds=1).settled(answer),
    ),
    "Verification": (VERIFICATION, verification.Verification),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_value_anywhere_in_the_arguments_is_refused_in_plain_words(name: str) -> None:
    good, call = CALLS[name]
    problems = []
    for argument, value in good.items():
        cases = [("none", path, other) for path, other in lacking(value)]
        cases += [(repr(type(wrong)), path, other) for wrong in AWKWARD for path, other in changed(value, wrong)]
        for what, path, other in cases:
            problem = problem_of(partial(call, **{**good, argument: other}))
            problems += [f"{what} at {argument}{path}: {problem}"] if problem else []
    assert problems == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: UNTYPED.Simulation(cells="1"), "`cells` is a str: pass an integer from 1 to 8"),
        (lambda: UNTYPED.Simulation(cells=-1), "`cells` is -1: pass an integer from 1 to 8"),
        (lambda: UNTYPED.Simulation(cells=0), "`cells` is 0: pass an integer from 1 to 8"),
        (lambda: UNTYPED.Simulation(names=True), "`names` is True: pass an integer from 1 to 32"),
        (lambda: UNTYPED.Simulation(locks={"count": 2**40}), "`locks.count` is 1099511627776: pass an integer from 0 to 255"),
        (lambda: UNTYPED.Simulation().play(-1), "`events` is -1: pass an integer from 0 to 1000000"),
        (lambda: UNTYPED.Simulation().play(1_000_001), "`events` is 1000001: pass an integer from 0 to 1000000"),
        (lambda: UNTYPED.Simulation().seek(-1), "`position` is -1: pass an integer from 0 to 4294967295"),
        (lambda: UNTYPED.Explorer(PLAN).explore(-1), "`states` is -1: pass an integer from 0 to 1000000"),
        (lambda: UNTYPED.Explorer({}), "`plan.settings` is missing: pass a dict with `seed`, "),
        (lambda: UNTYPED.Simulation().apply({}), "`event` is an empty dict: pass one of `save`, "),
        (
            lambda: UNTYPED.Simulation().apply({"sing": 1}),
            "`event` is a dict with the unknown key `sing`: pass one of `save`, ",
        ),
        (lambda: UNTYPED.Simulation().apply({"deliver": -1}), "`event.deliver` is -1: pass an integer from 0 to 4294967295"),
        (lambda: UNTYPED.Simulation().apply({"forget": 1}), "`event` is a dict: pass the string `forget`"),
        (lambda: UNTYPED.Simulation().apply("deliver"), "`event.deliver` is missing: pass an integer from 0 to 4294967295"),
        (lambda: UNTYPED.Simulation(speed=7), "`speed` is unknown: pass only `seed`, "),
        (lambda: UNTYPED.rule_world("gravity"), "`rule` is an unknown string: pass one of `lease_exclusivity`, "),
        (
            lambda: UNTYPED_RECONCILIATION.Reconciliation(stale_after_seconds=-1),
            "`stale_after_seconds` is -1: pass a number from 0 to 18446744073709",
        ),
        (
            lambda: UNTYPED_RECONCILIATION.Reconciliation(stale_after_seconds=float("nan")),
            "`stale_after_seconds` is nan: pass a number from 0 to 18446744073709",
        ),
        (
            lambda: UNTYPED_RECONCILIATION.Reconciliation(stale_after_seconds=1, rows_per_page=2**32),
            "`rows_per_page` is 4294967296: pass an integer from 1 to 4294967295",
        ),
    ],
)
def test_a_refusal_names_the_argument_and_what_to_pass(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidError) as caught:
        call()
    assert caught.value.code == "INVALID_ARGUMENT"
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("", "the text is not a trace: it is no JSON: pass what `trace` of a `Simulation` has returned"),
        ("[" * 100_000, "the text is not a trace: it is no JSON: pass what `trace` of a `Simulation` has returned"),
        ("{}", "the text is not a trace: `trace.version` is missing: pass an integer from 0 to 4294967295"),
        ("[]", "the text is not a trace: `trace` is a list: pass a dict with `version`, `settings`, `events`"),
        (
            '{"version":1,"version":1,"settings":{},"events":[]}',
            "the text is not a trace: pass what `trace` of a `Simulation` has returned",
        ),
    ],
)
def test_a_text_that_is_no_trace_is_refused_in_plain_words(trace: str, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        Simulation.load(trace)
    assert caught.value.code == "NO_TRACE"
    assert str(caught.value).startswith(message)


def test_the_kinds_of_the_simulation_have_the_members_of_its_types() -> None:
    assert set(_signatures.SETTING_KINDS) == set(types.PartialSettings.__annotations__)
    assert set(Simulation().settings()) == set(types.PartialSettings.__annotations__) - {"locks"}


def test_every_event_plan_and_setting_of_the_simulation_passes_unchanged() -> None:
    for scenario in scenarios():
        assert _signatures.TRACE(scenario["trace"], "trace") == scenario["trace"]
    for rule in get_args(types.Rule):
        plan = rule_world(rule)
        assert _signatures.PLAN(plan, "plan") == plan
    for seed, locks in enumerate([None, {"count": 2}, {"count": 0, "lanes": 2}]):
        run = UNTYPED.Simulation(seed=seed, cells=3, **({} if locks is None else {"locks": locks}))
        run.play(2000)
        trace = json.loads(run.trace())
        assert _signatures.TRACE(trace, "trace") == trace
        for event in run.possible():
            assert _signatures.EVENT(event, "event") == event
