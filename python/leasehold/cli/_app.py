"""The list of the commands of `leasehold-py`, and the conversion of exceptions to messages and exit codes."""

from __future__ import annotations

import psycopg
import typer

from leasehold.cli import _leases, _load, _relay, _simulate, _sweep, _verify, _work
from leasehold.cli._exit import EXIT_CODES, exit_code, message_of
from leasehold.cli._output import ERRORS
from leasehold.errors import LeaseholdError

app = typer.Typer(
    name="leasehold-py",
    help="List leases, verify tables, simulate cells, compare thresholds, load-test servers, work queues, and relay outboxes.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("leases")(_leases.leases)
app.command("verify")(_verify.verify)
app.command("simulate")(_simulate.simulate)
app.command("sweep")(_sweep.sweep)
app.command("load")(_load.load)
app.command("work")(_work.work)
app.command("relay")(_relay.relay)


def main() -> None:
    """Run `leasehold-py`. An exception prints one line on standard error and sets the exit code."""
    try:
        app()
    except (LeaseholdError, psycopg.Error, OSError) as error:
        ERRORS.print(f"error: {message_of(error)}", markup=False, highlight=False, soft_wrap=True)
        raise SystemExit(exit_code(error)) from None
