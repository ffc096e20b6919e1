"""Tests of the summaries of simulated worlds, and of the simulation's texts that they count."""

from __future__ import annotations

from leasehold.cli._world_summary import summarise
from leasehold.simulation import Simulation


def test_r04_a_late_commit_without_the_commit_guard_counts_as_a_lost_lease() -> None:
    run = Simulation(seed=5, rules_off=["commit_guard"])
    run.play(20_000)
    found = summarise(run)
    assert (found.lost, len(found.violations)) == (1, 1)


def test_another_violation_counts_no_lost_lease() -> None:
    run = Simulation(seed=1, rules_off=["settled_lease_memory"])
    run.play(20_000)
    found = summarise(run)
    assert (found.lost, len(found.violations)) == (0, 1)


def test_counted_texts_match_the_texts_of_the_simulation() -> None:
    run = Simulation(seed=7)
    run.play(2000)
    found = summarise(run)
    assert found.conflicts == found.refusals["the claim is under another lease"] > 0
    assert found.refusals["the bucket is taken"] > 0
    assert found.save_results["saved"] > 0
    assert (found.lost, found.violations) == (0, ())
