"""Tests of `leasehold-py simulate`: worlds are reproducible, and their traces can be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import answer, run

from leasehold.simulation import Simulation


def test_a_seed_plays_one_world_whose_trace_can_be_loaded(tmp_path: Path) -> None:
    def played(seed: int) -> tuple[object, str]:
        path = tmp_path / f"{seed}.json"
        (found,) = answer("simulate", "--seed", str(seed), "--cells", "3", "--quiesce", "--trace", str(path))
        return found, path.read_text(encoding="utf-8")

    found, trace = played(7)
    assert played(7) == (found, trace)
    assert played(8) != (found, trace)
    again = Simulation.load(trace)
    assert again.settings()["cells"] == 3
    assert isinstance(found, dict)
    assert (again.length, found["violations"]) == (found["events"], [])
    assert found["leases"] == found["committed"] + found["rolled_back"]


def test_a_world_without_a_rule_exits_with_1() -> None:
    (found,) = answer("simulate", "--seed", "1", "--events", "100000", "--rule-off", "lease_exclusivity", code=1)
    assert found["violations"]


def test_outcomes_are_printed_as_a_table() -> None:
    shown = run("simulate", "--seed", "3").stdout
    assert "world 3" in shown
    assert "save result: saved" in shown


@pytest.mark.parametrize(("arguments", "code"), [(["--cells", "0"], 2), (["--rule-off", "gravity"], 2)])
def test_invalid_settings_are_refused(arguments: list[str], code: int) -> None:
    ended = run("simulate", *arguments)
    assert ended.returncode == code
    assert ended.stderr.startswith("error: ")
