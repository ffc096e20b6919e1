"""`leasehold-py relay`: hands the rows of an outbox in PostgreSQL on to the server."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated

import typer

from leasehold.cli import _options as options
from leasehold.cli._output import ERRORS
from leasehold.cli._server import Connection


def relay(
    *,
    database: Annotated[
        str,
        typer.Option(
            help="The postgres:// URL of the database with the outbox.", metavar="URL", envvar="LEASEHOLD_RELAY_DATABASE"
        ),
    ],
    poll_seconds: Annotated[
        float, typer.Option(help="The longest pause between two looks at an idle outbox.", min=0.001, max=60.0)
    ] = 1.0,
    server: options.Server = options.SERVER,
    ca: options.Ca = None,
    cert: options.Cert = None,
    key: options.Key = None,
    timeout_seconds: options.TimeoutSeconds = options.TIMEOUT_SECONDS,
) -> None:
    """Hand on what transactions have written into an outbox, until SIGTERM or Ctrl-C.

    `leasehold outbox` prints the SQL of the outbox. Rows are handed on in their order, and at least once. A second relay waits
    to take the place of the first one. The relay works through pgbouncer in transaction mode.
    """
    # This import needs the extra `postgres`, which other commands do without.
    from leasehold.relay import Relay

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # The relay runs in a thread of its own. A handler that interrupted its wait for `stop` could not set it.
    opened = Connection(server, ca, cert, key, timeout_seconds).client()
    with opened as client, ThreadPoolExecutor(1) as executor:
        relaying = executor.submit(Relay(client, database, poll_seconds=poll_seconds).run, stop)
        ERRORS.print("relaying; press Ctrl-C to stop", highlight=False)
        # A handler runs between two steps of this thread, so no wait is long.
        while not wait([relaying], timeout=1).done:
            pass
        relaying.result()
