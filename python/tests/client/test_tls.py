"""Tests of TLS: a certificate identifies the caller, and a connection to a remote host requires one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.certificates import Authority, Files
from support.claims import bucket, raised_by, username
from support.claims_server import ClaimsServer

from leasehold import errors
from leasehold.client import Client, Retry, Tls


def tls(files: Files) -> Tls:
    return Tls(ca=files.ca, certificate=files.certificate, key=files.key)


@pytest.fixture
def guarded(authority: Authority) -> Iterator[ClaimsServer]:
    with ClaimsServer(tls=authority.server()) as server:
        yield server


def test_a_cell_certificate_permits_calls_for_that_cell_only(guarded: ClaimsServer, authority: Authority) -> None:
    with Client(guarded.url, cell_id=1, tls=tls(authority.cell(1))) as client:
        with client.update(creates=[username("alice")]):
            pass
        assert client.classify(bucket("alice")).address == "https://cell-1.example.com"
        denied = raised_by(lambda: client.get(bucket("alice")))
    assert (type(denied), denied.code) == (errors.DeniedError, "RULE_DENIED")
    with Client(guarded.url, cell_id=2, tls=tls(authority.cell(1))) as impostor:
        assert isinstance(raised_by(lambda: impostor.begin([username("bob")])), errors.DeniedError)
        assert isinstance(raised_by(lambda: list(impostor.leases())), errors.DeniedError)
    with Client(guarded.url, tls=tls(authority.admin())) as admin:
        assert admin.get(bucket("alice")).record.cell_id == 1
    with Client(guarded.url, tls=tls(authority.router())) as router:
        assert router.classify(bucket("alice")).matched == bucket("alice")


def test_a_certificate_without_a_role_is_unauthenticated(guarded: ClaimsServer, authority: Authority) -> None:
    with Client(guarded.url, tls=tls(authority.stranger())) as client:
        error = raised_by(client.cells)
    assert (type(error), error.code) == (errors.UnauthenticatedError, "NO_IDENTITY")


@pytest.mark.parametrize("name", ["another authority", "another host", "no encryption"])
def test_an_untrusted_server_fails_without_a_retry(name: str, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    # The server accepts the client's certificate, so only the client's check of the server's certificate can fail.
    presented = {"another authority": other.server(), "another host": authority.stranger()}.get(name)
    accepted = Files(authority.ca, presented.certificate, presented.key) if presented else None
    patient = Retry(attempts=1000, backoff_seconds=30.0, max_backoff_seconds=30.0)
    with ClaimsServer(tls=accepted) as server:
        url = f"https://{server.address}"
        with Client(url, cell_id=1, tls=tls(authority.cell(1)), retry=patient, timeout_seconds=60) as client:
            error = raised_by(lambda: client.begin([username("alice")]))
    assert isinstance(error, errors.MisconfiguredError)
    assert (error.code, "`tls.ca`" in str(error)) == ("TLS_REFUSED", True)


@pytest.mark.parametrize("server", ["http://claims.example.com:7171", "http://10.0.0.1:7171", "claims.example.com"])
def test_plaintext_to_a_remote_server_needs_allow_plaintext(server: str) -> None:
    assert "https://" in str(raised_by(lambda: Client(server)))
    Client(server, allow_plaintext=True).close()


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost", "127.1.2.3:1"])
def test_plaintext_to_the_local_machine_is_allowed(server: str) -> None:
    Client(server).close()


@pytest.mark.parametrize(
    "server", ["", "http://", "ftp://localhost", "http://localhost/path", "http://me@localhost", "not a host", "a:b:c"]
)
def test_an_invalid_address_is_refused(server: str) -> None:
    assert "http://HOST:PORT" in str(raised_by(lambda: Client(server)))


def test_certificates_with_a_plaintext_address_are_refused(authority: Authority) -> None:
    assert "https://" in str(raised_by(lambda: Client("http://127.0.0.1:1", tls=tls(authority.cell(1)))))
    assert "`tls`" in str(raised_by(lambda: Client("https://127.0.0.1:1")))
    assert Client("127.0.0.1:1", tls=tls(authority.cell(1)))._endpoint.credentials is not None


@pytest.mark.parametrize("name", ["ca", "certificate", "key"])
def test_an_unusable_tls_file_is_named(name: str, authority: Authority, tmp_path: Path) -> None:
    good = authority.cell(1)
    (tmp_path / "rubbish.pem").write_text("rubbish")
    for wrong in (tmp_path / "absent.pem", tmp_path, tmp_path / "rubbish.pem"):
        files = {"ca": good.ca, "certificate": good.certificate, "key": good.key, name: wrong}
        error = raised_by(lambda files=files: Client("https://localhost:1", tls=Tls(**files)))  # type: ignore[misc]
        assert isinstance(error, errors.MisconfiguredError)
        assert isinstance(error, ValueError)
        assert f"`{wrong}`" in str(error)
        assert f"`tls.{name}`" in str(error)


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    files = Tls(authority.ca, authority.cell(1).certificate, authority.cell(2).key)
    assert "is not the key of" in str(raised_by(lambda: Client("https://localhost:1", tls=files)))


def test_the_environment_must_set_all_tls_files_or_none(guarded: ClaimsServer, authority: Authority) -> None:
    files = authority.cell(1)
    variables = {
        "LEASEHOLD_SERVER": guarded.url,
        "LEASEHOLD_CA": str(files.ca),
        "LEASEHOLD_CERT": str(files.certificate),
        "LEASEHOLD_KEY": str(files.key),
    }
    with Client.from_environment(environment=variables, cell_id=1) as client:
        assert len(client.cells()) == 2
    partial = {**variables, "LEASEHOLD_KEY": ""}
    assert "`LEASEHOLD_KEY`" in str(raised_by(lambda: Client.from_environment(environment=partial)))
    without_ca = {**variables, "LEASEHOLD_CA": ""}
    assert "`LEASEHOLD_CA`" in str(raised_by(lambda: Client.from_environment(environment=without_ca)))
    # Without a client certificate, the server is trusted, and the client is not.
    authority_alone = {**partial, "LEASEHOLD_CERT": ""}
    with Client.from_environment(environment=authority_alone, cell_id=1, retry=Retry(attempts=1)) as client:
        assert client._endpoint.credentials is not None
        assert isinstance(raised_by(client.cells), errors.LeaseholdError)
    Client.from_environment(environment={"LEASEHOLD_SERVER": ""}).close()
