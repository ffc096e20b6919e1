"""The server address and the TLS credentials of a client, checked before the first request."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import grpc

from leasehold.errors import MisconfiguredError

DEFAULT_SERVER = "http://127.0.0.1:7171"

_DEFAULT_PORTS = {"http": 80, "https": 443}

# Channel arguments of gRPC's core (include/grpc/impl/channel_arg_names.h).
#
# Keepalive pings detect a connection that a middlebox dropped without a FIN or RST; otherwise a call on it waits for its
# full timeout (gRFC A8). The short reconnect backoff finds a restarted server within one call: the default of gRPC's
# core grows to two minutes (gRPC's doc/connection-backoff.md).
CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.primary_user_agent", "leasehold-python"),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # Ignore the variable `http_proxy`, which gRPC obeys by default: the proxy would see a cell's requests.
    ("grpc.enable_http_proxy", 0),
    # Turn off gRPC's transparent retries (gRFC A6). `_retry.Attempts` counts attempts, and gRPC's would exceed the limit.
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True)
class Tls:
    """Paths of the PEM files for TLS. Without a client certificate, the server does not know who calls.

    A server of Leasehold requires a client certificate. A proxy in front of it may not.

    Attributes
    ----------
    ca
        The certificate of the authority that signed the server's certificate.
    certificate
        The client certificate, which identifies the caller. It needs `key`.
    key
        The private key of the client certificate, without a password.
    """

    ca: str | PathLike[str]
    certificate: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None

    @property
    def identity(self) -> tuple[str | PathLike[str], str | PathLike[str]] | None:
        """The paths of the client certificate and its key; None if there is none.

        Raises
        ------
        MisconfiguredError
            Only one of both is given.
        """
        if self.certificate is not None and self.key is not None:
            return self.certificate, self.key
        if self.certificate is not None:
            raise MisconfiguredError("`tls.certificate` needs its private key: set `tls.key`")
        if self.key is not None:
            raise MisconfiguredError("`tls.key` needs its certificate: set `tls.certificate`")
        return None


@dataclass(frozen=True)
class Endpoint:
    """The target address and the credentials of a gRPC channel. `credentials` is None for a plaintext connection."""

    target: str
    credentials: grpc.ChannelCredentials | None

    @property
    def url(self) -> str:
        """The address as a URL."""
        return f"{'https' if self.credentials else 'http'}://{self.target}"

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port."""
        host, _, port = self.target.rpartition(":")
        return host.strip("[]"), int(port)


def endpoint(server: str, tls: Tls | None, *, allow_plaintext: bool) -> Endpoint:
    """Return the endpoint for a server address and optional TLS files.

    Raises
    ------
    MisconfiguredError
        The address is invalid, the connection to a remote server would be plaintext, or a TLS file is unusable.
    """
    url = _parse(server, https=tls is not None)
    host = url.hostname or ""
    target = f"{f'[{host}]' if ':' in host else host}:{url.port or _DEFAULT_PORTS[url.scheme]}"
    if url.scheme == "https":
        return Endpoint(target, _credentials(server, tls))
    if tls is not None:
        raise MisconfiguredError(f"`{server}` is plaintext, but `tls` is set: use https://")
    if not (allow_plaintext or _is_loopback(host)):
        raise MisconfiguredError(
            f"`{server}` is a remote server, and the connection would be plaintext: use https:// and `tls`, or set "
            "`allow_plaintext=True` on a trusted network"
        )
    return Endpoint(target, None)


def _parse(server: str, *, https: bool) -> SplitResult:
    invalid = MisconfiguredError(f"`{server}` is not a server address: use http://HOST:PORT or https://HOST:PORT")
    try:
        url = urlsplit(server if "://" in server else f"{'https' if https else 'http'}://{server}")
        port = url.port
    except ValueError:
        raise invalid from None
    is_bare = url.path in ("", "/") and not url.query and not url.fragment and "@" not in url.netloc
    if url.scheme not in _DEFAULT_PORTS or not url.hostname or not is_bare or port == 0 or " " in server:
        raise invalid
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _credentials(server: str, tls: Tls | None) -> grpc.ChannelCredentials:
    if tls is None:
        raise MisconfiguredError(f"`{server}` needs certificates: set the files of the authority and of the client in `tls`")
    identity = tls.identity
    ca = _read_pem("ca", tls.ca)
    certificate, key = (None, None) if identity is None else map(_read_pem, ("certificate", "key"), identity)
    _check_authority(tls)
    if identity is not None:
        _check_identity(*identity)
    return grpc.ssl_channel_credentials(ca, key, certificate)


def _read_pem(name: str, path: str | PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise MisconfiguredError(f"cannot read `{path}` for `tls.{name}` ({reason}): pass a readable PEM file") from None


def _check_authority(tls: Tls) -> None:
    # Check the PEM files with OpenSSL, which names the file that is wrong. `grpc.ssl_channel_credentials` accepts any bytes;
    # with an invalid PEM every call then fails as UNAVAILABLE, as if the server were down.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=tls.ca)
    except ssl.SSLError:
        raise MisconfiguredError(
            f"`{tls.ca}` for `tls.ca` contains no PEM certificate: pass the authority's certificate"
        ) from None
    if not context.get_ca_certs():
        raise MisconfiguredError(f"`{tls.ca}` for `tls.ca` is not an authority's certificate: pass the authority's certificate")


def _check_identity(certificate: str | PathLike[str], key: str | PathLike[str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Pass an empty password. Without one, OpenSSL would ask for it on the terminal (CPython, `SSLContext.load_cert_chain`).
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"`{key}` for `tls.key` is not the key of `{certificate}`: pass the key of that certificate"
        else:
            message = (
                f"`{certificate}` and `{key}` for `tls.certificate` and `tls.key` are not a PEM certificate and"
                " its private key without a password: pass such files"
            )
        raise MisconfiguredError(message) from None
