"""Clients for the connection options of a command, and the faults that keep such a client from its server."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from leasehold.cli._report import NotAcceptedError, UnreachableError
from leasehold.client import AsyncClient, Client, Retry, Tls
from leasehold.client._endpoint import endpoint
from leasehold.errors import LeaseholdError, MisconfiguredError

_START_ONE = "start one with `leasehold serve`, or name yours with --server"

# The time for the answer of a server to the handshake of a client: it refuses a certificate only after TLS 1.3's handshake.
_REFUSAL_SECONDS = 1.0

_UNSUITABLE = "it is not made for this use"
_UNKNOWN_ISSUER = "it is signed by an authority that the server does not know"
_NOT_VALID = "it has expired, or is not valid yet"
_MISSING = "it requires one, and none was sent"

# The alerts with which a server refuses a client's certificate, by the ends of OpenSSL's names, and the faults
# (client/src/handshake.rs). Rustls sends a decryption error if an authority has the right name and another key.
_REFUSALS = {
    "CERTIFICATE_EXPIRED": _NOT_VALID,
    "CERTIFICATE_REQUIRED": _MISSING,
    "CERTIFICATE_REVOKED": "it is revoked",
    "UNKNOWN_CA": _UNKNOWN_ISSUER,
    "DECRYPT_ERROR": _UNKNOWN_ISSUER,
    "BAD_CERTIFICATE": _UNSUITABLE,
    "UNSUPPORTED_CERTIFICATE": _UNSUITABLE,
    "CERTIFICATE_UNKNOWN": _UNSUITABLE,
    "ACCESS_DENIED": _UNSUITABLE,
}

# OpenSSL's codes of a certificate of the server that is not accepted (openssl/x509_vfy.h).
_NOT_VALID_NOW = (9, 10)
_WRONG_NAME = (62, 64)


@dataclass(frozen=True)
class Connection:
    """The connection options of a command."""

    server: str
    ca: Path | None
    cert: Path | None
    key: Path | None
    timeout_seconds: float

    @property
    def tls(self) -> Tls | None:
        """The client's TLS files; None if the user gave none of the three options.

        Raises
        ------
        MisconfiguredError
            A certificate is given without its key, or without the authority to trust, or a key without its certificate.
        """
        if self.cert is not None and self.key is None:
            raise MisconfiguredError("a certificate needs its private key: name it in --key")
        if self.key is not None and self.cert is None:
            raise MisconfiguredError("a private key needs its certificate: name it in --cert")
        if self.ca is not None:
            return Tls(self.ca, self.cert, self.key)
        if self.cert is not None:
            # The connection is never made without the certificate: the server would not know who calls.
            raise MisconfiguredError("a certificate needs an authority to trust: name its PEM file in --ca")
        return None

    @contextmanager
    def client(self, cell_id: int | None = None, retry: Retry | None = None) -> Iterator[Client]:
        """Open a blocking client. A server that cannot be reached is an error at once, which names the fault."""
        with Client(self.server, cell_id=cell_id, tls=self.tls, timeout_seconds=self.timeout_seconds, retry=retry) as client:
            self._check_address()
            try:
                yield client
            except LeaseholdError as error:
                raise self._fault(error) or error from None

    @asynccontextmanager
    async def async_client(self, cell_id: int | None = None, retry: Retry | None = None) -> AsyncIterator[AsyncClient]:
        """Open an asyncio client. A server that cannot be reached is an error at once, which names the fault."""
        async with AsyncClient(
            self.server, cell_id=cell_id, tls=self.tls, timeout_seconds=self.timeout_seconds, retry=retry
        ) as client:
            self._check_address()
            try:
                yield client
            except LeaseholdError as error:
                raise self._fault(error) or error from None

    @property
    def _url(self) -> str:
        return endpoint(self.server, self.tls, allow_plaintext=False).url

    def _connect(self) -> socket.socket:
        address = endpoint(self.server, self.tls, allow_plaintext=False).address
        return socket.create_connection(address, timeout=self.timeout_seconds)

    def _check_address(self) -> None:
        """Check that a server listens. A client would try again until the end of its timeout.

        Raises
        ------
        UnreachableError
            No server listens at the address.
        """
        try:
            self._connect().close()
        except OSError as error:
            cause = "it does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise UnreachableError(self._url, cause, _START_ONE) from None

    def _fault(self, error: LeaseholdError) -> LeaseholdError | None:
        """Return the fault of TLS for which a call failed; None if there is none. Another handshake looks for it."""
        if error.code not in ("TLS_REFUSED", "UNAVAILABLE"):
            return None
        tls = self.tls
        try:
            with self._connect() as connection:
                return self._fault_of_tls(connection, tls) if tls else self._fault_of_plaintext(connection)
        except OSError:
            return None

    def _fault_of_plaintext(self, connection: socket.socket) -> LeaseholdError | None:
        # A server with TLS refuses the rest of this handshake, but not its first step.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            context.wrap_socket(connection).close()
        except OSError:
            return None
        hint = "use https:// in --server, and name the server's certificate authority in --ca"
        return UnreachableError(self._url, "the server speaks TLS", hint)

    def _fault_of_tls(self, connection: socket.socket, tls: Tls) -> LeaseholdError | None:
        host = endpoint(self.server, tls, allow_plaintext=False).address[0]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cafile=tls.ca)
        if tls.identity is not None:
            context.load_cert_chain(*tls.identity, password="")
        context.set_alpn_protocols(["h2"])
        try:
            with context.wrap_socket(connection, server_hostname=host) as secured:
                secured.settimeout(min(_REFUSAL_SECONDS, self.timeout_seconds))
                secured.recv(1)
        except ssl.SSLCertVerificationError as error:
            return self._refused_server(error)
        except ssl.SSLError as error:
            return self._refused_client(error)
        return None

    def _refused_server(self, error: ssl.SSLCertVerificationError) -> UnreachableError:
        """Return the fault of a server whose certificate the client does not accept."""
        text = error.verify_message
        if error.verify_code in _WRONG_NAME:
            cause = f"the server's certificate is for another name: {text}"
            return UnreachableError(self._url, cause, "use a name of the certificate in --server")
        if error.verify_code in _NOT_VALID_NOW:
            cause = f"the server's certificate is not valid now: {text}"
            hint = "give the server a new certificate, or set this machine's clock"
            return UnreachableError(self._url, cause, hint)
        cause = f"the authority in `{self.ca}` did not sign the server's certificate"
        return UnreachableError(self._url, cause, "name the authority that signed the server's certificate in --ca")

    def _refused_client(self, error: ssl.SSLError) -> LeaseholdError | None:
        """Return the fault of a handshake that the server ended; None if it only broke."""
        reason = error.reason or ""
        if "ALERT" in reason:
            fault = next((fault for end, fault in _REFUSALS.items() if reason.endswith(end)), None)
            return self._not_accepted(fault) if fault else None
        if isinstance(error, ssl.SSLEOFError):
            return None
        hint = "if it serves plaintext, use http:// in --server, and leave out --ca, --cert and --key"
        return UnreachableError(self._url, "the server does not answer in TLS", hint)

    def _not_accepted(self, fault: str) -> NotAcceptedError:
        if self.cert is None:
            return NotAcceptedError(
                f"the server does not accept the certificate: {fault}", "say who you are with --cert and --key"
            )
        hint = (
            "name a new certificate in --cert, and its key in --key"
            if fault is _NOT_VALID
            else "name a certificate in --cert that an authority of the server's `tls.client_ca` signed"
        )
        return NotAcceptedError(f"the server does not accept the certificate `{self.cert}`: {fault}", hint)
