"""Tests of the packages of a release, which `cargo xtask python-release` builds: what they contain, and how they install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from support.claims_server import ROOT, ClaimsServer
from support.outbox import create_outbox
from support.postgres_cluster import PostgresCluster, execute

pytestmark = pytest.mark.release

PYTHON = ROOT / "python"
PARTS = PYTHON / "tests/support/parts.py"
UV = [sys.executable, "-m", "uv"]
# The version that `requires-python` begins with. pyenv needs its name.
OLDEST = "3.10"


@pytest.fixture(scope="module")
def packages() -> dict[str, Path]:
    """Return the paths of the packages by their endings."""
    directory = Path(os.environ.get("LEASEHOLD_WHEELS") or ROOT / "target/python/wheels")
    return {path.suffix: path for path in directory.iterdir()}


@pytest.fixture(scope="module")
def wheel(packages: dict[str, Path]) -> Path:
    return packages[".whl"]


@pytest.fixture
def database(cluster: PostgresCluster) -> str:
    url = create_outbox(cluster)
    execute(url, "CREATE TABLE users (id bigint PRIMARY KEY, username text)")
    execute(url, "INSERT INTO users VALUES (7, 'alice'), (8, 'bob')")
    return url


def test_the_metadata_is_complete(packages: dict[str, Path]) -> None:
    assert set(packages) == {".whl", ".gz"}
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *packages.values()], check=True)


def test_the_wheel_has_readme_types_and_the_licences_of_its_code(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel)
    names = {name.partition("/")[2] for name in files.namelist()}
    assert {"py.typed", "_native.pyi", "_native.abi3.so"} <= names
    information = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    metadata = message_from_bytes(files.read(f"{information}/METADATA"))
    assert metadata["License-Expression"] == "MIT"
    readme = files.read(f"{information}/METADATA").decode().partition("\n\n")[2]
    assert readme.strip() == (PYTHON / "README.md").read_text(encoding="utf-8").strip()
    ours, others = (files.read(f"{information}/licenses/{name}") for name in ("LICENSE", "THIRD-PARTY-LICENCES"))
    assert ours == (ROOT / "LICENSE").read_bytes()
    # Crates that only the extension has, or that every Rust package has.
    assert all(f"\n{crate} ".encode() in others for crate in ("pyo3", "arrow-array", "tonic", "serde"))
    assert b"leasehold-core" not in others


def test_the_wheel_is_small_and_runs_with_the_glibc_of_its_tag(wheel: Path) -> None:
    assert wheel.stat().st_size < 5_000_000
    assert re.search(r"-cp310-abi3-manylinux_2_\d+_x86_64\.whl$", wheel.name)
    shown = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=True)
    tag = wheel.stem.rpartition("-")[2]
    assert f'is consistent with the following platform tag: "{tag}"' in " ".join(shown.stdout.split())


def python_of(directory: Path) -> Path:
    return directory / "bin/python"


def new_environment(directory: Path, python: str, *arguments: str | Path) -> Path:
    """Create a virtual environment, and install packages. Return the path of its Python."""
    subprocess.run([*UV, "--quiet", "venv", "--python", python, directory], check=True)
    return install(python_of(directory), *arguments)


def install(python: Path, *arguments: str | Path) -> Path:
    """Install packages into the environment of this Python."""
    # No package is built: that would need compilers.
    subprocess.run([*UV, "--quiet", "pip", "install", "--python", python, "--only-binary", ":all:", *arguments], check=True)
    return python


def call_parts(python: Path, server: ClaimsServer, database: str, *parts: str) -> None:
    """Call the parts of the installed package in a directory without its sources."""
    command = [str(python), "-I", str(PARTS), server.url, database, *parts]
    ended = subprocess.run(command, cwd=python.parent, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr


def test_without_extras_the_command_says_what_to_install(wheel: Path, tmp_path: Path, embedded: ClaimsServer) -> None:
    python = new_environment(tmp_path / "environment", sys.executable, wheel)
    call_parts(python, embedded, "", "base")
    # The newest protobuf is installed here. The environment of the tests has the one before.
    program = "import google.protobuf; print(google.protobuf.__version__)"
    newest = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(newest.partition(".")[0]) >= 7
    command = [str(python.parent / "leasehold-py"), "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, "pip install 'leasehold[cli]'" in ended.stderr) == (2, True)


# The plots belong to the command.
@pytest.mark.parametrize("extras", [["cli"], ["postgres"], ["cli", "plot"]], ids=",".join)
def test_each_extra_installs_what_its_part_needs(
    wheel: Path, tmp_path: Path, embedded: ClaimsServer, database: str, extras: list[str]
) -> None:
    python = new_environment(tmp_path / "environment", sys.executable, f"leasehold[{','.join(extras)}] @ {wheel.as_uri()}")
    call_parts(python, embedded, database, "base", *extras)


def oldest_python() -> str:
    """Return the path of the oldest Python that the package supports, if this machine has it, or else of the tests' Python."""
    environment = {**os.environ, "PYENV_VERSION": OLDEST}
    found = subprocess.run([*UV, "python", "find", OLDEST], capture_output=True, text=True, check=False, env=environment)
    return found.stdout.strip() if found.returncode == 0 else sys.executable


def test_all_parts_run_with_the_oldest_versions_that_the_package_allows(
    wheel: Path, tmp_path: Path, embedded: ClaimsServer, database: str
) -> None:
    lowest = ["--resolution", "lowest-direct", "--all-extras", "--requirement", str(PYTHON / "pyproject.toml")]
    python = new_environment(tmp_path / "environment", oldest_python(), *lowest)
    install(python, "--no-deps", wheel)
    call_parts(python, embedded, database, "base", "cli", "postgres", "plot")


# Typer changes names in minor versions: before 0.29 it had no pydantic, and before 0.26 click was a package of its own.
@pytest.mark.parametrize("version", ["0.20.0", "0.25.1", "0.26.0", "0.27.0", "0.28.0"])
def test_the_command_runs_with_each_form_of_typer(
    wheel: Path, tmp_path: Path, embedded: ClaimsServer, database: str, version: str
) -> None:
    python = new_environment(
        tmp_path / "environment", sys.executable, f"leasehold[cli] @ {wheel.as_uri()}", f"typer=={version}"
    )
    call_parts(python, embedded, database, "base", "cli")
