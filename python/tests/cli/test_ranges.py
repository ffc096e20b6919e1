"""Tests that every numeric option of `leasehold-py` has a range, which the help states, and refuses what is beyond it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from leasehold.cli import _app
from leasehold.cli._exit import exit_code
from leasehold.cli._help import wanted
from leasehold.cli._report import report
from leasehold.cli._typer import TyperException, annotation_of, bounds_of
from leasehold.errors import LeaseholdError

PROGRAM: Any = get_command(_app.app)
NUMERIC = [
    (name, param)
    for name, command in PROGRAM.commands.items()
    for param in command.params
    if annotation_of(param) in (int, float)
]
# The commands with the arguments that they need. No server listens at the port.
ABSENT = ["--server", "http://127.0.0.1:1"]
VERIFY = ["users.csv", "--cell", "1", "--source", "USERS", "--claim", "USERNAMES=username,USER=id", *ABSENT]
COMMANDS: dict[str, list[str]] = {
    "leases": ["--cell", "1", *ABSENT],
    "verify": VERIFY,
    "simulate": [],
    "sweep": [
        "--world-seconds",
        "1",
        "--worlds",
        "1",
        "--stale-after-seconds",
        "10",
        "--latency-ms",
        "50",
        "--crash-rate",
        "2",
    ],
    "load": ["--cell", "1", *ABSENT],
    "work": ["sheets", "json:dumps", *ABSENT],
    "relay": ["--database", "postgres://127.0.0.1:1/none", *ABSENT],
}
LISTS = ("stale-after-seconds", "latency-ms", "crash-rate")
# These are beyond the range of every option.
ABSURD = [
    *("-1", "-0.5", "-" + "9" * 25, "4294967296000000000000", "18446744073709551616", "9" * 25, "9" * 5000),
    *("1e23", "1e400", "-1e400", "inf", "-inf", "Infinity", "nan", "-nan", "NaN", "0x10", "", "one", "1,5", "\ud83d"),
]
INSIDES = re.compile(r"line \d+ column|\b[iu](8|16|32|64)\b|expected|Traceback|OverflowError")


def ended(capsys: pytest.CaptureFixture[str], name: str, *words: str) -> tuple[int, str]:
    """Run a command in this process as `leasehold-py` does. Return its exit code and its standard error."""
    result = CliRunner().invoke(_app.app, [name, *COMMANDS[name], *words], prog_name="leasehold-py", standalone_mode=False)
    error = result.exception
    if error is None:
        return int(result.return_value or 0), ""
    assert isinstance(error, (LeaseholdError, OSError, TyperException)), (words, error)
    report(error, json=False)
    return exit_code(error), capsys.readouterr().err


def test_every_command_is_tried() -> None:
    assert set(COMMANDS) == set(PROGRAM.commands)
    assert len(NUMERIC) > 20


@pytest.mark.parametrize(("name", "param"), NUMERIC, ids=[f"{name} {param.name}" for name, param in NUMERIC])
def test_every_number_has_a_range_that_is_stated_and_held(
    capsys: pytest.CaptureFixture[str], name: str, param: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    low, high = bounds_of(param)
    assert low is not None
    assert high is not None
    stated = wanted(param)
    assert stated is not None
    assert re.search(r", [\d.]+ to [\d.]+$", stated)
    option = max(param.opts, key=len)
    for number in (*ABSURD, str(low - 1), str(high + 1), str(high * 10)):
        code, said = ended(capsys, name, f"{option}={number}")
        assert (code, said.splitlines()[0]) == (2, f"error: invalid value for `{option}`: pass {stated}"), number[:30]


@pytest.mark.parametrize("option", LISTS)
def test_every_list_of_numbers_has_a_range(capsys: pytest.CaptureFixture[str], option: str) -> None:
    absurd = [number for number in ABSURD if number != "1,5"]
    for number in (*absurd, "10,nan", "10,,20", "10,1e23", "65536000"):
        code, said = ended(capsys, "sweep", f"--{option}={number}")
        assert len(said) < 300
        assert code == 2, number[:30]
        assert INSIDES.search(said) is None
        assert re.search(r" numbers? from [\d.]+ to \d+|integers from \d+ to \d+", said), said


@pytest.mark.parametrize("name", COMMANDS)
def test_the_largest_numbers_cause_no_fault_of_python(capsys: pytest.CaptureFixture[str], name: str) -> None:
    # These would really be played.
    played = ("events", "world_seconds", "worlds")
    for command, param in NUMERIC:
        if command == name and param.name not in played:
            for bound in bounds_of(param):
                _, said = ended(capsys, name, f"{max(param.opts, key=len)}={bound}")
                assert INSIDES.search(said) is None


def test_a_sweep_that_would_never_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words, text in (
        (["--worlds=100000", "--latency-ms=" + ",".join(map(str, range(1, 101)))], "10000000 worlds"),
        (["--latency-ms=0.001", "--world-seconds=1e6"], "1000000000000 events"),
        ([f"--seed={2**53 - 1}", "--worlds=2"], "--seed"),
    ):
        code, said = ended(capsys, "sweep", *words)
        assert (code, text in said) == (2, True), said
