"""The help texts of `leasehold-py`, in the form of those of `leasehold`."""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from leasehold.cli._typer import annotation_of, bounds_of, help_of, panel_of

_MAX_WIDTH = 100
# The narrowest column of texts beside a column of options. In a narrower window, texts stand below their options.
_MIN_TEXT_WIDTH = 40

# The names of the options of the program that every command has, too.
_SHARED = ("json", "version")
# A blank at which no line may end: that within a default value. The finished text has plain blanks.
_FIRM_BLANK = "\u00a0"

# The words that stand for values of these types.
_WORDS: dict[type, str] = {int: "N", float: "N", str: "TEXT", Path: "FILE", datetime: "TIME"}
# The same for sentences.
_KINDS: dict[type, str] = {int: "an integer", float: "a number", datetime: "a time such as 2026-01-31T12:00:00Z"}


class Command(TyperCommand):
    """A command with a plain help text. It shares the options of `leasehold-py` that it does not declare itself."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - the context of click, which Typer keeps private
        """Return the parameters of the command, and the shared options."""
        *own, help_option = super().get_params(ctx)
        declared = {param.name for param in own}
        of_program = ctx.parent.command.params if ctx.parent else []
        shared = [param for param in of_program if param.name in _SHARED and param.name not in declared]
        return [*own, *shared, help_option]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - see above
        """Parse the command line, and refuse NaN, which is neither below nor above the bounds of an option."""
        rest: list[str] = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(param.name)
            if isinstance(value, float) and math.isnan(value):
                raise typer.BadParameter("it is no number", ctx=ctx, param=cast("Any", param))
        return rest

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401 - see above
        """Return the help text of the command."""
        return _help(self, ctx, commands=[])


class Group(TyperGroup):
    """The list of the commands, with a plain help text."""

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401 - see above
        """Return the help text of the program."""
        commands = [(name, _paragraphs(command.help)[0]) for name, command in self.commands.items()]
        return _help(self, ctx, commands)


def wanted(param: Any) -> str | None:  # noqa: ANN401 - see above
    """Return what to pass as the value of a number or a time; None for another parameter."""
    kind = _KINDS.get(annotation_of(param))
    return None if kind is None else ", ".join([kind, *_bounds(param)])


def _help(command: Any, ctx: Any, commands: list[tuple[str, str]]) -> str:  # noqa: ANN401 - see above
    width = min(shutil.get_terminal_size().columns, _MAX_WIDTH)
    params = [param for param in command.get_params(ctx) if not param.hidden]
    arguments = [param for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param.param_type_name == "option"]
    sections = {
        "Commands": commands,
        "Arguments": [_row(command, param) for param in arguments],
        "Options": [_row(command, param) for param in options if panel_of(param) is None],
        **{panel: [_row(command, param) for param in options if panel_of(param) == panel] for panel in _panels(options)},
    }
    blocks = [
        *(textwrap.fill(paragraph, width, **_WHOLE_WORDS) for paragraph in _paragraphs(command.help)),
        _usage(ctx.command_path, params, width, has_commands=bool(commands)),
        *("\n".join([f"{title}:", *_lines(rows, width)]) for title, rows in sections.items() if rows),
        *_epilog(command.epilog, width),
    ]
    return "\n\n".join(blocks).replace(_FIRM_BLANK, " ")


# Names of options contain hyphens. They must stay whole, so that users can copy them and search for them.
_WHOLE_WORDS: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n")]


def _panels(options: Iterable[Any]) -> dict[str, None]:
    return dict.fromkeys(panel for option in options if (panel := panel_of(option)))


def _usage(path: str, params: Iterable[Any], width: int, *, has_commands: bool) -> str:
    required = [_left(param) for param in params if param.required]
    # Arguments come last, as a user types them.
    words = [path, "[OPTIONS]", *sorted(required, key=lambda word: not word.startswith("-"))]
    line = " ".join([*words, *(["COMMAND"] if has_commands else [])])
    return textwrap.fill(f"Usage: {line}", width, subsequent_indent=" " * 7, **_WHOLE_WORDS)


def _row(command: Any, param: Any) -> tuple[str, str]:  # noqa: ANN401 - see above
    extras = [f"[{extra}]".replace(" ", _FIRM_BLANK) for extra in (*_bounds(param), *_defaults(param))]
    return _left(param), " ".join([*filter(None, [help_of(command, param)]), *extras])


def _left(param: Any) -> str:  # noqa: ANN401 - see above
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    # Short names come first.
    names = ", ".join(sorted(param.opts, key=len))
    return names if param.is_flag else f"{names} {_word(param)}"


def _word(param: Any) -> str:  # noqa: ANN401 - see above
    """Return the word that stands for the value of an option."""
    if param.metavar:
        return str(param.metavar)
    return "SECONDS" if param.name.endswith("_seconds") else _WORDS[annotation_of(param)]


def _bounds(param: Any) -> Iterator[str]:  # noqa: ANN401 - see above
    low, high = bounds_of(param)
    if low is not None and high is not None:
        yield f"{_digits(low)} to {_digits(high)}"


def _digits(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def _defaults(param: Any) -> Iterator[str]:  # noqa: ANN401 - see above
    if param.envvar:
        yield f"env: {param.envvar}"
    default = param.default
    if param.show_default and default not in (None, False, "", ()):
        yield f"default: {default:g}" if isinstance(default, float) else f"default: {default}"


def _lines(rows: list[tuple[str, str]], width: int) -> Iterator[str]:
    column = max(len(left) for left, _ in rows) + 4
    is_narrow = width - column < _MIN_TEXT_WIDTH
    indent = " " * (10 if is_narrow else column)
    for left, text in rows:
        beside = indent if is_narrow else f"  {left}".ljust(column)
        if is_narrow:
            yield f"  {left}"
        yield textwrap.fill(text, width, initial_indent=beside, subsequent_indent=indent, **_WHOLE_WORDS)


def _epilog(text: str | None, width: int) -> Iterator[str]:
    """Yield the end of a help text. Its lines are those of a list, whose numbers stay in a column of their own."""
    if text:
        yield "\n".join(textwrap.fill(line, width, subsequent_indent=" " * 5, **_WHOLE_WORDS) for line in text.splitlines())
