"""The command line `leasehold-py` for operators and analysts."""

import os
import sys

from leasehold.errors import MissingExtraError

# gRPC's core writes lines of its own to standard error, where only the errors of this program belong. It reads the variable
# when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

__all__ = ["main"]


def main() -> None:
    """Run `leasehold-py`. A failure is reported on standard error, and sets the exit code."""
    try:
        from leasehold.cli import _app
    except MissingExtraError as error:
        # The report of failures needs the extra, too.
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        # The libraries load for half a second, and longer on a busy machine.
        raise SystemExit(130) from None
    _app.main()
