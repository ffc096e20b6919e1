"""What both clients are made of."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import Any

import grpc
from typing_extensions import Self

from leasehold.client._calls import Call, Headers, T
from leasehold.client._endpoint import DEFAULT_SERVER, Tls, endpoint
from leasehold.client._refusal import Metadata, refusal
from leasehold.client._retry import Retry, check_seconds
from leasehold.errors import LeaseholdError, MisconfiguredError

DEFAULT_TIMEOUT_SECONDS = 10.0

_TLS_VARIABLES = {"ca": "LEASEHOLD_CA", "certificate": "LEASEHOLD_CERT", "key": "LEASEHOLD_KEY"}


class Settings:
    """Where the server is, who calls, and how long to wait: checked when it is made, before anything is sent."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        cell_id: int | None = None,
        tls: Tls | None = None,
        allow_plaintext: bool = False,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        retry: Retry | None = None,
    ) -> None:
        self._endpoint = endpoint(server, tls, allow_plaintext=allow_plaintext)
        self._cell_id = None if cell_id is None else _check_cell(cell_id)
        self._timeout_seconds = check_seconds("timeout_seconds", timeout_seconds)
        self._retry = retry or Retry()
        self._is_closed = False
        self._open()

    def _check_open(self) -> None:
        if self._is_closed:
            raise MisconfiguredError("the client is closed: make a new one", code="CLOSED")

    def _open(self) -> None:
        """Make what the client calls through."""

    @classmethod
    def from_environment(cls, *, environment: Mapping[str, str] = os.environ, **settings: Any) -> Self:  # noqa: ANN401 - the class says which
        """Make a client as the command line does, by variables.

        These are `LEASEHOLD_SERVER`, `LEASEHOLD_CA`, `LEASEHOLD_CERT` and `LEASEHOLD_KEY`.

        Parameters
        ----------
        environment
            Where the variables are; an empty one is one that is not set.
        **settings
            The other parameters of the class.

        Raises
        ------
        MisconfiguredError
            Some of the three files are named, but not all; or as for the class.
        """
        files = {name: environment.get(variable, "") for name, variable in _TLS_VARIABLES.items()}
        missing = [_TLS_VARIABLES[name] for name, path in files.items() if not path]
        if missing and len(missing) < len(files):
            raise MisconfiguredError(f"`{missing[0]}` is not set: set all of {', '.join(_TLS_VARIABLES.values())}, or none")
        tls = None if missing else Tls(**files)
        return cls(environment.get("LEASEHOLD_SERVER") or DEFAULT_SERVER, tls=tls, **settings)

    @property
    def cell_id(self) -> int:
        """The cell to claim and to list for.

        Raises
        ------
        MisconfiguredError
            The client was made without one.
        """
        if self._cell_id is None:
            raise MisconfiguredError("which cell is this for: name it in `cell_id` when the client is made")
        return self._cell_id


def _check_cell(cell_id: object) -> int:
    if not (isinstance(cell_id, int) and 0 < cell_id < 2**63):
        raise MisconfiguredError(f"`cell_id` is {cell_id!r}: name the cell by its number, from 1")
    return cell_id


def new_key() -> str:
    """Name a begin."""
    return str(uuid.uuid4())


def read(call: Call[T], answer: bytes, headers: Metadata | None) -> T:
    """Read an answer with its metadata."""
    found: Headers = dict(headers or ())
    return call.read(answer, found)


def failure(call: Call[T], error: grpc.RpcError | grpc.aio.AioRpcError) -> LeaseholdError:
    """Make the exception for a call that failed."""
    # Both kinds of error say these, though the types of one do not tell so.
    status: Any = error
    return call.explain(refusal(status.code(), status.details() or "", status.trailing_metadata() or ()))
