"""The command `leasehold-py`: what operators and analysts do from a shell."""

from leasehold.cli._app import app, main

__all__ = ["app", "main"]
