"""A server that refuses each call with a given gRPC status and reason."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from typing_extensions import Self

from support.certificates import Files


class RefusingServer(grpc.GenericRpcHandler):
    """A gRPC server on the local machine. Set `status`, `reason`, `domain` and `retry_after_seconds` before a call.

    With TLS files, it is encrypted, and asks for no client certificate, as a proxy may do.
    """

    def __init__(self, tls: Files | None = None) -> None:
        self.status = grpc.StatusCode.INTERNAL
        self.reason = ""
        self.domain = "leasehold"
        self.retry_after_seconds: float | None = None
        self._server = grpc.server(ThreadPoolExecutor(1), handlers=[self])
        if tls is None:
            self.url = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        else:
            credentials = grpc.ssl_server_credentials([(tls.key.read_bytes(), tls.certificate.read_bytes())])
            self.url = f"https://127.0.0.1:{self._server.add_secure_port('127.0.0.1:0', credentials)}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)

    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Return the handler of every call."""
        return grpc.unary_unary_rpc_method_handler(self._refuse)

    def _refuse(self, _request: object, context: grpc.ServicerContext) -> None:
        rich = status_pb2.Status(code=self.status.value[0], message="no", details=list(self._details()))
        context.set_trailing_metadata((("grpc-status-details-bin", rich.SerializeToString()),))
        context.abort(self.status, "no")

    def _details(self) -> list[any_pb2.Any]:
        details: list[Any] = []
        if self.reason:
            details.append(error_details_pb2.ErrorInfo(reason=self.reason, domain=self.domain))
        if self.retry_after_seconds is not None:
            delay = duration_pb2.Duration(nanos=round(self.retry_after_seconds * 1e9))
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        packed = [any_pb2.Any() for _ in details]
        for each, message in zip(packed, details, strict=True):
            each.Pack(message)
        return packed
