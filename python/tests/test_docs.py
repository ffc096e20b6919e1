"""Runs the examples of the README, the Python guide and the docstrings as written."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import command
from support.claims_server import ClaimsServer

import leasehold

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("python/README.md", "docs/src/guides/python.md")
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def modules() -> Iterator[str]:
    """Yield the names of all modules of the installed package, without command line programs and generated code."""
    yield leasehold.__name__
    for module in pkgutil.walk_packages(leasehold.__path__, f"{leasehold.__name__}."):
        if not module.name.endswith((".__main__", "._native")) and "_pb2" not in module.name:
            yield module.name


def examples() -> dict[str, str]:
    """Return the examples of the README and of the Python guide, by document and line number."""
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS}
    return {
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}": match[1]
        for name, text in texts.items()
        for match in EXAMPLE.finditer(text)
    }


def needs_a_server(module: str) -> bool:
    """Return True if a module's examples call a server. Tests in `tests/client` run these."""
    return module.startswith(("leasehold.client", "leasehold.relay", "leasehold.tables"))


@pytest.mark.parametrize("name", [name for name in modules() if not needs_a_server(name)])
def test_docstring_examples_run_as_written(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.FAIL_FAST).failed == 0


def test_entry_points_have_docstring_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    shown = {test.name for name in modules() for test in finder.find(importlib.import_module(name)) if test.examples}
    assert {
        "leasehold.calls.canonical_form",
        "leasehold.calls.check_batch",
        "leasehold.calls.encode_source_id",
        "leasehold.reconciliation.Reconciliation",
        "leasehold.service.ClaimsService",
        "leasehold.simulation.Explorer",
        "leasehold.simulation.Simulation",
        "leasehold.verification.Verification",
    } <= shown


def test_each_document_has_examples() -> None:
    assert {place.partition(":")[0] for place in examples()} == set(DOCUMENTS)


@pytest.mark.parametrize("example", examples())
def test_examples_run_as_written(example: str, tmp_path: Path, embedded: ClaimsServer) -> None:
    (tmp_path / "example.py").write_text(examples()[example], encoding="utf-8")
    command = [sys.executable, "-W", "error", "example.py"]
    environment = {**os.environ, "LEASEHOLD_SERVER": embedded.url}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr


def test_the_guide_names_commands_and_options_that_exist() -> None:
    guide = (ROOT / DOCUMENTS[1]).read_text(encoding="utf-8")
    section = guide.partition("\n## The command\n")[2].partition("\n## ")[0]
    shown: dict[str, set[str]] = {}
    for line in section.splitlines():
        command_line = re.search(r"leasehold-py (\w+)", line)
        # A line of the section that names no command is about the options of `verify`.
        shown.setdefault(command_line[1] if command_line else "verify", set()).update(re.findall(r"--[a-z][a-z-]*", line))
    assert set(shown) == {"leases", "verify", "simulate", "sweep", "load", "relay", "work"}
    for name, options in shown.items():
        known = command.run(name, "--help", COLUMNS="200").stdout
        assert not [option for option in options if option not in known], name
