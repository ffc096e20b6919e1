"""The exit codes of `leasehold-py`. Codes that `leasehold` has too mean the same."""

from __future__ import annotations

import psycopg
import typer
from psycopg import errors as database

from leasehold.errors import (
    DeadlineExceededError,
    DeniedError,
    InternalError,
    LeaseholdError,
    MisconfiguredError,
    UnauthenticatedError,
    UnavailableError,
)

USAGE = 2
STOPPED = 7
# The code of shells for a program that Ctrl-C has ended.
INTERRUPTED = 130

EXIT_CODES = """\
Exit codes:
  0  done; for `verify`, the table and the claims agree
  1  any other failure; for `verify`, differences remain
  2  the command line or the configuration is wrong
  3  refused for good: a retry cannot succeed
  4  try again: busy, overloaded, no answer in time
  5  the server or the database cannot be reached
  6  not allowed: no identity, or an identity without the right
  7  stopped before the end by --time-budget-seconds: continue with the same --checkpoint
130  stopped before the end by Ctrl-C"""

# The exit codes for names of gRPC statuses, of a failure whose reason is missing or unknown (cli/src/exit.rs).
_BY_STATUS = {
    "DEADLINE_EXCEEDED": 4,
    "RESOURCE_EXHAUSTED": 4,
    "ABORTED": 4,
    "UNAVAILABLE": 5,
    "UNAUTHENTICATED": 6,
    "PERMISSION_DENIED": 6,
    "INVALID_ARGUMENT": 3,
    "NOT_FOUND": 3,
    "ALREADY_EXISTS": 3,
    "FAILED_PRECONDITION": 3,
    "OUT_OF_RANGE": 3,
}

_NOT_ALLOWED = (database.InvalidAuthorizationSpecification, database.InvalidPassword, database.InsufficientPrivilege)


def exit_code(error: Exception) -> int:
    """Return the exit code with which `leasehold-py` ends after an exception."""
    match error:
        case typer.TyperException():
            return error.exit_code
        case LeaseholdError() if error.code == error.grpc_status:
            return _BY_STATUS.get(error.code, 1)
        case DeniedError() | UnauthenticatedError():
            return 6
        case MisconfiguredError():
            return USAGE
        case UnavailableError():
            return 5
        case DeadlineExceededError():
            return 4
        case InternalError():
            return 1
        case LeaseholdError():
            return 4 if error.is_temporary else 3
        case psycopg.Error():
            return _database_exit_code(error)
        case _:
            return 1


def _database_exit_code(error: psycopg.Error) -> int:
    if isinstance(error, _NOT_ALLOWED):
        return 6
    return 5 if isinstance(error, psycopg.OperationalError) else 1
