"""A TCP proxy between client and server that can drop or delay the server's responses."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from typing_extensions import Self

from support.waiting import wait_for


class TcpProxy:
    """A proxy in front of one server. It ends with its `with` block."""

    def __init__(self, server_address: str) -> None:
        host, port = server_address.split(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._held: list[tuple[socket.socket, bytes]] | None = None
        self._cut: Callable[[], object] | None = None
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.client_bytes = 0

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        # `close` alone does not wake a thread that waits in `accept`; `shutdown` does so on Linux.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._sockets:
                _close(connection)
        wait_for("the proxy's threads to end", lambda: not any(thread.is_alive() for thread in self._threads))

    @property
    def address(self) -> str:
        """The address on which the proxy listens."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def cut_next_answer(self, before: Callable[[], object]) -> None:
        """Call `before` when the server next sends data, then cut the connection without forwarding that data."""
        with self._lock:
            self._cut = before

    def hold_answers(self) -> None:
        """Hold back all data that the server sends from now on."""
        with self._lock:
            self._held = []

    def release_answers(self) -> None:
        """Forward the data that was held back, and all later data."""
        with self._lock:
            for target, data in self._held or []:
                _send(target, data)
            self._held = None

    def _spawn(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets += [client, server]
            self._spawn(lambda client=client, server=server: self._pump(client, server, self._from_client))  # type: ignore[misc]
            self._spawn(lambda client=client, server=server: self._pump(server, client, self._from_server))  # type: ignore[misc]

    def _pump(self, source: socket.socket, target: socket.socket, forward: Callable[[bytes, socket.socket], bool]) -> None:
        try:
            while (data := source.recv(65_536)) and forward(data, target):
                pass
        except OSError:
            # One side has closed its connection, which is no error; `finally` closes the other side.
            pass
        finally:
            _close(source)
            _close(target)

    def _from_client(self, data: bytes, server: socket.socket) -> bool:
        # Count the bytes before they are sent: a test that sees their effect on the server must find them counted.
        with self._lock:
            self.client_bytes += len(data)
        server.sendall(data)
        return True

    def _from_server(self, data: bytes, client: socket.socket) -> bool:
        with self._lock:
            cut, self._cut = self._cut, None
        if cut is not None:
            cut()
            return False
        with self._lock:
            if self._held is None:
                client.sendall(data)
            else:
                self._held.append((client, data))
        return True


def _send(target: socket.socket, data: bytes) -> None:
    try:
        target.sendall(data)
    except OSError:
        # The client has closed its connection in the meantime, so the data is dropped.
        return


def _close(connection: socket.socket) -> None:
    # Ignore the error: the other side may have closed the connection first.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
