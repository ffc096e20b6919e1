"""Tests that the example notebook runs from top to bottom, and that its stored outputs are those of a run."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import nbformat
import pytest

PYTHON = Path(__file__).parents[1]
NOTEBOOK = PYTHON / "examples" / "leasehold.ipynb"
PNG = "image/png"


def code(path: Path) -> list[Any]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Run the notebook, and return its code cells."""
    target = tmp_path_factory.mktemp("notebook") / "leasehold.ipynb"
    subprocess.run([sys.executable, str(PYTHON / "tools" / "notebook.py"), str(target)], check=True)
    return code(target)


def outputs(cells: list[Any]) -> list[Any]:
    """Return the outputs of the cells, and True in the place of each plot, whose bytes depend on the fonts."""

    def comparable(output: Any) -> Any:
        data = output.get("data", {})
        return {**output, "data": {**data, PNG: True}} if PNG in data else output

    return [[comparable(output) for output in cell.outputs] for cell in cells]


def test_the_stored_outputs_are_those_of_a_run(executed: list[Any]) -> None:
    stored = code(NOTEBOOK)
    assert outputs(stored) == outputs(executed), "run `python tools/notebook.py`"
    assert [cell.execution_count for cell in stored] == list(range(1, len(stored) + 1))


def test_the_notebook_shows_claims_samples_and_a_plot(executed: list[Any]) -> None:
    shown = [output for cell in code(NOTEBOOK) for output in cell.outputs]
    text = "".join(output.get("text", "") for output in shown)
    assert "alicia" in text
    assert "the service has no claim for this value" in text
    plots = [output.data[PNG] for output in shown if PNG in output.get("data", {})]
    assert [b64decode(plot)[:8] for plot in plots] == [b"\x89PNG\r\n\x1a\n"]
    assert len(plots) == sum(PNG in output.get("data", {}) for cell in executed for output in cell.outputs)
