"""The golden vectors, played on the engine in Python."""

from __future__ import annotations

import re

import pytest
from support.notation import read_id, read_text
from support.player import Player
from support.vectors import Scenario, scenarios

ALL = scenarios()
OURS = [one for one in ALL if one.is_for_us]
QUOTED = re.compile(r'"(?:\\.|[^"\\])*"(?:\*\d+)?')
SOURCE = re.compile(r"\b((?:[A-Z_]+|source#\d+)):(\d+|x[0-9a-f]+|\"(?:\\.|[^\"\\])*\"(?:\*\d+)?)(?= under|$| to)")
SUMMED_UP = re.compile(r" to \w+_records\[|^  \d+ |^records \d+ ")


def normal(line: str) -> str:
    """A line with ids in hexadecimal and texts as Python writes them: those of the vectors have several spellings."""
    line = SOURCE.sub(lambda match: f"{match[1]}:x{read_id(match[2]).hex()}", line) if " from " in line else line
    return QUOTED.sub(lambda match: repr(read_text(match[0])), line)


def test_most_vectors_can_be_played_in_memory() -> None:
    assert len(OURS) > 100
    assert len(ALL) - len(OURS) <= 10


@pytest.mark.parametrize("scenario", OURS, ids=lambda one: f"{one.file}: {one.heading}")
def test_vector(scenario: Scenario) -> None:
    player = Player()
    before = ["nothing"]
    for step in scenario.steps:
        actual = player.play(step.asked)
        state = player.state()
        if state != before:
            actual = [*actual, *state]
        before = state
        expected = [normal(line) for line in step.expected]
        if any(SUMMED_UP.search(line) for line in step.expected):
            # More than twenty lines of one kind: the first one says what became of the step.
            assert normal(actual[0]).split(" from ")[0] == expected[0].split(" from ")[0], step.asked
        else:
            assert [normal(line) for line in actual] == expected, step.asked
