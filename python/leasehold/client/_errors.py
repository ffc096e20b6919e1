"""Conversion of a gRPC status and its rich error details (google.rpc.Status) to an exception of `leasehold.errors`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from leasehold._proto.leasehold.v1 import rejection_pb2
from leasehold.errors import (
    BY_CODE,
    NUMBERS,
    DeadlineExceededError,
    DeniedError,
    Detail,
    InternalError,
    InvalidError,
    LeaseholdError,
    MisconfiguredError,
    NotFoundError,
    OverloadedError,
    TakenError,
    UnauthenticatedError,
    UnavailableError,
)

_Status = grpc.StatusCode

# Exception classes by gRPC status, for an answer without a known `ErrorInfo.reason`: a proxy may have sent it.
_BY_STATUS: dict[grpc.StatusCode, type[LeaseholdError]] = {
    _Status.CANCELLED: UnavailableError,
    _Status.INVALID_ARGUMENT: InvalidError,
    _Status.DEADLINE_EXCEEDED: DeadlineExceededError,
    _Status.NOT_FOUND: NotFoundError,
    _Status.ALREADY_EXISTS: TakenError,
    _Status.PERMISSION_DENIED: DeniedError,
    _Status.RESOURCE_EXHAUSTED: OverloadedError,
    _Status.OUT_OF_RANGE: InvalidError,
    _Status.UNAVAILABLE: UnavailableError,
    # The server has no such call: it is older, or serves no locks.
    _Status.UNIMPLEMENTED: MisconfiguredError,
    _Status.UNAUTHENTICATED: UnauthenticatedError,
}

# Statuses of a failed call after which the request may have taken effect.
_UNKNOWN = {
    _Status.CANCELLED,
    _Status.UNKNOWN,
    _Status.DEADLINE_EXCEEDED,
    _Status.ABORTED,
    _Status.INTERNAL,
    _Status.UNAVAILABLE,
    _Status.DATA_LOSS,
}

# The code of an ask that has left because its wait would never end. A proxy may send the same status, ABORTED, without it.
_LOCK_CIRCLE = "LOCK_CIRCLE"

# Messages of a failed TLS handshake. gRPC's core has no status for it: the call fails as UNAVAILABLE, and only the message
# names TLS (src/core/tsi/ssl_transport_security.cc, src/core/credentials/transport/tls). An unexpected EOF is not matched: the
# server may have stopped during the handshake, so a retry can succeed.
_TLS_HANDSHAKE_FAILURE = re.compile(
    r"(ssl|tls) handshake failed.*ssl_error_ssl(?!.*unexpected eof)|not in peer certificate|hostname verification",
    re.IGNORECASE | re.DOTALL,
)

# Beginnings of the messages of gRPC's core for a call without a connection. The cause follows the last colon and blank
# (src/core/load_balancing/pick_first/pick_first.cc).
_NOT_CONNECTED = "failed to connect to all addresses"
_NOT_RESOLVED = ("errors resolving ", "DNS resolution failed for ")
# The messages for a connection that broke (src/core/ext/transport/chttp2, src/core/lib/iomgr/tcp_posix.cc).
_BROKEN = re.compile(r"socket closed|goaway|connection reset|broken pipe|recvmsg|sendmsg|keepalive watchdog", re.IGNORECASE)
# Causes that name parts of HTTP/2, by their beginnings, and the words for users.
_CAUSES = {
    "connection attempt timed out": "it accepts connections, but does not answer",
    "Failed parsing HTTP/2": "it does not answer as a Leasehold server",
    # The text of grpcio before 1.80.
    "Trying to connect an http1.x server": "it does not answer as a Leasehold server",
}

_DETAILS = "grpc-status-details-bin"
# The domain of the server's reasons (client/src/refusal.rs). A proxy may add reasons of its own.
_DOMAIN = "leasehold"

Metadata = Iterable[tuple[str, str | bytes]]


def error_for_status(status: grpc.StatusCode, message: str, trailers: Metadata) -> LeaseholdError:
    """Return the exception for a gRPC status, its message and its trailing metadata."""
    if status is _Status.UNAVAILABLE and _TLS_HANDSHAKE_FAILURE.search(message):
        return MisconfiguredError(
            "the TLS handshake with the server failed: check that `tls.ca` signed its certificate and that the "
            f"certificate names the host in the address ({message})",
            code="TLS_REFUSED",
        )
    details = _Details(trailers)
    code, error_class = _code_and_class(status, details.info.reason)
    if not details.info.reason:
        message = _without_grpc_words(status, message)
    error = error_class(
        message or code,
        code=code,
        details=details.rejected_claims(),
        retry_after_seconds=details.retry_after_seconds(),
        metadata=dict(details.info.metadata),
    )
    error.outcome_is_unknown = status in _UNKNOWN and code != _LOCK_CIRCLE
    error.grpc_status = status.name
    return error


def _without_grpc_words(status: grpc.StatusCode, message: str) -> str:
    """Return a message in the words of this package, if gRPC's core has composed it because no server answered."""
    if status is _Status.DEADLINE_EXCEEDED:
        return "no answer came in time"
    if status is not _Status.UNAVAILABLE:
        return message
    if message.startswith(_NOT_RESOLVED):
        return "cannot reach the server: its name is not known"
    if message.startswith(_NOT_CONNECTED):
        # An older grpcio appends the number of the operating system's error.
        cause = re.sub(r" \(\d+\)$", "", message.rpartition(": ")[2])
        words = (words for beginning, words in _CAUSES.items() if cause.startswith(beginning))
        other = "it closes the connection" if _BROKEN.search(cause) else cause
        return f"cannot reach the server: {next(words, other)}"
    return f"the connection broke: {message}" if _BROKEN.search(message) else message


def _code_and_class(status: grpc.StatusCode, reason: str) -> tuple[str, type[LeaseholdError]]:
    # A newer server may have a reason that this version does not know. Programs and people still need it.
    return reason or status.name, BY_CODE.get(reason) or _BY_STATUS.get(status, InternalError)


class _Details:
    """The rich error details of a failed call: the error info, the delay before a retry, and the refused claims."""

    def __init__(self, trailers: Metadata) -> None:
        self.info = error_details_pb2.ErrorInfo()
        self._retry = error_details_pb2.RetryInfo()
        self._claims = rejection_pb2.RejectedClaims()
        for packed in _rich_status(trailers).details:
            for message in (self.info, self._retry, self._claims):
                packed.Unpack(message)
        if self.info.domain != _DOMAIN:
            self.info.Clear()

    def rejected_claims(self) -> tuple[Detail, ...]:
        details = (
            detail for group in self._claims.groups for claims in group.claims for detail in _details_of(group.reason, claims)
        )
        return tuple(sorted(details, key=lambda detail: (detail.list, detail.position)))

    def retry_after_seconds(self) -> float | None:
        if not self._retry.HasField("retry_delay"):
            return None
        delay = self._retry.retry_delay
        return float(delay.seconds) + float(delay.nanos) / 1e9


def _details_of(code: str, claims: rejection_pb2.RejectedClaims.Claims) -> Iterator[Detail]:
    lists: list[tuple[Literal["creates", "destroys"], Iterable[int]]] = [
        ("creates", claims.create_positions),
        ("destroys", claims.destroy_positions),
    ]
    for name, positions in lists:
        for position in positions:
            yield Detail(name, position, int(claims.bucket_type), code, NUMBERS.get(code, 0), "")


def _rich_status(trailers: Metadata) -> status_pb2.Status:
    encoded = next((value for name, value in trailers if name == _DETAILS), b"")
    try:
        return status_pb2.Status.FromString(encoded if isinstance(encoded, bytes) else encoded.encode())
    except DecodeError:
        # A proxy may put arbitrary bytes into this trailer, so ignore it. The plain status still describes the failure.
        return status_pb2.Status()
