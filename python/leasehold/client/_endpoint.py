"""Where the server is, whom it is trusted by, and who calls: checked before anything is sent."""

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

# Silent connections die in the middle; servers that were away are to be found again soon.
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
    # No proxy that the environment names stands between a cell and its claims.
    ("grpc.enable_http_proxy", 0),
    # Tries are counted here, and each is told to the caller's log.
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True)
class Tls:
    """Files in PEM: whom to trust, and who calls. All three, or there is no connection.

    Attributes
    ----------
    ca
        The authority that has signed the server's certificate.
    certificate
        The certificate that says who calls.
    key
        Its private key, not encrypted.
    """

    ca: str | PathLike[str]
    certificate: str | PathLike[str]
    key: str | PathLike[str]


@dataclass(frozen=True)
class Endpoint:
    """What a channel needs."""

    target: str
    credentials: grpc.ChannelCredentials | None


def endpoint(server: str, tls: Tls | None, *, allow_plaintext: bool) -> Endpoint:
    """Say how to reach a server, or why it cannot be reached like this.

    Raises
    ------
    MisconfiguredError
        The address is none, the connection would not be encrypted, or a file is of no use.
    """
    url = _parse(server, https=tls is not None)
    host = url.hostname or ""
    target = f"{f'[{host}]' if ':' in host else host}:{url.port or _DEFAULT_PORTS[url.scheme]}"
    if url.scheme == "https":
        return Endpoint(target, _credentials(server, tls))
    if tls is not None:
        raise MisconfiguredError(f"certificates need an encrypted connection: write https:// in `{server}`")
    if not (allow_plaintext or _is_loopback(host)):
        raise MisconfiguredError(
            f"`{server}` is another machine, and would be spoken to in the clear: use https:// and `tls`, or say "
            "`allow_plaintext=True` where the network is trusted"
        )
    return Endpoint(target, None)


def _parse(server: str, *, https: bool) -> SplitResult:
    wrong = MisconfiguredError(f"`{server}` is no server address: use http://HOST:PORT or https://HOST:PORT")
    try:
        url = urlsplit(server if "://" in server else f"{'https' if https else 'http'}://{server}")
        port = url.port
    except ValueError:
        raise wrong from None
    is_bare = url.path in ("", "/") and not url.query and not url.fragment and "@" not in url.netloc
    if url.scheme not in _DEFAULT_PORTS or not url.hostname or not is_bare or port == 0 or " " in server:
        raise wrong
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _credentials(server: str, tls: Tls | None) -> grpc.ChannelCredentials:
    if tls is None:
        raise MisconfiguredError(f"`{server}` wants certificates: name those of the authority and of the caller in `tls`")
    ca, certificate, key = (_read(name, getattr(tls, name)) for name in ("ca", "certificate", "key"))
    _check(tls)
    return grpc.ssl_channel_credentials(ca, key, certificate)


def _read(name: str, path: str | PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no path"
        raise MisconfiguredError(f"cannot read `{path}` for `tls.{name}`: {reason}: name a readable file in PEM") from None


def _check(tls: Tls) -> None:
    # gRPC takes anything for a PEM, and then shows it as a server that does not answer.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=tls.ca)
    except ssl.SSLError:
        raise MisconfiguredError(f"`{tls.ca}` for `tls.ca` holds no certificate in PEM: name the authority's") from None
    if not context.get_ca_certs():
        raise MisconfiguredError(f"`{tls.ca}` for `tls.ca` is not the certificate of an authority: name the authority's")
    try:
        # Without a password it would be asked for at the terminal.
        context.load_cert_chain(tls.certificate, tls.key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"`{tls.key}` for `tls.key` is not the key of `{tls.certificate}`: name the one it was made with"
        else:
            message = (
                f"`{tls.certificate}` and `{tls.key}` for `tls.certificate` and `tls.key` are not a certificate and its"
                " private key in PEM, without a password: name such files"
            )
        raise MisconfiguredError(message) from None
