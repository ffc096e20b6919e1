"""The exit codes of `leasehold-py`. Codes that `leasehold` has too mean the same."""

from __future__ import annotations

import sys

from leasehold.cli._typer import TyperException
from leasehold.errors import (
    BY_CODE,
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


def database_errors() -> tuple[type[Exception], ...]:
    """Return the classes of the errors of databases. Without psycopg, which is an extra, there are none."""
    psycopg = sys.modules.get("psycopg")
    return (psycopg.Error,) if psycopg else ()


def exit_code(error: Exception) -> int:
    """Return the exit code with which `leasehold-py` ends after an exception."""
    match error:
        case _ if isinstance(error, TyperException):
            return int(error.exit_code)
        case LeaseholdError(grpc_status=str(status)) if error.code == status or error.code not in BY_CODE:
            return _BY_STATUS.get(status, 1)
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
        case _ if isinstance(error, database_errors()):
            return _database_exit_code(error)
        case _:
            return 1


def _database_exit_code(error: Exception) -> int:
    from psycopg import errors

    if isinstance(error, errors.InvalidAuthorizationSpecification | errors.InvalidPassword | errors.InsufficientPrivilege):
        return 6
    # Values that a query cannot compute with are the fault of its condition, and 1 has a meaning of its own.
    if isinstance(error, errors.DataError):
        return USAGE
    return 5 if isinstance(error, errors.OperationalError) else 1
