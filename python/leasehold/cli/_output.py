"""Output of `leasehold-py`: results go to standard output, progress and errors to standard error."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from leasehold.errors import MisconfiguredError

ERRORS = Console(stderr=True)
# A width in columns that no table has.
_UNBOUNDED = 100_000


def show_json(value: object) -> None:
    """Print a value as one line of JSON on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table on standard output. No value is cut or wrapped, so that users can copy ids."""
    console = Console(highlight=False, width=_UNBOUNDED)
    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        # Claimed values may look like markup, or hold what a terminal obeys.
        table.add_row(*(Text(printable(cell)) for cell in row))
    if sys.stdout.isatty() and console.measure(table).maximum > shutil.get_terminal_size().columns:
        # The terminal wraps these lines, which would tear the lines of a box apart.
        table.box = None
    console.print(table)


def printable(text: str) -> str:
    """Return the text with an escape sequence for each character that a terminal does not print as it is."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def show_line(text: str) -> None:
    """Print one line of text on standard output, without markup."""
    sys.stdout.write(text + "\n")


def check_output_paths(*paths: Path | None) -> None:
    """Check that output files can be created, before a long computation starts.

    Raises
    ------
    MisconfiguredError
        The directory does not exist, or a path is a directory.
    """
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise MisconfiguredError(f"`{path.parent}` is not a directory: create it, or choose another path")
        if path is not None and path.is_dir():
            raise MisconfiguredError(f"`{path}` is a directory: choose a file in it")


def progress_bar() -> Progress:
    """Return a progress bar on standard error. It shows nothing if standard error is not a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=ERRORS, transient=True, disable=not ERRORS.is_terminal)


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as `2 h 5 min`."""
    whole = max(0, int(seconds))
    units = [("d", whole // 86_400), ("h", whole // 3600 % 24), ("min", whole // 60 % 60), ("s", whole % 60)]
    first = next((at for at, (_, count) in enumerate(units) if count), 3)
    return " ".join(f"{count} {unit}" for unit, count in units[first : first + 2])
