"""Tests of the errors of a call that no server answers: their texts are the package's own, not those of gRPC."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.tcp_proxy import TcpProxy

from leasehold import errors
from leasehold.client import Client, Retry

ONCE = Retry(attempts=1)


@contextmanager
def listening(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Run a server that is none: it calls a function with each connection."""

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            answer(connection)

    connections: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        # `accept` of the thread ends when the listener is shut down, not when it is closed.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in connections:
        connection.close()


def error_of(url: str) -> errors.LeaseholdError:
    with Client(url, cell_id=1, retry=ONCE, timeout_seconds=10, allow_plaintext=True) as client:
        return raised_by(client.list_leases)


def test_an_absent_server_is_said_in_the_words_of_the_package() -> None:
    error = error_of("http://127.0.0.1:1")
    assert (type(error), str(error)) == (errors.UnavailableError, "cannot reach the server: Connection refused")


def test_an_unknown_name_is_said_in_the_words_of_the_package() -> None:
    assert str(error_of("http://nowhere.invalid:1")) == "cannot reach the server: its name is not known"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda _: None, "it accepts connections, but does not answer"),
        (lambda connection: connection.close(), "it closes the connection"),
        (
            lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "it does not answer as a Leasehold server",
        ),
    ],
    ids=["silent", "closing", "http"],
)
def test_a_server_of_another_kind_is_said_in_the_words_of_the_package(
    answer: Callable[[socket.socket], object], text: str
) -> None:
    with listening(answer) as url:
        assert str(error_of(url)) == f"cannot reach the server: {text}"


def test_a_late_answer_is_said_in_the_words_of_the_package(proxy: TcpProxy) -> None:
    with Client(f"http://{proxy.address}", cell_id=1, retry=ONCE) as client:
        client.cells(timeout_seconds=60)
        proxy.hold_answers()
        error = raised_by(lambda: client.list_leases(timeout_seconds=0.3))
        proxy.release_answers()
    assert (type(error), str(error)) == (errors.DeadlineExceededError, "no answer came in time")


def test_errors_keep_the_name_of_their_grpc_status(embedded: ClaimsServer) -> None:
    with Client(embedded.url, cell_id=99) as client:
        error = raised_by(client.list_leases)
    assert (error.code, error.grpc_status) == ("INVALID_UPDATE", "INVALID_ARGUMENT")
    assert pickle.loads(pickle.dumps(error)).grpc_status == "INVALID_ARGUMENT"  # noqa: S301 - the test's own bytes
    with Client(embedded.url) as client:
        assert raised_by(client.list_leases).grpc_status is None
