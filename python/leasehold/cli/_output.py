"""Where answers and errors go: answers to standard output, everything else beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from leasehold.errors import MisconfiguredError

ERRORS = Console(stderr=True)


def show_json(value: object) -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table for people, as wide as it needs where nobody looks at it."""
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=200)
    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show_line(text: str) -> None:
    """Print a line for people, as it is."""
    sys.stdout.write(text + "\n")


def check_places(*paths: Path | None) -> None:
    """See that files can be written where they are to be, before what takes long.

    Raises
    ------
    MisconfiguredError
        There is no such directory.
    """
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise MisconfiguredError(f"`{path.parent}` is no directory: make it, or write elsewhere")
        if path is not None and path.is_dir():
            raise MisconfiguredError(f"`{path}` is a directory: name a file in it")


def progress_bar() -> Progress:
    """Make a progress bar beside the answer; where nobody looks, it shows nothing."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=ERRORS, transient=True, disable=not ERRORS.is_terminal)


def span(seconds: float) -> str:
    """Write an age for people: its two largest units."""
    whole = max(0, int(seconds))
    units = [("d", whole // 86_400), ("h", whole // 3600 % 24), ("min", whole // 60 % 60), ("s", whole % 60)]
    first = next((at for at, (_, count) in enumerate(units) if count), 3)
    return " ".join(f"{count} {unit}" for unit, count in units[first : first + 2])
