"""Plays the golden vectors on the engine through the Python package."""

from __future__ import annotations

import re

import pytest
from support.notation import read_id, read_text
from support.player import Player
from support.vectors import Scenario, scenarios

ALL = scenarios()
IN_MEMORY = [scenario for scenario in ALL if scenario.runs_in_memory]
QUOTED = re.compile(r'"(?:\\.|[^"\\])*"(?:\*\d+)?')
SOURCE = re.compile(r"\b((?:[A-Z_]+|source#\d+)):(\d+|x[0-9a-f]+|\"(?:\\.|[^\"\\])*\"(?:\*\d+)?)(?= under|$| to)")
SUMMARY = re.compile(r" to \w+_records\[|^  \d+ |^records \d+ ")


def normalised(line: str) -> str:
    """Return a line with ids in hexadecimal and strings as `repr`, since the vectors spell both in several ways."""
    line = SOURCE.sub(lambda match: f"{match[1]}:x{read_id(match[2]).hex()}", line) if " from " in line else line
    return QUOTED.sub(lambda match: repr(read_text(match[0])), line)


def test_most_vectors_can_be_played_in_memory() -> None:
    assert len(IN_MEMORY) > 100
    assert len(ALL) - len(IN_MEMORY) <= 10


@pytest.mark.parametrize("scenario", IN_MEMORY, ids=lambda scenario: f"{scenario.file}: {scenario.heading}")
def test_vector(scenario: Scenario) -> None:
    player = Player()
    before = ["nothing"]
    for step in scenario.steps:
        actual = player.play(step.request)
        state = player.state()
        if state != before:
            actual = [*actual, *state]
        before = state
        expected = [normalised(line) for line in step.expected]
        if any(SUMMARY.search(line) for line in step.expected):
            # The vector summarises more than twenty lines of one kind, so compare only the first line, the reply itself.
            assert normalised(actual[0]).split(" from ")[0] == expected[0].split(" from ")[0], step.request
        else:
            assert [normalised(line) for line in actual] == expected, step.request
