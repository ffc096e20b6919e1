"""From a status of gRPC, with its rich details, to an exception of ours."""

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

# Where no detail names a reason: what stands between may answer as well as the server.
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
    _Status.UNAUTHENTICATED: UnauthenticatedError,
}

# After these the request may have taken effect.
_UNKNOWN = {
    _Status.CANCELLED,
    _Status.UNKNOWN,
    _Status.DEADLINE_EXCEEDED,
    _Status.ABORTED,
    _Status.INTERNAL,
    _Status.UNAVAILABLE,
    _Status.DATA_LOSS,
}

# How gRPC's core, which has no status for it, tells of a certificate that was refused, or of no TLS at all. What is cut
# off in the middle may come back.
_HANDSHAKE = re.compile(
    r"(ssl|tls) handshake failed.*ssl_error_ssl(?!.*unexpected eof)|not in peer certificate|hostname verification",
    re.IGNORECASE | re.DOTALL,
)

_DETAILS = "grpc-status-details-bin"

Metadata = Iterable[tuple[str, str | bytes]]


def refusal(status: grpc.StatusCode, message: str, trailers: Metadata) -> LeaseholdError:
    """Make the exception for a status."""
    if status is _Status.UNAVAILABLE and _HANDSHAKE.search(message):
        return MisconfiguredError(
            "no TLS with the server: check that `tls.ca` has signed its certificate, and that this is for the host in "
            f"the address ({message})",
            code="TLS_REFUSED",
        )
    details = _Details(trailers)
    code, error_class = _kind(status, details.info.reason)
    error = error_class(
        message or code,
        code=code,
        details=details.rejected(),
        retry_after_seconds=details.retry_after_seconds(),
        metadata=dict(details.info.metadata),
    )
    error.outcome_is_unknown = status in _UNKNOWN
    return error


def _kind(status: grpc.StatusCode, reason: str) -> tuple[str, type[LeaseholdError]]:
    known = BY_CODE.get(reason)
    if known is not None:
        return reason, known
    return status.name, _BY_STATUS.get(status, InternalError)


class _Details:
    """What a status carries beside its words."""

    def __init__(self, trailers: Metadata) -> None:
        self.info = error_details_pb2.ErrorInfo()
        self._retry = error_details_pb2.RetryInfo()
        self._claims = rejection_pb2.RejectedClaims()
        for packed in _status(trailers).details:
            for message in (self.info, self._retry, self._claims):
                packed.Unpack(message)

    def rejected(self) -> tuple[Detail, ...]:
        found = [detail for group in self._claims.groups for some in group.claims for detail in _places(group.reason, some)]
        return tuple(sorted(found, key=lambda detail: (detail.list, detail.position)))

    def retry_after_seconds(self) -> float | None:
        if not self._retry.HasField("retry_delay"):
            return None
        delay = self._retry.retry_delay
        return float(delay.seconds) + float(delay.nanos) / 1e9


def _places(code: str, claims: rejection_pb2.RejectedClaims.Claims) -> Iterator[Detail]:
    lists: list[tuple[Literal["creates", "destroys"], Iterable[int]]] = [
        ("creates", claims.create_positions),
        ("destroys", claims.destroy_positions),
    ]
    for name, positions in lists:
        for position in positions:
            yield Detail(name, position, int(claims.bucket_type), code, NUMBERS.get(code, 0), "")


def _status(trailers: Metadata) -> status_pb2.Status:
    encoded = next((value for name, value in trailers if name == _DETAILS), b"")
    try:
        return status_pb2.Status.FromString(encoded if isinstance(encoded, bytes) else encoded.encode())
    except DecodeError:
        # What stands between may write there what it likes.
        return status_pb2.Status()
