"""Receives webhooks on loopback."""

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from app.services.installation import Installation
from grovekeeper_client.webhooks import verified


@dataclass
class Receiver:
    """A receiver on loopback that answers with a status and keeps every request."""

    status: int = 204
    wait_s: float = 0
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def events(self, secret: str) -> list[dict[str, Any]]:
        return [
            verified(secret, headers["Grovekeeper-Signature"], body)
            for headers, body in self.requests
        ]


@contextmanager
def listening(
    receiver: Receiver, *, certificate: Path | None = None
) -> Iterator[Receiver]:
    """Starts a receiver, with TLS if it has a certificate, and stops it when the block
    ends.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append((dict(self.headers), body))
            time.sleep(receiver.wait_s)
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook?a=1"
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}
    )
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def may_reach_loopback(installation: Installation) -> Installation:
    """The installation with a setting that lets webhooks reach loopback."""
    settings = replace(
        installation.settings, webhook_networks=(ip_network("127.0.0.0/8"),)
    )
    return replace(installation, settings=settings)
