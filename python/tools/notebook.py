"""Runs the example notebook, and stores it with its outputs, or in the file that the first argument names."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "leasehold.ipynb"


def execute(target: Path) -> None:
    """Run the notebook from top to bottom in an empty directory, and write it with its outputs."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # The kernel adds its version of Python to the metadata, which would differ from machine to machine.
    metadata = notebook.metadata.copy()
    with TemporaryDirectory() as directory:
        resources = {"metadata": {"path": directory}}
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources, record_timing=False).execute()
    notebook.metadata = metadata
    nbformat.write(notebook, target)


if __name__ == "__main__":
    execute(Path(sys.argv[1]) if sys.argv[1:] else NOTEBOOK)
