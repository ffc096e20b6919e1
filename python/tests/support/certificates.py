"""A certificate authority and the certificates that it signs, as files in a directory."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Files:
    """The paths of a certificate and its key, as PEM files, and of the authority's certificate."""

    ca: Path
    certificate: Path
    key: Path


class Authority:
    """A certificate authority that signs certificates for servers and clients."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        own = self._builder("authority", self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.ca = self._write("ca.pem", own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def server(self) -> Files:
        """Issue a server certificate for the local machine, and return its files."""
        return self._issue("server", [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])

    def stranger(self) -> Files:
        """Issue a server certificate for another host name, which clients must refuse."""
        return self._issue("stranger", [x509.DNSName("stranger.example.com")])

    def cell(self, number: int) -> Files:
        """Issue a client certificate with the role of a cell."""
        return self._caller(f"cell-{number}", f"cell/{number}")

    def router(self) -> Files:
        """Issue a client certificate with the role of a router."""
        return self._caller("router", "router")

    def admin(self) -> Files:
        """Issue a client certificate with the role of an administrator."""
        return self._caller("admin", "admin")

    def service(self, name: str) -> Files:
        """Issue a client certificate with the role of a service, which may hold locks."""
        return self._caller(name, f"service/{name}")

    def _caller(self, name: str, role: str) -> Files:
        return self._issue(name, [x509.UniformResourceIdentifier(f"spiffe://leasehold/{role}")])

    def _issue(self, name: str, alternative_names: list[x509.GeneralName]) -> Files:
        key = ec.generate_private_key(ec.SECP256R1())
        built = self._builder(name, key).add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        pem = built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return Files(self.ca, self._write(f"{name}.pem", pem), self._write(f"{name}.key", private))

    def _builder(self, name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
        )

    def _write(self, name: str, pem: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(pem)
        return path
