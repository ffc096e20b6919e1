"""What scripts go by: the exit codes of the server's own command line."""

from __future__ import annotations

import psycopg
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

# What the package's own messages call by its parameters.
_OPTIONS = {
    "`tls`, or say `allow_plaintext=True` where the network is trusted": "`--ca`, `--cert` and `--key`",
    "name those of the authority and of the caller in `tls`": "name them by `--ca`, `--cert` and `--key`",
    "`tls.ca`": "`--ca`",
    "`tls.certificate`": "`--cert`",
    "`tls.key`": "`--key`",
    "`taken_at`": "`--taken-at`",
    "`recent_within_seconds`": "`--recent-within-seconds`",
    "`allow_empty`": "`--allow-empty`",
    "`assume_utc=True`": "`--assume-utc`",
    "`assume_utc`": "`--assume-utc`",
    "`text_keys=True`": "`--text-keys`",
}

USAGE = 2
STOPPED = 7

# A blank line after each, since this is Markdown.
EXIT_CODES = """\
Exit codes:

0  done; for `verify`, table and claims agree

1  anything else; for `verify`, something is left to correct

2  the command line is wrong

3  refused for good

4  try again: busy, overloaded, no answer in time

5  the server or the database cannot be reached

6  not allowed

7  stopped before the end, as `--time-budget-seconds` says: go on with the same `--checkpoint`"""

_NOT_ALLOWED = (database.InvalidAuthorizationSpecification, database.InvalidPassword, database.InsufficientPrivilege)


def exit_code(error: Exception) -> int:
    """Return the process's exit code after an error."""
    match error:
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
            return _of_database(error)
        case _:
            return 1


def _of_database(error: psycopg.Error) -> int:
    if isinstance(error, _NOT_ALLOWED):
        return 6
    return 5 if isinstance(error, psycopg.OperationalError) else 1


def message_of(error: Exception) -> str:
    """Return what to tell people, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = "; ".join(lines) or type(error).__name__
    for parameter, option in _OPTIONS.items():
        told = told.replace(parameter, option)
    return told
