"""The base class of the blocking and the asyncio client, and the conversion of responses and errors that both use."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import Any

import grpc
from typing_extensions import Self

from leasehold import _native
from leasehold.client._calls import Call, Headers, T
from leasehold.client._endpoint import DEFAULT_SERVER, Tls, endpoint
from leasehold.client._errors import Metadata, error_for_status
from leasehold.client._retry import Retry, check_seconds
from leasehold.client._store import ExpectedStore
from leasehold.errors import LeaseholdError, MisconfiguredError

DEFAULT_TIMEOUT_SECONDS = 10.0

_TLS_VARIABLES = {"ca": "LEASEHOLD_CA", "certificate": "LEASEHOLD_CERT", "key": "LEASEHOLD_KEY"}


class ClientBase:
    """The validated settings of a client. The constructor raises if they are invalid, before the first request."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        cell_id: int | None = None,
        tls: Tls | None = None,
        allow_plaintext: bool = False,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        retry: Retry | None = None,
        store_id: str | uuid.UUID | None = None,
    ) -> None:
        self._endpoint = endpoint(server, tls, allow_plaintext=allow_plaintext)
        self._tls = tls
        self._cell_id = None if cell_id is None else _check_cell(cell_id)
        self._timeout_seconds = check_seconds("timeout_seconds", timeout_seconds)
        self._retry = retry or Retry()
        self._store = ExpectedStore(None if store_id is None else _check_store(store_id))
        self._is_closed = False
        self._open()

    def _check_open(self) -> None:
        if self._is_closed:
            raise MisconfiguredError("the client is closed: create a new one", code="CLOSED")

    def _new_keepalive(self, session: bytes, duration_micros: int, grace_micros: int) -> _native.Keepalive:
        """Return the keepalive of a session that is opened next. It has a connection of its own to the same server."""
        paths = None if self._tls is None else _paths(self._tls)
        return _native.Keepalive(self._endpoint.url, paths, self._store.store_id, session, duration_micros, grace_micros)

    def _open(self) -> None:
        """Open the gRPC channel. The asyncio client does this with its first call instead."""

    @classmethod
    def from_environment(cls, *, environment: Mapping[str, str] | None = None, **settings: Any) -> Self:  # noqa: ANN401 - the parameters of the constructor
        """Return a client for the environment variables that the command line uses.

        The variables are `LEASEHOLD_SERVER`, `LEASEHOLD_CA`, `LEASEHOLD_CERT` and `LEASEHOLD_KEY`.

        Parameters
        ----------
        environment
            The variables. An empty value counts as unset. The default is the environment of the process.
        **settings
            The other parameters of the constructor.

        Raises
        ------
        MisconfiguredError
            A client certificate is set without its key or an authority, or the constructor raises.
        """
        # The environment itself must be no default: `help` shows defaults, and the environment has secrets.
        environment = os.environ if environment is None else environment
        files = {name: environment.get(variable, "") for name, variable in _TLS_VARIABLES.items()}
        missing = [_TLS_VARIABLES[name] for name, path in files.items() if not path]
        is_authority_alone = missing == [_TLS_VARIABLES["certificate"], _TLS_VARIABLES["key"]]
        if 0 < len(missing) < len(files) and not is_authority_alone:
            raise MisconfiguredError(
                f"`{missing[0]}` is not set: set all of {', '.join(_TLS_VARIABLES.values())}, only the first, or none"
            )
        tls = Tls(**{name: path for name, path in files.items() if path}) if files["ca"] else None
        return cls(environment.get("LEASEHOLD_SERVER") or DEFAULT_SERVER, tls=tls, **settings)

    @property
    def cell_id(self) -> int:
        """The id of the cell that the client claims and lists for.

        Raises
        ------
        MisconfiguredError
            The client was created without a cell.
        """
        if self._cell_id is None:
            raise MisconfiguredError("the client has no cell: pass `cell_id` when you create it")
        return self._cell_id


def _paths(tls: Tls) -> tuple[str, tuple[str, str] | None]:
    """Return the paths of the TLS files as the extension takes them."""
    identity = tls.identity
    return os.fspath(tls.ca), None if identity is None else (os.fspath(identity[0]), os.fspath(identity[1]))


def _check_cell(cell_id: object) -> int:
    if not (isinstance(cell_id, int) and 0 < cell_id < 2**63):
        raise MisconfiguredError(f"`cell_id` is {cell_id!r}: pass the number of the cell, at least 1")
    return cell_id


def _check_store(store_id: str | uuid.UUID) -> str:
    try:
        return str(uuid.UUID(str(store_id)))
    except ValueError:
        raise MisconfiguredError(f"`store_id` is {store_id!r}: pass the UUID that the server prints as `store`") from None


def new_idempotency_key() -> str:
    """Return a random idempotency key for a begin."""
    return str(uuid.uuid4())


def _headers(metadata: Metadata | None) -> Headers:
    # The metadata of asyncio is no mapping, but older versions of grpcio give it `keys`, whose items are pairs. `dict` would
    # take them for keys.
    return {key: value for key, value in metadata or ()}  # noqa: C416 - see above


def decode_response(call: Call[T], response: bytes, metadata: Metadata | None, store: ExpectedStore) -> T:
    """Return the decoded response of a call, given the bytes and the initial metadata that the server sent."""
    headers = _headers(metadata)
    if (other := store.check(headers)) is not None:
        raise call.annotate(other)
    return call.decode(response, headers)


def call_error(call: Call[T], error: grpc.RpcError | grpc.aio.AioRpcError, store: ExpectedStore) -> LeaseholdError:
    """Return the exception of this package for a failed gRPC call."""
    # `grpc.RpcError` declares no methods, but every error that a call raises is also a `grpc.Call` (grpc/_channel.py,
    # `_InactiveRpcError`), which has them.
    status: Any = error
    trailers: Metadata = status.trailing_metadata() or ()
    # A server that answers with an error alone sends its metadata as trailers (gRPC over HTTP/2, "Trailers-Only").
    other = store.mismatch(_headers(trailers))
    return call.annotate(other or error_for_status(status.code(), status.details() or "", trailers))
