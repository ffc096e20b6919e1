"""The command line `leasehold-py` for operators and analysts."""

import os

# gRPC's core writes lines of its own to standard error, where only the errors of this program belong. It reads the variable
# when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from leasehold.cli._app import app, main

__all__ = ["app", "main"]
