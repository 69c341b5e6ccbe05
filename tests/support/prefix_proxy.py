"""Serves a service below a path, as a reverse proxy does: requests lose the prefix,
answers pass unchanged.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedIOBase
from socketserver import StreamRequestHandler, ThreadingTCPServer

_NOT_BELOW = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class PrefixProxy:
    """A proxy that runs.

    Attributes:
        origin: its address without the prefix.
        strays: targets of requests that are not below the prefix, which belong to other
            services of the host.
    """

    origin: str
    prefix: str
    strays: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address of the service."""
        return f"{self.origin}{self.prefix}"


@contextmanager
def prefix_proxy(port: int, prefix: str) -> Iterator[PrefixProxy]:
    """Runs a proxy to the service on a port of the loopback address."""
    strays: list[str] = []

    class Connection(StreamRequestHandler):
        def handle(self) -> None:
            _pass_one_request(self.rfile, self.connection, port, prefix, strays)

    with ThreadingTCPServer(("127.0.0.1", 0), Connection) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield PrefixProxy(
                f"http://127.0.0.1:{server.server_address[1]}", prefix, strays
            )
        finally:
            server.shutdown()
            thread.join()


def _pass_one_request(
    received: BufferedIOBase,
    client: socket.socket,
    port: int,
    prefix: str,
    strays: list[str],
) -> None:
    """Passes one request on, and its answer back as it arrives; the service then closes
    the connection.
    """
    method, _, rest = received.readline().decode("ascii").partition(" ")
    if not rest:
        return  # a connection that a browser opened ahead
    if not rest.startswith(f"{prefix}/"):
        strays.append(rest.partition(" ")[0])
        client.sendall(_NOT_BELOW)
        return
    lines = [
        f"{method} {rest.removeprefix(prefix)}".encode("ascii"),
        b"Connection: close\r\n",
    ]
    while (line := received.readline()) != b"\r\n":
        if not line.lower().startswith(b"connection:"):
            lines.append(line)
    with socket.create_connection(("127.0.0.1", port)) as service, suppress(OSError):
        service.sendall(b"".join((*lines, line)))
        threading.Thread(
            target=_pass_body, args=(received, service), daemon=True
        ).start()
        while chunk := service.recv(65_536):
            client.sendall(chunk)
    with suppress(OSError):
        # ends the thread that waits for more of the body
        client.shutdown(socket.SHUT_RDWR)


def _pass_body(received: BufferedIOBase, service: socket.socket) -> None:
    """Passes on what a client sends after the head of its request, until one of the two
    goes away.

    A client that leaves an answer unread resets its connection: reading fails then,
    instead of ending.
    """
    with suppress(OSError, ValueError):
        while chunk := received.read1(65_536):
            service.sendall(chunk)
    with suppress(OSError):
        service.shutdown(socket.SHUT_RDWR)
