"""Tests of the help texts of `leasehold-py`: plain words, and whole names in terminals of any width."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any

import pytest
from support.command import run
from typer.main import get_command
from typer.testing import CliRunner

from leasehold.cli._app import app

PROGRAM: Any = get_command(app)
NAMES = list(PROGRAM.commands)
# Words of Typer's types and ranges, which say nothing to a user.
JARGON = re.compile(r"<|INTEGER|FLOAT|RANGE|range|x>=|<=x|\b(?:int|str|bool|float)\b|│")


def shown(*words: str, width: int = 100) -> str:
    ended = CliRunner().invoke(app, list(words), prog_name="leasehold-py", env={"COLUMNS": str(width)})
    assert (ended.exit_code, ended.stderr) == (0, "")
    return ended.stdout


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("name", NAMES)
def test_names_of_options_are_whole_at_any_width(name: str, width: int) -> None:
    text = shown(name, "-h", width=width)
    assert max(map(len, text.splitlines())) <= min(width, 100)
    options = [option for param in PROGRAM.commands[name].params for option in param.opts if option.startswith("-")]
    assert options
    for option in [*options, "--help", "--version", "--json"]:
        assert re.search(rf"^  (-\w, )?{option}( [A-Z]+)?(  |$)", text, re.MULTILINE), option


@pytest.mark.parametrize("name", NAMES)
def test_help_has_plain_words(name: str) -> None:
    text = shown(name, "--help")
    assert text.splitlines()[0].endswith(".")
    assert f"\nUsage: leasehold-py {name} [OPTIONS]" in text
    assert JARGON.findall(text) == []
    for param in PROGRAM.commands[name].params:
        assert param.help.endswith((".", "…")), param.name


def test_bounds_and_defaults_are_in_words() -> None:
    text = " ".join(shown("work", "--help").split())
    assert "--credit N The most batches that are worked at a time. [1 to 256] [default: 1]" in text
    assert "--stop-within-seconds SECONDS The time" in text
    text = " ".join(shown("verify", "--help").split())
    assert "[0 to 1000000000] [default: 3600]" in text
    assert "[env: LEASEHOLD_KEY]" in text


def test_the_program_lists_its_commands_and_exit_codes() -> None:
    text = shown("--help")
    for name in NAMES:
        assert re.search(rf"^  {name} +[A-Z]", text, re.MULTILINE)
    for code in (0, 1, 2, 3, 4, 5, 6, 7, 130):
        assert re.search(rf"^ *{code}  \w", text, re.MULTILINE)
    assert JARGON.findall(text) == []


@pytest.mark.parametrize("words", [["--version"], ["-V"], *([name, "--version"] for name in NAMES)])
def test_the_version_is_that_of_the_package(words: list[str]) -> None:
    assert shown(*words) == f"leasehold-py {version('leasehold')}\n"


@pytest.mark.parametrize(
    ("words", "message", "path"),
    [
        (["leases"], "missing option '--cell'", "leasehold-py leases"),
        (["nothing"], "no such command 'nothing'", "leasehold-py"),
        (["leases", "--cell", "1", "--nothing"], "no such option: --nothing", "leasehold-py leases"),
    ],
)
def test_a_wrong_command_line_is_an_error_with_a_hint(words: list[str], message: str, path: str) -> None:
    ended = run(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"error: {message}\nhint: see `{path} --help`\n"


def test_without_a_command_the_help_is_the_error() -> None:
    ended = run(COLUMNS="100")
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", shown("--help"))


def test_a_shell_gets_completions_on_standard_output() -> None:
    words = {"COMP_WORDS": "leasehold-py le", "COMP_CWORD": "1", "_LEASEHOLD_PY_COMPLETE": "complete_bash"}
    ended = run(**words)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "leases", "")
