"""The list of the commands of `leasehold-py`, and the report of their failures."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from typing import Annotated

from leasehold._extras import importing

# The modules of the commands import this library, too, so this import comes first. It depends on rich.
with importing("cli"):
    import typer

from leasehold.cli import _leases, _load, _relay, _simulate, _sweep, _verify, _work
from leasehold.cli._exit import EXIT_CODES, INTERRUPTED, database_errors, exit_code
from leasehold.cli._help import Command, Group
from leasehold.cli._report import report
from leasehold.cli._typer import TyperException
from leasehold.errors import LeaseholdError

_NAME = "leasehold-py"

app = typer.Typer(
    name=_NAME,
    cls=Group,
    help="List leases, verify tables, simulate cells, compare thresholds, load-test servers, work queues, and relay outboxes.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("leases", cls=Command)(_leases.leases)
app.command("verify", cls=Command)(_verify.verify)
app.command("simulate", cls=Command)(_simulate.simulate)
app.command("sweep", cls=Command)(_sweep.sweep)
app.command("load", cls=Command)(_load.load)
app.command("work", cls=Command)(_work.work)
app.command("relay", cls=Command)(_relay.relay)


def _show_version(value: bool) -> None:  # noqa: FBT001 - the signature of a callback of Typer
    if value:
        typer.echo(f"{_NAME} {version_of('leasehold')}")
        raise typer.Exit


def _print_json(ctx: typer.Context, value: bool) -> None:  # noqa: FBT001 - see above
    if value:
        ctx.default_map = {str(command.name): {"json": True} for command in app.registered_commands}


@app.callback()
def _shared(
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print results and errors as JSON.", callback=_print_json, expose_value=False)
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version.", callback=_show_version, is_eager=True, expose_value=False),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run `leasehold-py`. A failure is reported on standard error, and sets the exit code."""
    words = sys.argv[1:]
    try:
        code = app(prog_name=_NAME, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        # Typer raises `Abort` after Ctrl-C.
        raise SystemExit(INTERRUPTED) from None
    except _expected_errors() as error:
        if words:
            report(error, json=_asks_for_json(words))
        else:
            # Without a command, the message is the help text.
            sys.stderr.write(f"{error}\n")
        raise SystemExit(exit_code(error)) from None
    raise SystemExit(code)


def _expected_errors() -> tuple[type[Exception], ...]:
    return LeaseholdError, OSError, TyperException, *database_errors()


def _asks_for_json(words: list[str]) -> bool:
    # The command line may be what is wrong, so the option is looked for in its words.
    return "--json" in (words[: words.index("--")] if "--" in words else words)
