"""Reads golden vectors: scenarios with steps, each a request and its expected reply."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).parents[3] / "tests/vectors"


@dataclass(frozen=True)
class Step:
    """One step of a scenario: the request, and the lines of the expected reply."""

    request: str
    expected: list[str]


@dataclass(frozen=True)
class Scenario:
    """One scenario of a golden vector: its file, its heading and its steps."""

    file: str
    heading: str
    steps: list[Step]

    @property
    def runs_in_memory(self) -> bool:
        """True if the in-memory service can play the scenario. It cannot store user data, which some scenarios use."""
        return "hosts: server" not in self.heading and not any("data=" in step.request for step in self.steps)


def scenarios() -> list[Scenario]:
    """Return every scenario of every file of golden vectors."""
    return [scenario for path in sorted(DIRECTORY.glob("*.txt")) for scenario in _read(path)]


def _read(path: Path) -> list[Scenario]:
    parts = path.read_text(encoding="utf-8").split("\n## ")[1:]
    return [Scenario(path.stem, heading, _steps(body)) for heading, _, body in (part.partition("\n") for part in parts)]


def _steps(body: str) -> list[Step]:
    blocks = ("\n".join(line for line in block.splitlines() if not line.startswith("#")) for block in body.split("\n\n"))
    pairs = (block.strip("\n").partition("\n----\n") for block in blocks if block.strip())
    return [Step(request, expected.splitlines()) for request, separator, expected in pairs if separator]
