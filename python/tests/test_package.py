"""Tests of the wheel: its contents, its dependencies and its memory use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest

NAME = re.compile(r"[\w.-]+")
EXTRAS = {"cli": {"rich", "typer"}, "plot": {"matplotlib"}, "postgres": {"psycopg"}}
PYTHON = Path(__file__).parents[1]
BENCH = PYTHON / "bench/verify.py"
GUIDE = Path(__file__).parents[2] / "docs/src/guides/python.md"


@pytest.fixture(scope="session")
def wheel() -> Path:
    """Return the path of the newest wheel of the package."""
    named = os.environ.get("LEASEHOLD_WHEELS")
    built = Path(__file__).parents[2] / "target/python"
    found = Path(named).glob("leasehold-*.whl") if named else built.glob("wheels*/leasehold-*.whl")
    return max(found, key=lambda path: path.stat().st_mtime)


def test_one_wheel_serves_all_supported_python_versions(wheel: Path) -> None:
    assert "-cp310-abi3-" in wheel.name


def test_the_wheel_contains_types_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"leasehold/py.typed", "leasehold/_native.pyi", "leasehold/_native.abi3.so"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "bench")) or name.endswith((".rs", ".pyc"))]


def test_extras_match_the_guide_and_repeat_no_dependency() -> None:
    wanted = [line.partition(";") for line in requires("leasehold") or []]
    plain = {NAME.match(requirement)[0] for requirement, _, marker in wanted if "extra" not in marker}  # type: ignore[index]
    extra = {NAME.match(requirement)[0] for requirement, _, marker in wanted if "extra" in marker}  # type: ignore[index]
    assert (len(plain) > 1, extra, plain & extra) == (True, set().union(*EXTRAS.values()), set())
    named = re.findall(r"leasehold(?:-….whl)?\[([\w,]+)\]", GUIDE.read_text(encoding="utf-8"))
    assert {extra for names in named for extra in names.split(",")} == set(EXTRAS)
    assert set(metadata("leasehold").get_all("Provides-Extra") or []) == set(EXTRAS)


def measured_megabytes(rows: int) -> float:
    command = [sys.executable, str(BENCH), "memory", "--rows", str(rows)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(ended.stdout.split()[1].replace(",", ""))


def test_memory_does_not_grow_with_the_rows() -> None:
    few, many = measured_megabytes(10_000), measured_megabytes(50_000)
    assert many < 300
    assert many < few + 20
