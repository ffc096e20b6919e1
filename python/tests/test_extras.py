"""Tests of the extras: a part loads only the libraries that it needs, and says which extra installs a missing one."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import environment

from leasehold import LeaseholdError, MissingExtraError

EXTRAS = {"cli": ["typer", "rich"], "postgres": ["psycopg"], "plot": ["matplotlib"]}
OPTIONAL = {library for libraries in EXTRAS.values() for library in libraries}
DEPENDENCIES = {"grpc", "google.protobuf", "pyarrow", "numpy"}
# The libraries that each part may load.
PARTS = {
    "leasehold": set(),
    "leasehold.cli": set(),
    "leasehold.client": {"grpc", "google.protobuf"},
    "leasehold.tables": DEPENDENCIES,
    "leasehold.tables.files": DEPENDENCIES,
    "leasehold.tables.postgres": {*DEPENDENCIES, "psycopg"},
    "leasehold.relay": {"grpc", "google.protobuf", "psycopg"},
    "leasehold.cli._app": {*DEPENDENCIES, "typer", "rich"},
}
# Runs the command in a process in which modules cannot be imported.
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
from leasehold.cli import main
main()
"""


def without(libraries: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-W", "error", "-c", WITHOUT, ",".join(libraries), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), timeout=60)


@pytest.mark.parametrize("module", PARTS)
def test_a_part_loads_only_the_libraries_that_it_needs(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    # Arrow loads pandas with the first array, if it is installed. A command that makes none would wait for it.
    assert set(ended.stdout.split()) & (OPTIONAL | DEPENDENCIES | {"pandas"}) <= PARTS[module]


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("cli", ["simulate", "--seed", "7"]),
        ("cli", ["--help"]),
        ("postgres", ["relay", "--database", "postgres://127.0.0.1:1/none"]),
        ("postgres", ["verify", "postgres:///none", "--cell", "1", "--source", "USERS", "--claim", "USERNAMES=name,USER=id"]),
        ("plot", ["sweep", "--plot", os.devnull]),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(extra: str, arguments: list[str]) -> None:
    ended = without(EXTRAS[extra], *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    library = EXTRAS[extra][0]
    assert ended.stderr.startswith(f"error: `{library}")
    assert ended.stderr.endswith(f"run `pip install 'leasehold[{extra}]'`\n")
    assert len(ended.stderr.splitlines()) == 1


def test_commands_run_without_the_extras_that_they_do_not_need(tmp_path: Path) -> None:
    missing = [*EXTRAS["postgres"], *EXTRAS["plot"]]
    ended = without(missing, "sweep", "--worlds", "1", "--crash-rate", "8", "--world-seconds", "60")
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    (tmp_path / "users.csv").write_text("id,username\n1,ann\n")
    claims = ["--source", "USERS", "--claim", "USERNAMES=username,USER=id"]
    server = ["--cell", "1", "--server", "http://127.0.0.1:1"]
    ended = without(missing, "verify", str(tmp_path / "users.csv"), *claims, *server)
    assert (ended.returncode, "cannot reach" in ended.stderr) == (5, True), ended.stderr


def test_a_missing_extra_is_an_error_of_the_package_and_of_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "leasehold.relay", raising=False)
    with pytest.raises(MissingExtraError) as raised:
        import leasehold.relay  # noqa: F401
    error = raised.value
    assert isinstance(error, LeaseholdError)
    assert isinstance(error, ImportError)
    assert (error.extra, "leasehold[postgres]" in str(error)) == ("postgres", True)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - the test's own bytes
        assert (type(other), str(other), other.extra, other.code) == (type(error), str(error), error.extra, error.code)
