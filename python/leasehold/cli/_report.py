"""The report of a failure on standard error: text for people, or the JSON object that `leasehold --json` writes."""

from __future__ import annotations

import json as json_format
import math
import sys
from collections.abc import Mapping
from typing import Any

import typer

from leasehold.cli._exit import exit_code
from leasehold.cli._help import wanted
from leasehold.cli._typer import TyperException
from leasehold.errors import DeniedError, Detail, LeaseholdError, UnavailableError

# Exception texts name Python parameters; a user of `leasehold-py` needs the options instead. Longer texts come first, because
# `_message_of` replaces in this order. tests/cli/test_cli_verify.py fails if an exception text changes.
_OPTIONS = {
    "`tls`, or set `allow_plaintext=True` on a trusted network": "`--ca`, `--cert` and `--key`",
    "set the files of the authority and of the client in `tls`": "set them by `--ca`, `--cert` and `--key`",
    "`tls.ca`": "`--ca`",
    "`tls.certificate`": "`--cert`",
    "`tls.key`": "`--key`",
    "`where` is": "`--where` is",
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

# The next steps after a refusal, by reason or gRPC status: those of `leasehold` (cli/src/refused.rs).
_HINTS: Mapping[str, str] = {
    "CLAIM_BUSY": "another update is under way: {again}",
    "DEADLINE_EXCEEDED": "repeating it is safe; --timeout-seconds waits longer",
    "NO_IDENTITY": "say who you are with --cert and --key",
    "NOT_OWNER": "only the cell that owns it can change it: check --cell",
    "OVERLOADED": "{again}",
    "RULE_DENIED": "use the certificate of that cell, or of an administrator",
    "STORE_UNAVAILABLE": "when the store is back, repeating it is safe; the server's log says what is wrong",
    "UNAUTHENTICATED": "say who you are with --cert and --key",
    "UNAVAILABLE": "repeating it is safe, once the server is back",
    "UNIMPLEMENTED": "check that --server is a Leasehold server, and as new as this client",
}

# Codes of failures before a request, for which `leasehold` has no reason.
_NO_REASONS = ("", "MISCONFIGURED")


class UnreachableError(UnavailableError):
    """The server cannot be reached. The hint is the next step."""

    def __init__(self, server: str, cause: str, hint: str) -> None:
        super().__init__(f"cannot reach {server}: {cause}", code="")
        self.hint = hint


class NotAcceptedError(DeniedError):
    """The server does not accept the client's certificate. The hint is the next step."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, code="")
        self.hint = hint


def report(error: Exception, *, json: bool) -> None:
    """Write a failure to standard error: as text, or as one JSON object."""
    sys.stderr.write(f"{json_format.dumps(_object(error), ensure_ascii=False)}\n" if json else _text(error))


def _text(error: Exception) -> str:
    label = f" ({error.code})" if isinstance(error, LeaseholdError) and error.code not in _NO_REASONS else ""
    hint = _hint(error)
    return f"error: {_message_of(error)}{label}\n" + (f"hint: {hint}\n" if hint else "")


def _object(error: Exception) -> dict[str, object]:
    """Return the JSON of a failure. Every failure has these members."""
    members: dict[str, object] = {
        "message": _message_of(error),
        "hint": _hint(error),
        "exitCode": exit_code(error),
        "code": None,
        "reason": None,
        "retryAfterSeconds": None,
        "claims": [],
    }
    if isinstance(error, LeaseholdError):
        members["code"] = error.grpc_status
        members["reason"] = None if error.code in (*_NO_REASONS, error.grpc_status) else error.code
        members["retryAfterSeconds"] = error.retry_after_seconds
        members["claims"] = [_claim(detail) for detail in error.details]
    return {"error": members}


def _claim(detail: Detail) -> dict[str, object]:
    return {
        "list": detail.list.removesuffix("s"),
        "position": detail.position,
        "claim": f"number {detail.position}",
        "reason": detail.code,
    }


def _message_of(error: Exception) -> str:
    """Return the message of an exception as one line, with options in place of Python parameters."""
    if isinstance(error, TyperException):
        message = _refused_value(error) or error.format_message().rstrip(".")
        return message[:1].lower() + message[1:]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = "; ".join(lines) or type(error).__name__
    for parameter, option in _OPTIONS.items():
        message = message.replace(parameter, option)
    return message


def _refused_value(error: Any) -> str | None:  # noqa: ANN401 - a failure of Typer, whose classes differ between versions
    """Return the message about a number or a time that is none; None for another failure.

    Typer has the words of pydantic, which name types of Python and the formats of `strptime`.
    """
    # Subclasses are other failures, such as a missing parameter.
    param = error.param if type(error) is typer.BadParameter else None
    what = None if param is None else wanted(param)
    return None if what is None or param is None else f"invalid value for `{max(param.opts, key=len)}`: pass {what}"


def _hint(error: Exception) -> str | None:
    if isinstance(error, UnreachableError | NotAcceptedError):
        return error.hint
    if isinstance(error, TyperException):
        context = getattr(error, "ctx", None)
        return f"see `{context.command_path} --help`" if context else None
    if not isinstance(error, LeaseholdError) or error.grpc_status is None:
        return None
    if error.metadata.get("cause") == "locked":
        return "when that session has ended its transaction, repeating it is safe; the server's log says how to find it"
    hint = _HINTS.get(error.code, "" if error.retry_after_seconds is None else "{again}")
    return hint.format(again=_again(error.retry_after_seconds)) or None


def _again(seconds: float | None) -> str:
    # The delay is rounded up, as in the server's message: a retry before its end would be refused.
    return "try again" if seconds is None else f"try again in {math.ceil(round(seconds * 1e6) / 1000)} ms"
