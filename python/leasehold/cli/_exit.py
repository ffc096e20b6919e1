"""The exit codes of `leasehold-py`, and its error messages. Codes that `leasehold` has too mean the same."""

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

# Exception texts name Python parameters; a user of `leasehold-py` needs the options instead. Longer texts come first, because
# `message_of` replaces in this order. tests/cli/test_cli_verify.py fails if an exception text changes.
_OPTIONS = {
    "`tls`, or set `allow_plaintext=True` on a trusted network": "`--ca`, `--cert` and `--key`",
    "set the files of the authority and of the client in `tls`": "set them by `--ca`, `--cert` and `--key`",
    "`tls.ca`": "`--ca`",
    "`tls.certificate`": "`--cert`",
    "`tls.key`": "`--key`",
    "`taken_at`": "`--taken-at`",
    "`recent_within_seconds`": "`--recent-within-seconds`",
    "`allow_empty`": "`--allow-empty`",
    "`max_destroy_share`": "`--max-destroy-share`",
    "set `null_values` to the texts that stand for null, or to an empty list if it is a name": "name each text that stands for "
    "null by `--null-value`, or set it to the empty text if it is a name",
    "`text_keys`": "`--text-keys`",
    "`assume_utc=True`": "`--assume-utc`",
    "`assume_utc`": "`--assume-utc`",
}

USAGE = 2
STOPPED = 7

# Typer renders the epilog as Markdown, where only a blank line ends a paragraph.
EXIT_CODES = """\
Exit codes:

0  success; for `verify`, the table and the claims agree

1  any other error; for `verify`, differences remain

2  invalid command line

3  refused, a retry cannot succeed

4  try again: busy, overloaded or timed out

5  the server or the database cannot be reached

6  not allowed

7  stopped before the end by `--time-budget-seconds`: continue with the same `--checkpoint`"""

_NOT_ALLOWED = (database.InvalidAuthorizationSpecification, database.InvalidPassword, database.InsufficientPrivilege)


def exit_code(error: Exception) -> int:
    """Return the exit code with which `leasehold-py` ends after an exception."""
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
            return _database_exit_code(error)
        case _:
            return 1


def _database_exit_code(error: psycopg.Error) -> int:
    if isinstance(error, _NOT_ALLOWED):
        return 6
    return 5 if isinstance(error, psycopg.OperationalError) else 1


def message_of(error: Exception) -> str:
    """Return the message of an exception as one line, with options in place of Python parameters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = "; ".join(lines) or type(error).__name__
    for parameter, option in _OPTIONS.items():
        message = message.replace(parameter, option)
    return message
