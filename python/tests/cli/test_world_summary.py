"""What befell a world is counted, and what is counted by words is there in such words."""

from __future__ import annotations

from leasehold.cli._world_summary import summarise
from leasehold.simulation import Simulation


def test_r04_a_lease_whose_claims_are_gone_is_lost_where_no_fence_keeps_a_late_commit_out() -> None:
    run = Simulation(seed=5, rules_off=["local_fence"])
    run.play(20_000)
    found = summarise(run)
    assert (found.lost, len(found.violations)) == (1, 1)


def test_another_broken_promise_loses_no_lease() -> None:
    run = Simulation(seed=1, rules_off=["settled_lease_memory"])
    run.play(20_000)
    found = summarise(run)
    assert (found.lost, len(found.violations)) == (0, 1)


def test_what_is_told_by_words_is_found() -> None:
    run = Simulation(seed=7)
    run.play(2000)
    found = summarise(run)
    assert found.conflicts == found.refusals["the claim is under another lease"] > 0
    assert found.refusals["the bucket is taken"] > 0
    assert found.save_results["saved"] > 0
    assert (found.lost, found.violations) == (0, ())
