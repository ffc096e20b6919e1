"""The command line `leasehold-py` for operators and analysts."""

from leasehold.cli._app import app, main

__all__ = ["app", "main"]
