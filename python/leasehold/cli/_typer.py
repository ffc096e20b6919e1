"""The parts of Typer that differ between its versions.

Typer 0.29 checks values with pydantic. Before, each parameter had a type of click, and before 0.26 click was a package of
its own.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, get_type_hints

import typer

# The base class of all failures of a command line: `ClickException` in older versions.
TyperException: Any = getattr(typer, "TyperException", typer.BadParameter.__mro__[2])

# The types of click by their names, without the word that a type with bounds adds.
_BY_NAME: dict[str, type] = {
    "integer": int,
    "int": int,
    "float": float,
    "text": str,
    "str": str,
    "path": Path,
    "datetime": datetime,
    "boolean": bool,
}


def annotation_of(param: Any) -> Any:  # noqa: ANN401 - the parameter of click, which Typer keeps private
    """Return the type of a parameter's value; None if it is none of those that commands have."""
    descriptor = getattr(param, "type_descriptor", None)
    return descriptor.annotation if descriptor is not None else _BY_NAME.get(param.type.name.removesuffix(" range"))


def bounds_of(param: Any) -> tuple[float | None, float | None]:  # noqa: ANN401 - see above
    """Return the least and the largest value of a parameter; None for those that it does not have."""
    holder = param if hasattr(param, "type_descriptor") else param.type
    return getattr(holder, "min", None), getattr(holder, "max", None)


def panel_of(option: Any) -> str | None:  # noqa: ANN401 - see above
    """Return the heading of an option; None if it has none. The option `--help` may be click's own."""
    panel: str | None = getattr(option, "rich_help_panel", None)
    return panel


def help_of(command: Any, param: Any) -> str:  # noqa: ANN401 - see above
    """Return the help text of a parameter of a command; an empty text if it has none.

    Before Typer 0.26, click 8.5 and newer forget the texts of arguments. The function of the command still has them.
    """
    if param.help or command.callback is None:
        return param.help or ""
    declared = get_type_hints(command.callback, include_extras=True).get(param.name)
    return next((info.help or "" for info in getattr(declared, "__metadata__", ()) if hasattr(info, "help")), "")
