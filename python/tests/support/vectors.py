"""Golden vectors: scenarios, each a list of steps with what is asked and what is answered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).parents[3] / "tests/vectors"


@dataclass(frozen=True)
class Step:
    """One step: its text, and the lines that are expected."""

    asked: str
    expected: list[str]


@dataclass(frozen=True)
class Scenario:
    """One scenario."""

    file: str
    heading: str
    steps: list[Step]

    @property
    def is_for_us(self) -> bool:
        """Whether a service in memory can play it: data that a cell attaches is the wire's alone."""
        return "hosts: server" not in self.heading and not any("data=" in step.asked for step in self.steps)


def scenarios() -> list[Scenario]:
    """Read every scenario of every file."""
    return [one for path in sorted(DIRECTORY.glob("*.txt")) for one in _read(path)]


def _read(path: Path) -> list[Scenario]:
    parts = path.read_text(encoding="utf-8").split("\n## ")[1:]
    return [Scenario(path.stem, heading, _steps(body)) for heading, _, body in (part.partition("\n") for part in parts)]


def _steps(body: str) -> list[Step]:
    blocks = ("\n".join(line for line in block.splitlines() if not line.startswith("#")) for block in body.split("\n\n"))
    pairs = (block.strip("\n").partition("\n----\n") for block in blocks if block.strip())
    return [Step(asked, expected.splitlines()) for asked, separator, expected in pairs if separator]
